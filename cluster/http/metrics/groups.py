"""Metrics of the consumer groups that this broker coordinates: states, committed offsets and lag."""

from collections import Counter
from collections.abc import Iterator

from cordwood.cluster.groups.rebalance import State
from cordwood.cluster.http.metrics.family import Family, Row, Rows, gauges
from cordwood.cluster.http.watched import Watched

LABELS = ("group", "topic", "partition")


def _states(watched: Watched) -> Iterator[Row]:
    counts = Counter(group.state_name for group, _ in watched.groups.known())
    return (((state.value,), counts[state.value]) for state in State if state is not State.DEAD)


def _committed(watched: Watched) -> Iterator[Row]:
    for group, offsets in watched.groups.known():
        for (topic, index), committed in list(offsets.items()):
            yield (group.group_id, topic, str(index)), committed.offset


def _lag(watched: Watched) -> Rows:
    for group, offsets in watched.groups.known():
        for (topic, index), committed in list(offsets.items()):
            replica = watched.replicas.get(topic, index)
            if replica is None:
                yield None
            else:
                lag = max(0, replica.high_watermark - max(committed.offset, replica.log.log_start))
                yield (group.group_id, topic, str(index)), lag


FAMILIES: tuple[Family, ...] = (
    gauges("groups", "Consumer groups that this broker coordinates.", ("state",), _states),
    gauges(
        "group_committed_offset",
        "Committed offset of a consumer group that this broker coordinates.",
        LABELS,
        _committed,
    ),
    gauges(
        "group_lag_records",
        "Lag of a consumer group: records between its committed offset and the high watermark. Only for"
        " groups that this broker coordinates and partitions that have a replica on it. For other"
        " partitions, compare cordwood_group_committed_offset with the leader's"
        " cordwood_partition_high_watermark_offset.",
        LABELS,
        _lag,
    ),
)
