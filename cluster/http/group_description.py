"""Descriptions of groups of all types, for the HTTP API: members, epochs, assignments, states of share groups."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kio.schema.consumer_group_describe.v1.request import ConsumerGroupDescribeRequest
from kio.schema.consumer_protocol_assignment.v0.data import ConsumerProtocolAssignment
from kio.schema.describe_groups.v6.request import DescribeGroupsRequest
from kio.schema.describe_share_group_offsets.v1.request import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from kio.schema.errors import ErrorCode
from kio.schema.share_group_describe.v1.request import ShareGroupDescribeRequest

from cordwood.client.queue_messages import DescribedSharePartition, DescribeSharePartitionsRequest
from cordwood.cluster.groups.any_group import GroupKind
from cordwood.cluster.groups.subscription import CONSUMER
from cordwood.cluster.http.context import Context
from cordwood.cluster.http.refusal import check
from cordwood.cluster.kafka.cluster_client import Unanswered
from cordwood.cluster.kafka.message_reader import reading
from cordwood.cluster.kafka.wire import ITEMS_MAX, Malformed
from cordwood.cluster.metadata.leaders import leader_of
from cordwood.storage.steps import Steps
from cordwood.storage.types import TopicPartition

VERSION_BYTES = 2
"""The version field before an assignment of a classic member."""
NO_SUCH_GROUP = frozenset({ErrorCode.group_id_not_found, ErrorCode.unsupported_version})

Owners = dict[TopicPartition, list[str]]


@dataclass(slots=True)
class FoundGroup:
    """A group as its coordinator describes it."""

    kind: GroupKind
    state: str
    protocol_type: str
    protocol: str
    members: tuple[Any, ...]
    """As in the response."""
    group_epoch: int | None = None
    assignment_epoch: int | None = None
    owners: Owners = field(default_factory=dict)
    """The members that read each partition now: one, but for share groups."""
    targets: Owners = field(default_factory=dict)
    """The members that each partition is to have, in a group of the consumer protocol."""


class ShareState(NamedTuple):
    """A share group's state in a partition. Unknown values are None."""

    start_offset: int | None
    lag: int | None


async def find_group(group_id: str, coordinator: int, context: Context) -> tuple[FoundGroup, ErrorCode, str | None]:
    """Describe a group, whatever type it has.

    Return the group with the error of its coordinator, if there is no such group.
    """
    for kind, request in (
        (GroupKind.CONSUMER, ConsumerGroupDescribeRequest(group_ids=(group_id,), include_authorized_operations=False)),
        (GroupKind.SHARE, ShareGroupDescribeRequest(group_ids=(group_id,), include_authorized_operations=False)),
    ):
        try:
            (described,) = (await context.cluster.ask(coordinator, request)).groups
        except Unanswered:
            # A broker of version 0.2 has no groups of these types.
            continue
        if described.error_code not in NO_SUCH_GROUP:
            check(described.error_code, described.error_message)
            return await _with_epochs(described, kind, context), ErrorCode.none, None
    classic = DescribeGroupsRequest(groups=(group_id,), include_authorized_operations=False)
    (described,) = (await context.cluster.ask(coordinator, classic)).groups
    return await _classic(described, context), described.error_code, described.error_message


async def share_states(group_id: str, coordinator: int, context: Context) -> dict[TopicPartition, ShareState]:
    """Return the start offset and lag of each partition that a share group has state for. Raises HttpRefusal."""
    wanted = DescribeShareGroupOffsetsRequestGroup(group_id=group_id, topics=None)
    (found,) = (await context.cluster.ask(coordinator, DescribeShareGroupOffsetsRequest(groups=(wanted,)))).groups
    check(found.error_code, found.error_message)
    rows = context.turns.within((topic.topic_name, topic.partitions) for topic in found.topics)
    return {
        TopicPartition(name, row.partition_index): ShareState(_known(row.start_offset), _known(row.lag))
        async for name, row in rows
        if row.error_code is ErrorCode.none
    }


async def records_in_flight(
    group_id: str, places: Iterable[TopicPartition], context: Context
) -> dict[TopicPartition, DescribedSharePartition]:
    """Return the states of a share group at the leaders of its partitions.

    A leader that does not answer is left out.
    """
    leaders = {
        leader async for place in context.turns.each(places) if (leader := leader_of(place, context.image)) is not None
    }
    answers = await context.cluster.ask_all(leaders, lambda _: DescribeSharePartitionsRequest(group_id=group_id))
    good = (answer for answer in answers.values() if answer is not None and answer.error_code is ErrorCode.none)
    rows = context.turns.within((None, answer.partitions) for answer in good)
    return {TopicPartition(row.topic_name, row.partition_index): row async for _, row in rows}


async def _with_epochs(described: Any, kind: GroupKind, context: Context) -> FoundGroup:
    found = FoundGroup(
        kind,
        described.group_state,
        CONSUMER if kind is GroupKind.CONSUMER else kind.value,
        described.assignor_name,
        described.members,
        described.group_epoch,
        described.assignment_epoch,
    )
    for member in described.members:
        await _assign(found.owners, member.member_id, _places(member.assignment), context)
        if kind is GroupKind.CONSUMER:
            await _assign(found.targets, member.member_id, _places(member.target_assignment), context)
    return found


async def _classic(described: Any, context: Context) -> FoundGroup:
    found = FoundGroup(
        GroupKind.CLASSIC,
        described.group_state,
        described.protocol_type,
        described.protocol_data,
        described.members,
    )
    # Assignments of other protocols cannot be decoded.
    if described.protocol_type == CONSUMER:
        for member in described.members:
            await _assign(found.owners, member.member_id, _decoded(member.member_assignment), context)
    return found


async def _assign(owners: Owners, member_id: str, assigned: Steps[list[TopicPartition]], context: Context) -> None:
    for place in await context.turns.run(assigned):
        owners.setdefault(place, []).append(member_id)


def _places(assignment: Any) -> Steps[list[TopicPartition]]:
    places = []
    for topic in assignment.topic_partitions:
        for index in topic.partitions:
            places.append(TopicPartition(str(topic.topic_name), int(index)))
            yield
    return places


def _decoded(assignment: bytes) -> Steps[list[TopicPartition]]:
    """Decode an assignment: every version begins like version 0. Malformed bytes count as an empty assignment."""
    content = memoryview(assignment)
    try:
        read = yield from reading(ConsumerProtocolAssignment, content, VERSION_BYTES, ITEMS_MAX)
    except Malformed:
        return []
    places = []
    for topic in read.assigned_partitions:
        for index in topic.partitions:
            places.append(TopicPartition(str(topic.topic), int(index)))
            yield
    return places


def only(owners: Mapping[TopicPartition, list[str]], place: TopicPartition) -> str | None:
    """Return the member of a partition; None if it has none."""
    members = owners.get(place)
    return members[0] if members else None


def _known(number: int) -> int | None:
    return None if number < 0 else int(number)
