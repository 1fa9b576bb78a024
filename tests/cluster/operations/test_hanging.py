"""Hanging transactions among those that are open in a partition."""

from cordwood.cluster.operations.hanging_transactions import (
    CoordinatedTransaction,
    OpenTransaction,
    is_expected,
    why_hanging,
)
from cordwood.storage.types import TopicPartition

PLACE, ELSEWHERE = TopicPartition("t", 0), TopicPartition("t", 1)
NOW_MS, MAX_MS = 1_000_000, 1_000
OLD = OpenTransaction(PLACE, 7, 0, -1, 10, NOW_MS - MAX_MS - 1)


def known(*partitions: TopicPartition, start_ms: int = NOW_MS, state: str = "Ongoing") -> CoordinatedTransaction:
    return CoordinatedTransaction("payments", state, start_ms, partitions)


def why(found: OpenTransaction, coordinated: CoordinatedTransaction | None) -> str | None:
    return why_hanging(found, coordinated, NOW_MS, MAX_MS)


def test_a_producer_that_no_coordinator_knows_hangs() -> None:
    assert why(OLD, None) == "no coordinator has the producer"


def test_a_transaction_that_may_still_end_does_not_hang() -> None:
    assert why(OLD._replace(last_timestamp_ms=NOW_MS - MAX_MS), None) is None


def test_a_transaction_that_its_coordinator_is_about_to_end_does_not_hang() -> None:
    assert is_expected(OLD, known(PLACE))
    assert why(OLD, known(PLACE)) is None


def test_a_partition_that_gets_no_marker_any_more_hangs() -> None:
    for coordinated in (known(ELSEWHERE), known(state="CompleteCommit", start_ms=-1)):
        assert not is_expected(OLD, coordinated)
        assert why(OLD, coordinated) == f"payments is {coordinated.state} without this partition"


def test_a_transaction_that_its_coordinator_does_not_end_hangs() -> None:
    stuck = known(PLACE, start_ms=NOW_MS - MAX_MS - 1, state="PrepareAbort")
    assert is_expected(OLD, stuck)
    assert why(OLD, stuck) == "payments is PrepareAbort for too long"
