"""Metrics of the groups that this broker coordinates: types, states, members, rebalances, committed offsets and lag."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from cordwood.cluster.groups.any_group import GroupKind
from cordwood.cluster.groups.classic.rebalance import State
from cordwood.cluster.http.metrics.family import Family, Row, Rows, counters, gauges, histograms
from cordwood.cluster.http.watched import Watched

LABELS = ("group", "topic", "partition")


STATES: Mapping[GroupKind, Sequence[str]] = {
    GroupKind.CLASSIC: [state.value for state in State if state is not State.DEAD],
    GroupKind.CONSUMER: ["Empty", "Assigning", "Reconciling", "Stable"],
    GroupKind.SHARE: ["Empty", "Stable"],
}
SETTLED = frozenset({"Empty", "Stable", "Dead"})


def _states(watched: Watched) -> Rows:
    counts: Counter[tuple[GroupKind, str]] = Counter()
    for group, _ in watched.groups.known():
        counts[group.kind, group.state_name] += 1
        yield None
    for kind, states in STATES.items():
        for state in states:
            yield (kind.value, state), counts[kind, state]


def _members(watched: Watched) -> Rows:
    counts: Counter[GroupKind] = Counter()
    for group, _ in watched.groups.known():
        counts[group.kind] += group.member_count
        yield None
    for kind in GroupKind:
        yield (kind.value,), counts[kind]


def _unsettled(watched: Watched) -> Rows:
    for group, _ in watched.groups.known():
        is_unsettled = group.state_name not in SETTLED
        yield ((group.group_id, group.kind.value), 1) if is_unsettled else None


def _rebalances(watched: Watched) -> Iterator[Row]:
    counts = watched.groups.measures.rebalances
    return (((kind.value,), counts[kind]) for kind in GroupKind)


def _assignments(watched: Watched) -> Iterator[Row]:
    return (((kind.value,), times) for kind, times in watched.groups.measures.assignments_s.items())


def _committed(watched: Watched) -> Rows:
    for group, offsets in watched.groups.known():
        yield None
        for (topic, index), committed in list(offsets.items()):
            yield (group.group_id, topic, str(index)), committed.offset


def _lag(watched: Watched) -> Rows:
    for group, offsets in watched.groups.known():
        yield None
        for (topic, index), committed in list(offsets.items()):
            replica = watched.replicas.get(topic, index)
            if replica is None:
                yield None
            else:
                lag = max(0, replica.high_watermark - max(committed.offset, replica.log.log_start))
                yield (group.group_id, topic, str(index)), lag


FAMILIES: tuple[Family, ...] = (
    gauges("groups", "Groups that this broker coordinates.", ("type", "state"), _states),
    gauges("group_members", "Members of the groups that this broker coordinates.", ("type",), _members),
    gauges(
        "group_unsettled",
        "1 for a group whose members do not all have their assignment yet; no sample for any other group.",
        ("group", "type"),
        _unsettled,
    ),
    counters(
        "group_rebalances",
        "Rebalances: generations that classic groups began, and new epochs of the others.",
        ("type",),
        _rebalances,
    ),
    histograms(
        "group_assignment_seconds",
        "Time to compute a target assignment of a group.",
        ("type",),
        _assignments,
    ),
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
