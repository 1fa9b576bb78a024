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
        "Replicas on this broker; offline are those on a failed disk, and those that have failed themselves.",
        ("role",),
        _roles,
    ),
    gauge(
        "failed_partitions",
        "Replicas on this broker that serve nothing until it is restarted, since an invariant of theirs was broken.",
        lambda watched: sum(replica.is_offline and not replica.directory.is_offline for replica in watched.replicas),
    ),
    gauge(
        "under_replicated_partitions",
        "Partitions led here with fewer replicas in sync than they have.",
        _of_leaders(_is_under_replicated),
    ),
    gauge(
        "under_min_isr_partitions",
        "Partitions led here that take no acks=all for want of replicas in sync.",
        _of_leaders(lambda view: not view.has_enough_replicas),
    ),
    gauge("uncommitted_records", "Records between the watermarks and the ends of the logs led here.", _uncommitted),
    gauges(
        "replica_lag_records",
        "What a follower has not on its disk of a log led here. Only followers that lag or are not in sync.",
        ("topic", "partition", "broker"),
        _lagging,
    ),
    # In this order: a high watermark that is read before the log end is never above it.
    gauges(
        "partition_log_start_offset",
        "First offset of the replica's log.",
        PLACE,
        _of_each(lambda replica: replica.log.log_start),
    ),
    gauges(
        "partition_high_watermark_offset",
        "End of what is committed, as the replica knows.",
        PLACE,
        _of_each(lambda replica: replica.high_watermark),
    ),
    gauges(
        "partition_log_end_offset", "End of the replica's log.", PLACE, _of_each(lambda replica: replica.log.log_end)
    ),
    gauges(
        "partition_size_bytes", "Bytes of the replica's segments.", PLACE, _of_each(lambda replica: replica.log.size)
    ),
)
