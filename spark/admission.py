"""How much of what has come a micro-batch takes: at most so many records, and not before there are enough."""

from collections.abc import Mapping
from dataclasses import dataclass

from cordwood.spark.ranges import TopicPartition


@dataclass(frozen=True, slots=True)
class Limits:
    """What the user set: in records, but for the time that a batch waits for `records_min`."""

    records_max: int | None = None
    records_min: int | None = None
    delay_ms_max: int = 15 * 60_000


def should_wait(limits: Limits, backlog: int, since_last_ms: float | None) -> bool:
    """Whether so few records can wait for more. The first batch waits for nobody: `since_last_ms` is None."""
    if limits.records_min is None or since_last_ms is None:
        return False
    return backlog < limits.records_min and since_last_ms < limits.delay_ms_max


def backlog_of(starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> int:
    """How many offsets there are between."""
    return sum(max(0, ends[place] - starts[place]) for place in ends)


def admit(
    starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], records_max: int
) -> dict[TopicPartition, int]:
    """The ends of a batch of at most `records_max`, in which each partition has its share of the backlog.

    As many are taken as may be, and no partition with a backlog goes without while there is one for each.
    """
    backlog = {place: ends[place] - starts[place] for place in ends if ends[place] > starts[place]}
    if sum(backlog.values()) <= records_max:
        return dict(ends)
    shares = _shares(backlog, records_max)
    return {place: starts[place] + shares[place] if place in shares else ends[place] for place in ends}


def _shares(backlog: Mapping[TopicPartition, int], records_max: int) -> dict[TopicPartition, int]:
    by_size = sorted(backlog, key=lambda place: (-backlog[place], place))
    shares = {place: int(rank < records_max) for rank, place in enumerate(by_size)}
    # What is left after one for each is divided by what each still has; the largest take what rounding leaves over.
    left = records_max - sum(shares.values())
    unserved = sum(backlog.values()) - sum(shares.values())
    for place in reversed(by_size):
        rest = backlog[place] - shares[place]
        more = left * rest // unserved if unserved else 0
        shares[place] += more
        left, unserved = left - more, unserved - rest
    return shares
