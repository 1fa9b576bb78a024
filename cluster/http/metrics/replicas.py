"""Metrics of this broker's replicas: roles, in-sync sets, lag, offsets and sizes."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from cordwood.cluster.http.metrics.family import Family, Row, Rows, gauge_over, gauges
from cordwood.cluster.http.watched import Watched, lag_records
from cordwood.replication.leader import LeaderView
from cordwood.replication.partition import Partition

ROLES = ("leader", "follower", "offline")


def _roles(watched: Watched) -> Rows:
    counts: Counter[str] = Counter()
    for replica in list(watched.replicas):
        counts[_role(replica)] += 1
        yield None
    for role in ROLES:
        yield (role,), counts[role]


def _role(replica: Partition) -> str:
    if replica.is_offline:
        return "offline"
    return "leader" if replica.is_leader else "follower"


def _all(watched: Watched) -> Iterable[Partition]:
    return watched.replicas


def _of_leaders(name: str, meaning: str, number: Callable[[Partition, LeaderView], int]) -> Family:
    """Return the family of a sum over the partitions that this broker leads and can serve."""

    def of_one(replica: Partition) -> int:
        return 0 if replica.leading is None else number(replica, replica.leading.view)

    return gauge_over(name, meaning, _all, of_one)


def _lagging(watched: Watched) -> Rows:
    for partition in list(watched.replicas):
        yield None
        if (leader := partition.leading) is not None:
            for follower in leader.followers():
                lag = lag_records(leader, follower)
                if lag or not follower.is_in_sync:
                    yield (partition.topic, str(partition.index), str(follower.broker_id)), lag


def _of_each(number: Callable[[Partition], int]) -> Callable[[Watched], Iterator[Row]]:
    def rows(watched: Watched) -> Iterator[Row]:
        return (((replica.topic, str(replica.index)), number(replica)) for replica in list(watched.replicas))

    return rows


PLACE = ("topic", "partition")

FAMILIES: tuple[Family, ...] = (
    gauges(
        "partitions",
        "Replicas on this broker, by role. A replica is offline if its disk failed or if it violated an invariant.",
        ("role",),
        _roles,
    ),
    gauge_over(
        "failed_partitions",
        "Replicas on this broker that are offline until it is restarted, because they violated an invariant.",
        _all,
        lambda replica: replica.is_offline and not replica.directory.is_offline,
    ),
    _of_leaders(
        "under_replicated_partitions",
        "Partitions led by this broker whose ISR is smaller than their set of replicas; during a reassignment, than the"
        " set that they will have.",
        lambda _, view: view.is_under_replicated,
    ),
    _of_leaders(
        "under_min_isr_partitions",
        "Partitions led by this broker whose ISR is smaller than min.insync.replicas: they refuse acks=all.",
        lambda _, view: not view.has_enough_replicas,
    ),
    _of_leaders(
        "uncommitted_records",
        "Records between the high watermarks and the log ends of the partitions led by this broker.",
        lambda replica, _: replica.log.log_end - replica.high_watermark,
    ),
    gauges(
        "replica_lag_records",
        "Records of a log led by this broker that a follower does not have on disk. Only followers that lag"
        " or are not in sync.",
        ("topic", "partition", "broker"),
        _lagging,
    ),
    # In this order: a high watermark that is read before the log end is never above it.
    gauges(
        "partition_log_start_offset",
        "Log start offset of the replica.",
        PLACE,
        _of_each(lambda replica: replica.log.log_start),
    ),
    gauges(
        "partition_high_watermark_offset",
        "High watermark of the replica.",
        PLACE,
        _of_each(lambda replica: replica.high_watermark),
    ),
    gauges(
        "partition_log_end_offset",
        "Log end offset of the replica.",
        PLACE,
        _of_each(lambda replica: replica.log.log_end),
    ),
    gauges(
        "partition_clean_end_offset",
        "End of the compacted records of the replica; 0 without compaction.",
        PLACE,
        _of_each(lambda replica: replica.log.clean_end),
    ),
    gauges(
        "partition_size_bytes", "Size of the replica's segments.", PLACE, _of_each(lambda replica: replica.log.size)
    ),
)
