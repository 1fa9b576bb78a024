"""Waiters of a partition: completed in the order of their offsets."""

from replica_fixture import Waiting

from cordwood.replication.waiters import OffsetWaiters


def test_a_repeated_batch_does_not_wait_for_later_ones() -> None:
    waiters, later, earlier = OffsetWaiters(), Waiting(), Waiting()
    waiters.add(10, later)
    waiters.add(5, earlier)
    waiters.reached(5)
    assert (earlier.outcome, later.outcome) == ("reached", "waits")
    waiters.reached(10)
    assert later.outcome == "reached"
