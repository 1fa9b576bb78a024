"""ShareGroupDescribe (77): the state, the members and the assignments of share groups (KIP-932)."""

from collections.abc import Mapping
from functools import partial
from uuid import UUID

from kio.schema.errors import ErrorCode
from kio.schema.share_group_describe.v1.request import ShareGroupDescribeRequest
from kio.schema.share_group_describe.v1.response import (
    Assignment,
    DescribedGroup,
    Member,
    ShareGroupDescribeResponse,
    TopicPartitions,
)

from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.groups.share import assignor
from cordwood.cluster.groups.share.group import ShareGroup
from cordwood.cluster.groups.share.member import ShareMember
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.authorized import NOT_ASKED
from cordwood.cluster.kafka.call import NO_THROTTLE, Call
from cordwood.cluster.kafka.rights import DESCRIBE, GROUP, TOPIC, Right, Rights, refusal_of
from cordwood.cluster.kafka.rows import rows
from cordwood.storage.steps import distinct

KEY = ApiKey.SHARE_GROUP_DESCRIBE
RIGHTS: Rights = (Right(DESCRIBE, GROUP), Right(DESCRIBE, TOPIC, "for the topics that the members read"))


async def handle(request: ShareGroupDescribeRequest, call: Call) -> ShareGroupDescribeResponse:
    asked = await call.turns.run(distinct(request.group_ids))
    found: dict[str, ShareGroup | Refused] = {}
    async for group_id in call.turns.each(asked):
        try:
            call.require(DESCRIBE, GROUP, group_id)
            if not group_id:
                raise Refused(ErrorCode.invalid_group_id)
            found[group_id] = await _described(group_id, call)
        except Refused as refusal:
            found[group_id] = refusal
    operations = {
        group_id: call.operations(GROUP, group_id) if request.include_authorized_operations else NOT_ASKED
        for group_id in asked
    }
    return ShareGroupDescribeResponse(
        throttle_time=NO_THROTTLE, groups=rows(partial(_row, call, found, operations), asked)
    )


async def _described(group_id: str, call: Call) -> ShareGroup:
    """Return a group of which the client may describe all topics. Raises Refused."""
    group = call.services.groups.shares.group(group_id)
    names = group.subscribed_topics
    if len(await call.permitted(DESCRIBE, TOPIC, names)) < len(names):
        raise refusal_of(TOPIC)
    return group


def _row(
    call: Call, found: Mapping[str, ShareGroup | Refused], operations: Mapping[str, int], group_id: str
) -> DescribedGroup:
    group = found[group_id]
    if isinstance(group, Refused):
        return DescribedGroup(
            error_code=group.code,
            error_message=group.message,
            group_id=group_id,
            group_state="",
            group_epoch=0,
            assignment_epoch=0,
            assignor_name="",
            members=(),
            authorized_operations=NOT_ASKED,
        )
    return DescribedGroup(
        error_code=ErrorCode.none,
        error_message=None,
        group_id=group_id,
        group_state=group.state_name,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=assignor.NAME,
        members=rows(partial(_member, call), list(group.members)),
        authorized_operations=operations[group_id],
    )


def _member(call: Call, member: ShareMember) -> Member:
    image = call.services.quorum.image
    by_id = image.topics_by_id

    def topic_row(place: tuple[UUID, frozenset[int]]) -> TopicPartitions:
        topic_id, indexes = place
        return TopicPartitions(topic_id=topic_id, topic_name=by_id[topic_id].name, partitions=tuple(sorted(indexes)))

    return Member(
        member_id=member.id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=tuple(sorted(member.topics)),
        assignment=Assignment(
            topic_partitions=rows(topic_row, [item for item in member.assigned.items() if item[0] in by_id])
        ),
    )
