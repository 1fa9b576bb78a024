"""The committed batches of a partition: what replicas have in common, and what one of them no longer has."""

from cordwood.chaos.sim.committed import CommittedBatches
from cordwood.storage.batch import BatchHeader, peek
from cordwood.storage.compaction.run_writer import closing_batch

FIRST = BatchHeader(0, 100, 1, 2, 11, 0, 3, 0, 0, 7, 0, 0, 4)
SECOND = FIRST._replace(base_offset=4, crc=12, base_sequence=4)
THIRD = FIRST._replace(base_offset=8, crc=13, base_sequence=8)


def found(*looks: tuple[int, BatchHeader], log_start: int = 0, is_compacted: bool = False) -> list[str]:
    committed = CommittedBatches("t/0")
    return [
        kind
        for broker, header in looks
        for kind, _ in committed._compare_batch(broker, header, log_start=log_start, is_compacted=is_compacted)
    ]


def test_replicas_with_equal_batches_are_as_they_should_be() -> None:
    assert found((1, FIRST), (1, SECOND), (2, FIRST), (2, SECOND), (1, THIRD)) == []


def test_another_batch_at_a_committed_offset_is_noticed() -> None:
    assert found((1, FIRST), (1, SECOND), (2, SECOND._replace(crc=99))) == ["rule-2"]
    assert found((1, FIRST), (1, SECOND), (2, FIRST._replace(base_offset=2))) == ["rule-2"]


def test_a_gap_in_a_producers_sequence_is_noticed() -> None:
    assert found((1, FIRST), (1, SECOND._replace(base_sequence=5))) == ["rule-9"]
    assert found((1, FIRST._replace(base_sequence=4))) == ["rule-9"]


def test_a_replica_that_begins_after_deleted_records_is_compared_with_those_that_still_have_them() -> None:
    assert found((1, FIRST), (1, THIRD), (2, SECOND), (2, THIRD), (3, SECOND)) == []
    assert found((1, FIRST), (1, THIRD), (2, SECOND), (3, SECOND._replace(crc=99))) == ["rule-2"]


def test_a_deleted_batch_is_not_compared() -> None:
    # A replica that was not in sync had another batch there, which it never shows (seed 72).
    other = SECOND._replace(crc=99)
    assert found((1, other), (2, SECOND), (1, THIRD), (2, THIRD), log_start=8) == []
    assert found((1, SECOND), (2, other), log_start=7) == ["rule-2"]


def test_a_batch_that_closes_a_rewritten_segment_may_begin_where_a_removed_one_began() -> None:
    closing = peek(closing_batch(4, 12, 3))
    assert found((1, FIRST), (1, SECOND), (1, THIRD), (2, FIRST), (2, closing), is_compacted=True) == []
    assert found((1, FIRST), (1, SECOND), (1, THIRD), (2, FIRST), (2, closing)) == ["rule-2"]
    # The last batch of a producer stays where it was, without records.
    moved = SECOND._replace(record_count=0, last_offset_delta=7)
    assert found((1, FIRST), (1, SECOND), (1, THIRD), (2, FIRST), (2, moved), is_compacted=True) == ["rule-2"]
