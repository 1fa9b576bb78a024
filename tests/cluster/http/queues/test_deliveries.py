"""Deliveries to HTTP clients: a receipt counts for one delivery, until its lock ends."""

from functools import partial
from uuid import UUID

import pytest
from line_counter import lines

from cordwood.cluster.http.queues.deliveries import (
    DONE_MAX,
    SWEPT_AT_ONCE,
    Deliveries,
    QueueOffset,
    QueuePartition,
)
from cordwood.cluster.operations.queue_receipts import Receipt

TOPIC = UUID(int=1)
PLACE = QueuePartition(TOPIC, 0)
LEADER = 2
ACCEPT, RELEASE = 1, 2
MINE, YOURS = b"m" * 16, b"y" * 16


def receipt(offset: int = 0, secret: bytes = MINE) -> Receipt:
    return Receipt(1, 1, TOPIC, 0, offset, secret)


def holding(*offsets: int, until_ms: int = 1_000) -> Deliveries:
    deliveries = Deliveries()
    deliveries.add(LEADER, [QueueOffset(PLACE, offset) for offset in offsets], MINE, until_ms)
    return deliveries


def test_a_receipt_finds_its_delivery_until_the_lock_ends() -> None:
    deliveries = holding(0, 1)
    assert deliveries.find(receipt(1), 0) is not None
    deliveries.sweep(999)
    assert deliveries.find(receipt(1), 999) is not None
    assert deliveries.find(receipt(1), 1_000) is None, "before it is swept"
    deliveries.sweep(1_000)
    assert len(deliveries) == 0


def test_another_secret_finds_nothing() -> None:
    assert holding(0).find(receipt(0, YOURS), 0) is None


def test_the_receipt_of_an_earlier_delivery_counts_no_more() -> None:
    deliveries = holding(0)
    deliveries.add(LEADER, [QueueOffset(PLACE, 0)], YOURS, 2_000)
    assert deliveries.find(receipt(0, MINE), 0) is None
    deliveries.finish(receipt(0, MINE), ACCEPT)
    assert deliveries.find(receipt(0, YOURS), 0) is not None


def test_a_renewed_lock_ends_later() -> None:
    deliveries = holding(0, 1)
    deliveries.renew(receipt(1), 0, 5_000)
    deliveries.sweep(1_000)
    assert deliveries.find(receipt(0), 1_000) is None
    assert deliveries.find(receipt(1), 1_000) is not None
    deliveries.sweep(5_000)
    assert len(deliveries) == 0


def test_an_acknowledgement_may_be_repeated_but_not_changed() -> None:
    deliveries = holding(0)
    deliveries.finish(receipt(0), ACCEPT)
    assert deliveries.find(receipt(0), 0) is None
    assert deliveries.was_done(receipt(0), ACCEPT)
    assert not deliveries.was_done(receipt(0), RELEASE)
    assert not deliveries.was_done(receipt(0, YOURS), ACCEPT)


def test_only_the_last_acknowledgements_are_remembered() -> None:
    deliveries = holding(*range(DONE_MAX + 1))
    for offset in range(DONE_MAX + 1):
        deliveries.finish(receipt(offset), ACCEPT)
    assert not deliveries.was_done(receipt(0), ACCEPT)
    assert deliveries.was_done(receipt(1), ACCEPT)


def test_the_end_of_a_session_ends_the_deliveries_of_its_leader_alone() -> None:
    deliveries = holding(0, 1)
    deliveries.add(LEADER + 1, [QueueOffset(QueuePartition(TOPIC, 1), 0)], YOURS, 1_000)
    deliveries.end_session(LEADER)
    assert len(deliveries) == 1
    deliveries.sweep(1_000)
    assert len(deliveries) == 0


def test_another_leader_of_a_partition_ends_the_deliveries_of_the_former_one() -> None:
    deliveries = holding(0, 1)
    deliveries.add(LEADER + 1, [QueueOffset(PLACE, 1)], YOURS, 1_000)
    assert len(deliveries) == 1
    assert [deliveries.find(each, 0) is not None for each in (receipt(0), receipt(1), receipt(1, YOURS))] == [
        False, False, True,
    ]  # fmt: skip
    deliveries.sweep(0)
    assert deliveries.find(receipt(1, YOURS), 999) is not None, "its lock is its own"


def test_a_member_that_may_remember_less_forgets_the_oldest_receipts() -> None:
    deliveries = holding(*range(6))
    for offset in range(4):
        deliveries.finish(receipt(offset), 1)
    deliveries.remember(2)
    deliveries.finish(receipt(4), 1)
    assert [deliveries.was_done(receipt(offset), 1) for offset in range(5)] == [False, False, False, True, True]
    deliveries.remember(3)
    deliveries.finish(receipt(5), 1)
    assert deliveries.was_done(receipt(3), 1), "it may remember more again"


def test_a_lock_that_has_ended_is_not_renewed() -> None:
    deliveries = holding(0)
    deliveries.renew(receipt(0), 1_000, 5_000)
    assert deliveries.find(receipt(0), 1_000) is None


@pytest.mark.parametrize("ends_with_its_session", [False, True])
def test_very_many_deliveries_are_removed_in_steps_and_count_no_more_at_once(ends_with_its_session: bool) -> None:
    """Counted in lines that run, not by the clock."""
    count = 20 * SWEPT_AT_ONCE
    deliveries, few = holding(*range(count)), holding(*range(2 * SWEPT_AT_ONCE))
    now_ms = 1_000
    if ends_with_its_session:
        now_ms = 0
        few.end_session(LEADER)
        assert lines(partial(deliveries.end_session, LEADER)) < SWEPT_AT_ONCE
        assert len(deliveries) == 0
    assert deliveries.find(receipt(1), now_ms) is None
    steps = 1
    most = lines(partial(few.sweep, now_ms))
    while deliveries.sweep(now_ms):
        steps += 1
    assert steps >= count / SWEPT_AT_ONCE
    assert most < 100 * SWEPT_AT_ONCE
    assert len(deliveries._locks) == len(deliveries) == 0
