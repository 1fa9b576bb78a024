"""DescribeLogDirs (35): the log directories of the broker, replica sizes and lag, and free space (KIP-113, KIP-827)."""

from collections import defaultdict

from kio.schema.describe_log_dirs.v4 import DescribeLogDirsRequest, DescribeLogDirsResponse
from kio.schema.describe_log_dirs.v4.response import (
    DescribeLogDirsPartition,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from kio.schema.errors import ErrorCode

from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import NO_THROTTLE, Call
from cordwood.cluster.kafka.named_partitions import by_topic
from cordwood.cluster.kafka.rights import CLUSTER, DESCRIBE, Right, Rights
from cordwood.cluster.kafka.rows import rows
from cordwood.replication.log_directory import LogDirectory
from cordwood.replication.partition import Partition
from cordwood.replication.replica_moves import DirectoryMove

KEY = ApiKey.DESCRIBE_LOG_DIRS
RIGHTS: Rights = (Right(DESCRIBE, CLUSTER),)


async def handle(request: DescribeLogDirsRequest, call: Call) -> DescribeLogDirsResponse:
    if not call.may(DESCRIBE, CLUSTER):
        refused = ErrorCode.cluster_authorization_failed
        return DescribeLogDirsResponse(throttle_time=NO_THROTTLE, error_code=refused, results=())
    wanted = None
    if request.topics is not None:
        wanted = await call.turns.run(by_topic((topic.topic, topic.partitions) for topic in request.topics))
    held: dict[LogDirectory, dict[str, list[Partition]]] = defaultdict(lambda: defaultdict(list))
    async for partition in call.turns.each(list(call.services.replicas)):
        if wanted is None or partition.index in wanted.get(partition.topic, ()):
            held[partition.directory][partition.topic].append(partition)
    directories = call.services.replicas.directories
    futures: dict[LogDirectory, dict[str, list[DirectoryMove]]] = defaultdict(lambda: defaultdict(list))
    async for move in call.turns.each(list(call.services.replicas.moves or ())):
        if wanted is None or move.partition.index in wanted.get(move.partition.topic, ()):
            futures[move.target][move.partition.topic].append(move)
    results = (
        *(_directory(directory, held[directory], futures[directory]) for directory in directories),
        *(_failed(left_out.path) for left_out in call.services.replicas.left_out),
    )
    return DescribeLogDirsResponse(throttle_time=NO_THROTTLE, error_code=ErrorCode.none, results=results)


def _failed(path: str) -> DescribeLogDirsResult:
    return DescribeLogDirsResult(error_code=ErrorCode.kafka_storage_error, log_dir=path, topics=())


def _directory(
    directory: LogDirectory, held: dict[str, list[Partition]], futures: dict[str, list[DirectoryMove]]
) -> DescribeLogDirsResult:
    if directory.is_offline:
        return _failed(directory.path)
    return DescribeLogDirsResult(
        error_code=ErrorCode.none,
        log_dir=directory.path,
        topics=rows(_topic, [(topic, held.get(topic, []), futures.get(topic, [])) for topic in {**held, **futures}]),
        total_bytes=directory.disk.total_bytes(directory.path),
        usable_bytes=directory.disk.free_bytes(directory.path),
    )


def _topic(held: tuple[str, list[Partition], list[DirectoryMove]]) -> DescribeLogDirsTopic:
    topic, partitions, futures = held
    replicas: list[Partition | DirectoryMove] = [*partitions, *futures]
    return DescribeLogDirsTopic(name=topic, partitions=rows(_row, replicas))


def _row(held: Partition | DirectoryMove) -> DescribeLogDirsPartition:
    return _future(held) if isinstance(held, DirectoryMove) else _partition(held)


def _future(move: DirectoryMove) -> DescribeLogDirsPartition:
    return DescribeLogDirsPartition(
        partition_index=move.partition.index,
        partition_size=move.copy.size,
        offset_lag=max(move.partition.log.log_end - move.copy.log_end, 0),
        is_future_key=True,
    )


def _partition(partition: Partition) -> DescribeLogDirsPartition:
    return DescribeLogDirsPartition(
        partition_index=partition.index,
        partition_size=partition.log.size,
        # The committed records that a follower lacks.
        offset_lag=0 if partition.following is None else partition.following.lag_records,
        is_future_key=False,
    )
