"""Situation of a partition in its leader's memory: the input of `plan.py`."""

from uuid import UUID

from cordwood.archive.manifest import PartitionArchive
from cordwood.cluster.tiering.plan import Situation
from cordwood.cluster.tiering.retention import LocalSegment
from cordwood.replication.partition import Partition
from cordwood.storage.segment import Segment

NOTHING = PartitionArchive()


class ActiveSegmentAge:
    """The time since which the active segment has records, as far as this leader has seen it.

    Records have timestamps of their own, which may be years old.
    """

    def __init__(self) -> None:
        self._base_offset = -1
        self._since_ms = 0

    def since_ms(self, active: Segment, now_ms: int) -> int:
        if active.base_offset != self._base_offset or not active.size:
            self._base_offset, self._since_ms = active.base_offset, now_ms
        return self._since_ms


def situation_of(
    partition: Partition,
    archive: PartitionArchive,
    age: ActiveSegmentAge,
    now_ms: int,
    grace_ms: int,
    compacted_delay_ms: int,
    committed_sequence: int,
    in_progress: frozenset[UUID],
) -> Situation:
    """Return the situation of a partition that this broker leads."""
    log, leading = partition.log, partition.leader
    active = log.segments[-1] if log.segments else None
    return Situation(
        archive=archive,
        config=log.config,
        segments=tuple(map(_local, log.segments)),
        epochs=tuple(log.epochs),
        log_start=log.log_start,
        low_watermark=leading.low_watermark,
        high_watermark=partition.high_watermark,
        # An index that lacks aborted transactions must not be archived.
        last_stable=log.log_start if log.lacks_archived_producers else partition.last_stable_offset,
        log_end=log.log_end,
        clean_end=log.clean_end,
        now_ms=now_ms,
        grace_ms=grace_ms,
        compacted_delay_ms=compacted_delay_ms,
        committed_sequence=committed_sequence,
        active_since_ms=now_ms if active is None else age.since_ms(active, now_ms),
        pinned=log.pinned,
        in_progress=in_progress,
    )


def _local(segment: Segment) -> LocalSegment:
    # A lost segment has no batches until it is repaired.
    is_sealed = segment.is_sealed and not segment.is_lost
    return LocalSegment(segment.base_offset, segment.end_offset, segment.size, segment.max_timestamp, is_sealed)
