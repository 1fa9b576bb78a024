"""The load of a cluster, collected by a client: the input of a balance."""

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from cordwood.cluster.balance.load import BrokerLoad, ClusterLoad, PartitionLoad
from cordwood.cluster.cli.admin import PATIENCE_S, answer_of
from cordwood.cluster.cli.cluster_view import view_of
from cordwood.cluster.metadata.cordons import ALL_DIRECTORIES, CORDONED
from cordwood.cluster.operations.view import BrokerInfo, ClusterView, PartitionInfo

if TYPE_CHECKING:
    from kafka import KafkaAdminClient

ROOM_KEPT = 0.05
"""The share of a disk that a plan leaves free."""

Sizes = Mapping[tuple[str, int], int]
"""The bytes of each partition's largest replica."""


def load_of(admin: "KafkaAdminClient", traffic_s: float = 0.0) -> ClusterLoad:
    """Return the cluster's load. Raises KafkaError.

    Traffic is the growth of the partitions within `traffic_s`; 0 leaves it out. A leader sends the bytes that it gets
    to its followers, and to one reader.
    """
    view = view_of(admin)
    moving = answer_of(admin.list_partition_reassignments, time.monotonic() + PATIENCE_S)
    removed = {(where.topic, where.partition): set(move["removing_replicas"]) for where, move in moving.items()}
    cordons = cordons_of(admin, view)
    growth = _growth(admin, view, traffic_s) if traffic_s else {}
    return ClusterLoad(
        tuple(_broker(broker, cordons) for broker in view.brokers),
        tuple(_partition(partition, removed, growth) for partition in view.partitions),
    )


def cordons_of(admin: "KafkaAdminClient", view: ClusterView) -> dict[int, frozenset[str]]:
    """Return the cordoned log directories by broker; `*` stands for all. Raises KafkaError."""
    from kafka.admin import ConfigResource

    found = {}
    for broker in view.brokers:
        resource = ConfigResource("BROKER", str(broker.broker_id), [CORDONED])
        if not broker.is_alive:
            # A broker describes its own configs only; those of one that is down are of no use to a plan.
            found[broker.broker_id] = frozenset[str]()
            continue
        deadline_s = time.monotonic() + PATIENCE_S

        def ask(resource: ConfigResource = resource) -> dict[str, dict[str, dict[str, dict[str, str]]]]:
            described: dict[str, dict[str, dict[str, dict[str, str]]]] = admin.describe_configs(
                [resource], config_filter="all"
            )
            return described

        configs = answer_of(ask, deadline_s)["broker"]
        text = configs[str(broker.broker_id)].get(CORDONED, {}).get("value") or ""
        found[broker.broker_id] = frozenset(word.strip() for word in text.split(",") if word.strip())
    return found


def is_cordoned(broker: BrokerInfo, cordons: Mapping[int, frozenset[str]]) -> bool:
    """Return whether all log directories of a broker are cordoned."""
    cordoned, directories = cordons.get(broker.broker_id, frozenset()), broker.log_directories
    if ALL_DIRECTORIES in cordoned:
        return True
    return bool(directories and all(directory.path in cordoned for directory in directories))


def _broker(broker: BrokerInfo, cordons: Mapping[int, frozenset[str]]) -> BrokerLoad:
    return BrokerLoad(broker.broker_id, broker.rack, broker.is_alive, is_cordoned(broker, cordons), _room(broker))


def _room(broker: BrokerInfo) -> int | None:
    rooms = [
        max(int(directory.usable_bytes - ROOM_KEPT * directory.total_bytes), 0)
        for directory in broker.log_directories or ()
        if directory.error is None and directory.usable_bytes is not None and directory.total_bytes is not None
    ]
    return sum(rooms) if rooms else None


def _partition(
    partition: PartitionInfo, removed: Mapping[tuple[str, int], set[int]], growth: Mapping[tuple[str, int], float]
) -> PartitionLoad:
    place = (partition.topic, partition.index)
    leaving, ids = removed.get(place), tuple(replica.broker_id for replica in partition.replicas)
    written = growth.get(place, 0.0)
    return PartitionLoad(
        partition.topic,
        partition.index,
        tuple(broker for broker in ids if broker not in (leaving or ())),
        partition.leader,
        _size(partition),
        written,
        written * len(ids),
        is_moving=leaving is not None,
    )


def _size(partition: PartitionInfo) -> int:
    return max((replica.size_bytes or 0 for replica in partition.replicas), default=0)


def _growth(admin: "KafkaAdminClient", view: ClusterView, traffic_s: float) -> dict[tuple[str, int], float]:
    began_s = time.monotonic()
    time.sleep(traffic_s)
    sizes = _sizes_now(admin)
    passed_s = time.monotonic() - began_s
    before = {(partition.topic, partition.index): _size(partition) for partition in view.partitions}
    return {place: max(sizes[place] - size, 0) / passed_s for place, size in before.items() if size and place in sizes}


def _sizes_now(admin: "KafkaAdminClient") -> Sizes:
    sizes: dict[tuple[str, int], int] = {}
    for broker in answer_of(admin.describe_log_dirs, time.monotonic() + PATIENCE_S):
        for directory in broker["log_dirs"]:
            for topic in directory["topics"]:
                for row in topic["partitions"]:
                    place = (topic["name"], row["partition_index"])
                    sizes[place] = max(sizes.get(place, 0), row["partition_size"])
    return sizes
