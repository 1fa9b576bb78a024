"""Metrics of this broker's replicas: roles, in-sync sets, lag, offsets and sizes."""

from collections import Counter
from collections.abc import Callable, Iterator

from cordwood.cluster.http.metrics.family import Family, Row, gauge, gauges
from cordwood.cluster.http.watched import Watched, lag_records
from cordwood.replication.leader import LeaderView
from cordwood.replication.partition import Partition

ROLES = ("leader", "follower", "offline")


def _roles(watched: Watched) -> Iterator[Row]:
    counts = Counter(map(_role, watched.replicas))
    return (((role,), counts[role]) for role in ROLES)


def _role(replica: Partition) -> str:
    if replica.is_offline:
        return "offline"
    return "leader" if replica.is_leader else "follower"


def _of_leaders(is_counted: Callable[[LeaderView], bool]) -> Callable[[Watched], int]:
    def count(watched: Watched) -> int:
        return sum(partition.view is not None and is_counted(partition.view) for partition in watched.led())

    return count


def _is_under_replicated(view: LeaderView) -> bool:
    return len(view.isr) < len(view.assignment.replicas)


def _uncommitted(watched: Watched) -> int:
    return sum(partition.log.log_end - partition.high_watermark for partition in watched.led())


def _lagging(watched: Watched) -> Iterator[Row]:
    for partition in list(watched.led()):
        for follower in partition.followers():
            lag = lag_records(partition, follower)
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
    gauge(
        "failed_partitions",
        "Replicas on this broker that are offline until it is restarted, because they violated an invariant.",
        lambda watched: sum(replica.is_offline and not replica.directory.is_offline for replica in watched.replicas),
    ),
    gauge(
        "under_replicated_partitions",
        "Partitions led by this broker whose ISR is smaller than their set of replicas.",
        _of_leaders(_is_under_replicated),
    ),
    gauge(
        "under_min_isr_partitions",
        "Partitions led by this broker whose ISR is smaller than min.insync.replicas: they refuse acks=all.",
        _of_leaders(lambda view: not view.has_enough_replicas),
    ),
    gauge(
        "uncommitted_records",
        "Records between the high watermarks and the log ends of the partitions led by this broker.",
        _uncommitted,
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
        "partition_size_bytes", "Size of the replica's segments.", PLACE, _of_each(lambda replica: replica.log.size)
    ),
)
