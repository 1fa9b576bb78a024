"""OffsetCommit (8): commits a group's offsets. The response is sent once they are on disk.

The retention time of versions 2 to 4 is ignored: `offsets.retention.minutes` applies.

Version notes: 9 adds member epochs, with STALE_MEMBER_EPOCH, and GROUP_ID_NOT_FOUND in place of ILLEGAL_GENERATION
(KIP-848); 10 names topics by id.
"""

from collections.abc import Container
from functools import partial
from itertools import islice
from typing import Any

from kio.schema.errors import ErrorCode
from kio.schema.offset_commit.v9.request import OffsetCommitRequest, OffsetCommitRequestPartition
from kio.schema.offset_commit.v10.response import OffsetCommitResponse, OffsetCommitResponsePartition

from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.groups.coordinator import Codes, Commit, MemberIdentity
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import NO_THROTTLE, Call
from cordwood.cluster.kafka.codec import upgrade_request as upgrade_by_name
from cordwood.cluster.kafka.named_topics import name_in, row_of
from cordwood.cluster.kafka.rights import GROUP, READ, TOPIC, Right, Rights
from cordwood.cluster.kafka.rows import rows
from cordwood.cluster.metadata.image import Image
from cordwood.storage.types import TopicPartition

KEY = ApiKey.OFFSET_COMMIT
RIGHTS: Rights = (Right(READ, GROUP), Right(READ, TOPIC))

AT_ONCE_MAX = 500
"""Maximum number of offsets that are committed as one record batch."""
_FIRST_WITH_EPOCHS = 9
_FIRST_WITH_IDS = 10


def upgrade_request(request: Any, version: int) -> OffsetCommitRequest:
    """Upgrade a request. Before version 10 it names topics, which have no id in it."""
    upgraded: OffsetCommitRequest = upgrade_by_name(KEY, version, _FIRST_WITH_IDS - 1)(request)
    return upgraded


async def handle(request: OffsetCommitRequest, call: Call) -> OffsetCommitResponse:
    image = call.services.quorum.image
    codes: Codes = {}
    is_member = call.may(READ, GROUP, request.group_id)
    names = [name async for topic in call.turns.each(request.topics) if (name := name_in(image, topic)) is not None]
    readable = await call.permitted(READ, TOPIC, names) if is_member else frozenset()
    rest = iter((await _commits_to_known(request, readable, image, call)).items())
    while commits := dict(islice(rest, AT_ONCE_MAX)):
        codes |= await _commit(request, commits, call)

    def partition_row(name: str | None, partition: OffsetCommitRequestPartition) -> OffsetCommitResponsePartition:
        index = partition.partition_index
        code = ErrorCode.unknown_topic_id
        if not is_member:
            code = ErrorCode.group_authorization_failed
        elif name is not None and name not in readable:
            code = ErrorCode.topic_authorization_failed
        elif name is not None:
            code = codes.get(TopicPartition(name, index), ErrorCode.unknown_topic_or_partition)
        return OffsetCommitResponsePartition(partition_index=index, error_code=code)

    def topic_row(topic: Any) -> Any:
        return row_of(topic, rows(partial(partition_row, name_in(image, topic)), topic.partitions))

    return OffsetCommitResponse(throttle_time=NO_THROTTLE, topics=rows(topic_row, request.topics))


async def _commit(request: OffsetCommitRequest, commits: dict[TopicPartition, Commit], call: Call) -> Codes:
    """Commit the offsets of existing partitions. Return an error code for each."""
    member = MemberIdentity(
        request.member_id,
        request.generation_id_or_member_epoch,
        request.group_instance_id,
        knows_epochs=call.version >= _FIRST_WITH_EPOCHS,
    )
    try:
        return await call.services.groups.commit(request.group_id, member, commits)
    except Refused as refusal:
        code = refusal.code
        if code is ErrorCode.group_id_not_found and call.version < _FIRST_WITH_EPOCHS:
            code = ErrorCode.illegal_generation
        return dict.fromkeys(commits, code)


async def _commits_to_known(
    request: OffsetCommitRequest, readable: Container[str], image: Image, call: Call
) -> dict[TopicPartition, Commit]:
    commits: dict[TopicPartition, Commit] = {}
    asked = ((name_in(image, topic), topic.partitions) for topic in request.topics)
    async for name, partition in call.turns.within(asked):
        if name is not None and name in readable and image.has_partition(name, partition.partition_index):
            commits[TopicPartition(name, partition.partition_index)] = Commit(
                partition.committed_offset, partition.committed_leader_epoch, partition.committed_metadata or ""
            )
    return commits
