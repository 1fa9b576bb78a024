"""Admission control of micro-batches: minimum and maximum number of records, and the maximum trigger delay."""

from collections.abc import Mapping
from dataclasses import dataclass

from cordwood.storage.types import TopicPartition


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """The user's limits, in records; `delay_ms_max` is how long a batch waits for `records_min`."""

    records_max: int | None = None
    records_min: int | None = None
    delay_ms_max: int = 15 * 60_000


def should_wait(limits: BatchLimits, backlog: int, since_last_ms: float | None) -> bool:
    """Return whether a backlog is too small for a batch. The first batch (`since_last_ms` is None) never waits."""
    if limits.records_min is None or since_last_ms is None:
        return False
    return backlog < limits.records_min and since_last_ms < limits.delay_ms_max


def backlog_of(starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> int:
    """Return the number of offsets between starts and ends."""
    return sum(max(0, ends[place] - starts[place]) for place in ends)


def admit(
    starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], records_max: int
) -> dict[TopicPartition, int]:
    """Return the ends of a batch of at most `records_max` offsets, shared by the partitions' backlogs.

    The batch is as large as allowed. If possible, each partition with a backlog gets at least one offset.
    """
    backlog = {place: ends[place] - starts[place] for place in ends if ends[place] > starts[place]}
    if sum(backlog.values()) <= records_max:
        return dict(ends)
    shares = _shares(backlog, records_max)
    return {place: starts[place] + shares[place] if place in shares else ends[place] for place in ends}


def _shares(backlog: Mapping[TopicPartition, int], records_max: int) -> dict[TopicPartition, int]:
    by_size = sorted(backlog, key=lambda place: (-backlog[place], place))
    shares = {place: int(rank < records_max) for rank, place in enumerate(by_size)}
    # After one offset each, the rest is divided in proportion to the backlogs; rounding favours the largest.
    left = records_max - sum(shares.values())
    unserved = sum(backlog.values()) - sum(shares.values())
    for place in reversed(by_size):
        rest = backlog[place] - shares[place]
        more = left * rest // unserved if unserved else 0
        shares[place] += more
        left, unserved = left - more, unserved - rest
    return shares
