"""AlterReplicaLogDirs (34): replica moves between the log directories of the broker (KIP-113).

A move continues after the response: DescribeLogDirs shows its copy as a future replica. The replica's current directory
cancels it. A directory for a replica that is not here yet is remembered for when it comes. Below metadata.version 2 a
move is refused with INVALID_REQUEST; the response has no message field, so the broker logs the reason.
"""

from collections import defaultdict
from functools import partial
from posixpath import normpath

import structlog
from kio.schema.alter_replica_log_dirs.v2.request import AlterReplicaLogDirsRequest
from kio.schema.alter_replica_log_dirs.v2.response import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from kio.schema.errors import ErrorCode

from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import NO_THROTTLE, Call, Services
from cordwood.cluster.kafka.rights import ALTER, CLUSTER, Right, Rights
from cordwood.cluster.kafka.rows import rows

KEY = ApiKey.ALTER_REPLICA_LOG_DIRS
RIGHTS: Rights = (Right(ALTER, CLUSTER),)

_events = structlog.get_logger("log_directory")


async def handle(request: AlterReplicaLogDirsRequest, call: Call) -> AlterReplicaLogDirsResponse:
    # If a request names several directories for a replica, the last one counts.
    wanted: dict[str, dict[int, str]] = defaultdict(dict)
    async for path, topic in call.turns.within((directory.path, directory.topics) for directory in request.dirs):
        async for index in call.turns.each(topic.partitions):
            wanted[topic.name][index] = path

    may_move = call.may(ALTER, CLUSTER)

    def topic_row(topic: str) -> AlterReplicaLogDirTopicResult:
        partitions = rows(partial(_moved, call, topic, may_move), wanted[topic].items())
        return AlterReplicaLogDirTopicResult(topic_name=topic, partitions=partitions)

    return AlterReplicaLogDirsResponse(throttle_time=NO_THROTTLE, results=rows(topic_row, wanted))


def _moved(call: Call, topic: str, may_move: bool, wanted: tuple[int, str]) -> AlterReplicaLogDirPartitionResult:
    index, path = wanted
    code = _move(topic, index, path, call.services) if may_move else ErrorCode.cluster_authorization_failed
    return AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code)


def _move(topic: str, index: int, path: str, services: Services) -> ErrorCode:
    replicas = services.replicas
    target = next((known for known in replicas.directories if normpath(known.path) == normpath(path)), None)
    if target is None:
        is_left_out = any(normpath(known.path) == normpath(path) for known in replicas.left_out)
        return ErrorCode.kafka_storage_error if is_left_out else ErrorCode.log_dir_not_found
    partition = replicas.get(topic, index)
    if target.is_offline or (partition is not None and partition.directory.is_offline):
        return ErrorCode.kafka_storage_error
    if partition is None:
        if services.quorum.image.has_partition(topic, index):
            replicas.preferred[topic, index] = target
        return ErrorCode.replica_not_available
    moves = replicas.moves
    if partition.directory is not target and (moves is None or not moves.is_available()):
        _events.warning(
            "replica.not_moved",
            topic=topic,
            partition=index,
            directory=partition.directory.path,
            wanted=target.path,
            reason="the cluster's metadata.version is too low: run `cordwood feature upgrade`",
        )
        return ErrorCode.invalid_request
    if moves is not None:
        moves.move(partition, target)
    return ErrorCode.none
