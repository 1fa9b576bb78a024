"""OffsetCommit: where a group goes on reading. Answered once it is on disk.

The retention time that versions 2 to 4 could ask for is not kept: `offsets.retention.minutes` holds for all.
"""

from kio.schema.errors import ErrorCode
from kio.schema.offset_commit.v9.request import OffsetCommitRequest
from kio.schema.offset_commit.v9.response import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

from cordwood.cluster.groups.coordinator import Codes, Commit, MemberIdentity, TopicPartition
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import NO_THROTTLE, Call, Refused

KEY, VERSIONS = ApiKey.OFFSET_COMMIT, range(2, 10)

_FIRST_WITH_NOT_FOUND = 9


async def handle(request: OffsetCommitRequest, call: Call) -> OffsetCommitResponse:
    codes = await _commit(request, call)
    return OffsetCommitResponse(
        throttle_time=NO_THROTTLE,
        topics=tuple(
            OffsetCommitResponseTopic(
                name=topic.name,
                partitions=tuple(
                    OffsetCommitResponsePartition(
                        partition_index=partition.partition_index,
                        error_code=codes.get(
                            (topic.name, partition.partition_index), ErrorCode.unknown_topic_or_partition
                        ),
                    )
                    for partition in topic.partitions
                ),
            )
            for topic in request.topics
        ),
    )


async def _commit(request: OffsetCommitRequest, call: Call) -> Codes:
    """A code for each partition that exists."""
    commits = _commits_to_known(request, call)
    if not commits:
        return {}
    member = MemberIdentity(request.member_id, request.generation_id_or_member_epoch, request.group_instance_id)
    try:
        return await call.services.groups.commit(request.group_id, member, commits)
    except Refused as refusal:
        code = refusal.code
        if code is ErrorCode.group_id_not_found and call.version < _FIRST_WITH_NOT_FOUND:
            code = ErrorCode.illegal_generation
        return dict.fromkeys(commits, code)


def _commits_to_known(request: OffsetCommitRequest, call: Call) -> dict[TopicPartition, Commit]:
    image = call.services.quorum.image
    commits: dict[TopicPartition, Commit] = {}
    for topic in request.topics:
        known = image.topics_by_name.get(topic.name)
        partition_count = 0 if known is None else len(known.partitions)
        for partition in topic.partitions:
            if 0 <= partition.partition_index < partition_count:
                commits[topic.name, partition.partition_index] = Commit(
                    partition.committed_offset, partition.committed_leader_epoch, partition.committed_metadata or ""
                )
    return commits
