"""Moves of replicas between the log directories of their brokers, by Kafka's admin requests."""

from typing import TYPE_CHECKING

from cordwood.cluster.cli.exits import ExitCode, Failure

if TYPE_CHECKING:
    from kafka import KafkaAdminClient

_REASONS = {
    "LogDirNotFoundError": "the broker has no such entry in log.dirs",
    "KafkaStorageError": "the log directory is offline",
    "ReplicaNotAvailableError": "the broker has no replica of the partition; one that comes gets this directory",
    "InvalidRequestError": "the cluster's metadata.version is too low: run `cordwood feature upgrade`",
}


def move_replica(admin: "KafkaAdminClient", topic: str, partition: int, broker: int, directory: str) -> None:
    """Ask the broker to move its replica. Raises Failure if it refuses."""
    [error] = admin.alter_replica_log_dirs({(topic, partition, broker): directory}).values()
    if error.errno:
        reason = _REASONS.get(error.__name__, error.__name__)
        raise Failure(f"{topic}-{partition} on broker {broker} was not moved: {reason}.", ExitCode.FAILED)


def is_moving(admin: "KafkaAdminClient", topic: str, partition: int, broker: int) -> bool:
    """Return whether the broker still copies the replica."""
    [answer] = admin.describe_log_dirs(brokers=[broker])
    return any(
        row["is_future_key"]
        for directory in answer["log_dirs"]
        for shown in directory["topics"]
        if shown["name"] == topic
        for row in shown["partitions"]
        if row["partition_index"] == partition
    )
