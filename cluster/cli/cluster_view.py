"""A cluster's state, collected by a client with kafka-python."""

import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from cordwood.cluster.cli.admin import PATIENCE_S, answer_of
from cordwood.cluster.cli.client import why_unreachable
from cordwood.cluster.operations.view import (
    BrokerInfo,
    ClusterView,
    LogDirectoryInfo,
    PartitionInfo,
    QuorumInfo,
    ReplicaInfo,
)
from cordwood.storage.types import NO_LEADER

if TYPE_CHECKING:
    from kafka import KafkaAdminClient

NO_ERROR = 0
ONE_BROKER_S = 5.0
"""Time for a request to one particular broker, so that a hung one, or none, does not use up the whole time."""
MIN_ISR = "min.insync.replicas"


def view_of(admin: "KafkaAdminClient") -> ClusterView:
    """Return the cluster's state. Raises KafkaError. A broker that does not report its log directories is no error."""
    deadline_s = time.monotonic() + PATIENCE_S
    described = answer_of(admin.describe_cluster, deadline_s)
    alive = [broker for broker in described["brokers"] if not broker.get("is_fenced")]
    held = {broker["broker_id"]: _log_directories(admin, broker, deadline_s) for broker in alive}
    topics = answer_of(admin.describe_topics, deadline_s)
    return ClusterView(
        described["cluster_id"],
        tuple(_broker(row, held) for row in sorted(described["brokers"], key=lambda row: int(row["broker_id"]))),
        _quorum(answer_of(admin.describe_metadata_quorum, deadline_s)),
        tuple(
            _partitions(topics, _replicas_held(held), _min_isr(admin, topics, deadline_s), _removing(admin, deadline_s))
        ),
    )


def _log_directories(
    admin: "KafkaAdminClient", broker: Mapping[str, Any], deadline_s: float
) -> list[dict[str, Any]] | None:
    """Return a broker's log directories; None if the broker is unreachable, hangs or refuses."""
    from kafka.errors import KafkaError

    if why_unreachable((broker["host"], broker["port"])) is not None:
        return None
    deadline_s = min(deadline_s, time.monotonic() + ONE_BROKER_S)
    try:
        [answer] = answer_of(lambda: admin.describe_log_dirs(brokers=[broker["broker_id"]]), deadline_s)
    except KafkaError:
        return None
    directories: list[dict[str, Any]] = answer["log_dirs"]
    return directories


def _broker(row: dict[str, Any], held: Mapping[int, list[dict[str, Any]] | None]) -> BrokerInfo:
    directories = held.get(row["broker_id"])
    return BrokerInfo(
        row["broker_id"],
        f"{row['host']}:{row['port']}",
        row["rack"],
        not row.get("is_fenced", False),
        None if directories is None else tuple(map(_log_directory, directories)),
    )


def _log_directory(row: dict[str, Any]) -> LogDirectoryInfo:
    from kafka.errors import for_code

    error = None if row["error_code"] == NO_ERROR else for_code(row["error_code"]).__name__
    return LogDirectoryInfo(row["log_dir"], error, _known(row.get("usable_bytes")), _known(row.get("total_bytes")))


def _known(size: int | None) -> int | None:
    return None if size is None or size < 0 else size


def _quorum(described: dict[str, Any]) -> QuorumInfo:
    partition = described["topics"][0]["partitions"][0]
    voters, observers = partition["current_voters"], partition["observers"]
    return QuorumInfo(
        None if partition["leader_id"] == NO_LEADER else partition["leader_id"],
        partition["leader_epoch"],
        tuple(sorted(voter["replica_id"] for voter in voters)),
        {row["replica_id"]: row["log_end_offset"] for row in [*voters, *observers] if row["log_end_offset"] >= 0},
    )


def _replicas_held(held: Mapping[int, list[dict[str, Any]] | None]) -> dict[tuple[int, str, int], dict[str, Any]]:
    """Return the brokers' reports of their replicas, by broker, topic and partition."""
    return {
        (broker_id, topic["name"], partition["partition_index"]): partition
        for broker_id, directories in held.items()
        for directory in directories or ()
        for topic in directory["topics"]
        for partition in topic["partitions"]
        # The copy of a replica that moves is a replica that is not there yet.
        if not partition["is_future_key"]
    }


def _min_isr(admin: "KafkaAdminClient", topics: list[dict[str, Any]], deadline_s: float) -> dict[str, int]:
    from kafka.admin import ConfigResource

    if not topics:
        return {}
    names = [topic["name"] for topic in topics]
    wanted = [ConfigResource("TOPIC", name, [MIN_ISR]) for name in names]
    configs = answer_of(lambda: admin.describe_configs(wanted, config_filter="all"), deadline_s)["topic"]
    return {name: int(configs[name][MIN_ISR]["value"]) for name in names if MIN_ISR in configs.get(name, {})}


def _removing(admin: "KafkaAdminClient", deadline_s: float) -> dict[tuple[str, int], int]:
    """Return the number of replicas that reassignments remove, by topic and partition.

    Without a controller nothing is known of reassignments, and nothing moves.
    """
    from kafka.errors import KafkaError

    deadline_s = min(deadline_s, time.monotonic() + ONE_BROKER_S)
    try:
        moves = answer_of(admin.list_partition_reassignments, deadline_s)
    except KafkaError:
        return {}
    return {(where.topic, where.partition): len(move["removing_replicas"]) for where, move in moves.items()}


def _partitions(
    topics: list[dict[str, Any]],
    held: Mapping[tuple[int, str, int], dict[str, Any]],
    min_isr: Mapping[str, int],
    removing: Mapping[tuple[str, int], int],
) -> Iterable[PartitionInfo]:
    for topic in sorted(topics, key=lambda topic: str(topic["name"])):
        name = topic["name"]
        for row in sorted(topic["partitions"], key=lambda row: int(row["partition_index"])):
            index = row["partition_index"]
            replicas = tuple(
                _replica(broker_id, row, held.get((broker_id, name, index))) for broker_id in row["replica_nodes"]
            )
            leader = None if row["leader_id"] == NO_LEADER else row["leader_id"]
            # As in the broker: a topic of one replica needs no second one.
            size = min(min_isr.get(name, 1), len(replicas))
            yield PartitionInfo(name, index, leader, replicas, size, removing.get((name, index), 0))


def _replica(broker_id: int, partition: dict[str, Any], held: dict[str, Any] | None) -> ReplicaInfo:
    return ReplicaInfo(
        broker_id,
        broker_id in partition["isr_nodes"],
        broker_id in partition["offline_replicas"],
        None if held is None else held["partition_size"],
        None if held is None else held["offset_lag"],
    )
