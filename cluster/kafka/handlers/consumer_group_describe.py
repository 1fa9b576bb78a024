"""ConsumerGroupDescribe (69): the epochs, members and assignments of consumer groups (KIP-848).

Version notes: 1 adds the type of each member.
"""

from collections.abc import Callable, Mapping
from functools import partial
from uuid import UUID

from kio.schema.consumer_group_describe.v1.request import ConsumerGroupDescribeRequest
from kio.schema.consumer_group_describe.v1.response import (
    Assignment,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)
from kio.schema.errors import ErrorCode

from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.groups.consumer.group import ConsumerGroup
from cordwood.cluster.groups.consumer.member import ConsumerMember
from cordwood.cluster.groups.consumer.reconciliation import united
from cordwood.cluster.groups.target_assignment import NO_PARTITIONS, Partitions
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.authorized import NOT_ASKED
from cordwood.cluster.kafka.call import NO_THROTTLE, Call
from cordwood.cluster.kafka.rights import DESCRIBE, GROUP, TOPIC, Right, Rights, refusal_of
from cordwood.cluster.kafka.rows import rows
from cordwood.storage.steps import at_once, distinct

KEY = ApiKey.CONSUMER_GROUP_DESCRIBE
RIGHTS: Rights = (Right(DESCRIBE, GROUP), Right(DESCRIBE, TOPIC, "for all topics that the group reads"))

_CLASSIC, _CONSUMER = 0, 1
"""Types of members."""


async def handle(request: ConsumerGroupDescribeRequest, call: Call) -> ConsumerGroupDescribeResponse:
    asked = await call.turns.run(distinct(request.group_ids))
    has_operations = request.include_authorized_operations
    permitted = {
        group_id: call.operations(GROUP, group_id) if has_operations else NOT_ASKED
        async for group_id in call.turns.each(asked)
        if call.may(DESCRIBE, GROUP, group_id)
    }
    hidden = {group_id async for group_id in call.turns.each(permitted) if await _has_hidden_topics(group_id, call)}
    return ConsumerGroupDescribeResponse(
        throttle_time=NO_THROTTLE, groups=rows(partial(_described, call, permitted, hidden), asked)
    )


async def _has_hidden_topics(group_id: str, call: Call) -> bool:
    """Return whether the group reads a topic that the client may not describe."""
    try:
        names = call.services.groups.consumers.group(group_id).subscribed_topics
    except Refused:
        return False
    async for name in call.turns.each(names):
        if not call.may_see(DESCRIBE, TOPIC, name):
            return True
    return False


def _described(call: Call, permitted: Mapping[str, int], hidden: set[str], group_id: str) -> DescribedGroup:
    try:
        if group_id not in permitted:
            raise refusal_of(GROUP)
        if not group_id:
            raise Refused(ErrorCode.invalid_group_id)
        if group_id in hidden:
            message = "The described group uses topics that the client is not authorized to describe."
            raise Refused(ErrorCode.topic_authorization_failed, message)
        group = call.services.groups.consumers.group(group_id)
    except Refused as refusal:
        return _absent(group_id, refusal)
    return DescribedGroup(
        error_code=ErrorCode.none,
        group_id=group_id,
        group_state=group.state_name,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.assignor,
        members=rows(partial(_member, group, _namer(call)), list(group.members)),
        authorized_operations=permitted[group_id],
    )


def _namer(call: Call) -> Callable[[Partitions], Assignment]:
    """Return a function that names the topics of partitions. A deleted topic is left out."""
    by_id = call.services.quorum.image.topics_by_id

    def named(partitions: Partitions) -> Assignment:
        return Assignment(topic_partitions=rows(topic_row, [item for item in partitions.items() if item[0] in by_id]))

    def topic_row(place: tuple[UUID, frozenset[int]]) -> TopicPartitions:
        topic_id, indexes = place
        return TopicPartitions(topic_id=topic_id, topic_name=by_id[topic_id].name, partitions=tuple(sorted(indexes)))

    return named


def _member(group: ConsumerGroup, named: Callable[[Partitions], Assignment], member: ConsumerMember) -> Member:
    return Member(
        member_id=member.id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=tuple(sorted(member.topics)),
        subscribed_topic_regex=member.regex,
        assignment=named(at_once(united(member.assigned, member.revoking)) if member.revoking else member.assigned),
        target_assignment=named(group.targets.get(member.id, NO_PARTITIONS)),
        member_type=_CONSUMER if member.classic is None else _CLASSIC,
    )


def _absent(group_id: str, refusal: Refused) -> DescribedGroup:
    return DescribedGroup(
        error_code=refusal.code,
        error_message=refusal.message,
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=(),
    )
