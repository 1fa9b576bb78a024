"""What Prometheus is told, read from the live parts of the broker during a scrape."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from cordwood.cluster.damage import DamageRegister
from cordwood.cluster.http.watched import Watched, lag_records, room_of
from cordwood.cluster.metadata.image import NO_LEADER
from cordwood.replication.leader import LeaderView
from cordwood.replication.log_directory import LogDirectory
from cordwood.replication.partition import Partition

Row = tuple[Sequence[str], float]
"""Values of the labels, and the number."""

_OF_A_REPLICA: tuple[tuple[str, str, Callable[[Partition], int]], ...] = (
    ("log_start_offset", "First offset of the replica's log.", lambda replica: replica.log.log_start),
    (
        "high_watermark_offset",
        "End of what is committed, as the replica knows.",
        lambda replica: replica.high_watermark,
    ),
    ("log_end_offset", "End of the replica's log.", lambda replica: replica.log.log_end),
    ("size_bytes", "Bytes of the replica's segments.", lambda replica: replica.log.size),
)


def registry_of(watched: Watched) -> CollectorRegistry:
    """Everything that `/metrics` has, the process's own memory and processor time included."""
    registry = CollectorRegistry()
    registry.register(BrokerMetrics(watched))
    ProcessCollector(registry=registry)
    return registry


class BrokerMetrics(Collector):
    """The broker's own. What has a row for every replica is made last, and only as it is asked for."""

    def __init__(self, watched: Watched) -> None:
        self._watched = watched

    def collect(self) -> Iterator[Metric]:
        watched = self._watched
        replicas = list(watched.replicas)
        yield from [
            *_of_the_cluster(watched),
            *_of_roles(replicas),
            *_of_the_leader(list(watched.led())),
            *_of_the_disks(watched.replicas.directories),
            *_of_damage(watched.damage),
        ]
        yield from _of_every_replica(replicas)


def _of_the_cluster(watched: Watched) -> Iterator[Metric]:
    quorum = watched.quorum
    image, status = quorum.image, quorum.status()
    partitions = [partition for topic in image.topics_by_id.values() for partition in topic.partitions]
    yield _gauge("broker_is_ready", "1 if clients are well served here.", watched.why_not_ready() is None)
    yield _gauge("broker_is_controller", "1 if this broker is the active controller.", quorum.is_leader)
    yield _gauge("connections", "Open connections by Kafka's protocol.", watched.connection_count())
    yield _gauge(
        "fenced_brokers",
        "Registered brokers that may not lead, as this broker knows the cluster.",
        sum(broker.is_fenced for broker in image.brokers.values()),
    )
    yield _gauge(
        "offline_partitions",
        "Partitions of the cluster without a leader, as this broker knows it.",
        sum(partition.leader == NO_LEADER for partition in partitions),
    )
    yield _gauge("raft_term", "Term of the metadata quorum.", status.term)
    yield _gauge("raft_commit_index", "Metadata up to this log index is final.", status.commit_index)
    leader_id = -1 if status.leader_id is None else status.leader_id
    yield _gauge("raft_leader_id", "Broker that leads the metadata quorum; -1 for none.", leader_id)


def _of_roles(replicas: Sequence[Partition]) -> Iterator[Metric]:
    counts = Counter(map(_role, replicas))
    rows = (((role,), counts[role]) for role in ("leader", "follower", "offline"))
    yield _gauges("partitions", "Replicas on this broker; offline are those on a failed disk.", ("role",), rows)


def _role(replica: Partition) -> str:
    if replica.is_offline:
        return "offline"
    return "leader" if replica.is_leader else "follower"


def _of_the_leader(led: Sequence[Partition]) -> Iterator[Metric]:
    views = [partition.view for partition in led if partition.view is not None]
    yield _gauge(
        "under_replicated_partitions",
        "Partitions led here with fewer replicas in sync than they have.",
        sum(map(_is_under_replicated, views)),
    )
    yield _gauge(
        "under_min_isr_partitions",
        "Partitions led here that take no acks=all for want of replicas in sync.",
        sum(not view.has_enough_replicas for view in views),
    )
    yield _gauges(
        "replica_lag_records",
        "What a follower has not on its disk of a log led here. Only followers that lag or are not in sync.",
        ("topic", "partition", "broker"),
        _lagging(led),
    )


def _is_under_replicated(view: LeaderView) -> bool:
    return len(view.isr) < len(view.assignment.replicas)


def _lagging(led: Iterable[Partition]) -> Iterator[Row]:
    for partition in led:
        for follower in partition.followers():
            lag = lag_records(partition, follower)
            if lag or not follower.is_in_sync:
                yield (partition.topic, str(partition.index), str(follower.broker_id)), lag


def _of_the_disks(directories: Sequence[LogDirectory]) -> Iterator[Metric]:
    rooms = [((directory.path,), room) for directory in directories if (room := room_of(directory)) is not None]
    yield _gauges(
        "log_directory_offline",
        "1 if the log directory's disk has failed.",
        ("directory",),
        (((directory.path,), directory.is_offline) for directory in directories),
    )
    yield _gauges(
        "log_directory_free_bytes",
        "Room left on the log directory's file system.",
        ("directory",),
        ((labels, room.free_bytes) for labels, room in rooms),
    )
    yield _gauges(
        "log_directory_total_bytes",
        "Size of the log directory's file system.",
        ("directory",),
        ((labels, room.total_bytes) for labels, room in rooms),
    )


def _of_damage(damage: DamageRegister) -> Iterator[Metric]:
    found, repaired = "Places that were found damaged on the disks.", "Damaged places that were repaired."
    yield CounterMetricFamily("cordwood_damaged_places_found", found, damage.found)
    yield CounterMetricFamily("cordwood_damaged_places_repaired", repaired, damage.repaired)
    yield _gauge("damaged_places", "Places that are damaged, and not repaired yet.", damage.under_repair)


def _of_every_replica(replicas: Sequence[Partition]) -> Iterator[Metric]:
    places = [(replica.topic, str(replica.index)) for replica in replicas]
    numbers = [[read(replica) for replica in replicas] for _, _, read in _OF_A_REPLICA]
    for (name, meaning, _), column in zip(_OF_A_REPLICA, numbers, strict=True):
        yield _gauges(f"partition_{name}", meaning, ("topic", "partition"), zip(places, column, strict=True))


def _gauge(name: str, meaning: str, value: float) -> Metric:
    return GaugeMetricFamily(f"cordwood_{name}", meaning, value)


def _gauges(name: str, meaning: str, labels: Sequence[str], rows: Iterable[Row]) -> Metric:
    family = GaugeMetricFamily(f"cordwood_{name}", meaning, labels=labels)
    for values, number in rows:
        family.add_metric(values, number)
    return family
