"""Consumer groups over HTTP: members, lag, deletion and offset reset."""

from collections import defaultdict
from collections.abc import Mapping
from operator import attrgetter
from typing import Annotated, Any

import msgspec
from kio.schema.consumer_protocol_assignment.v0.data import ConsumerProtocolAssignment
from kio.schema.delete_groups.v2.request import DeleteGroupsRequest
from kio.schema.describe_groups.v6.request import DescribeGroupsRequest
from kio.schema.errors import ErrorCode
from kio.schema.find_coordinator.v4.request import FindCoordinatorRequest
from kio.schema.list_groups.v5.request import ListGroupsRequest
from kio.schema.offset_commit.v9.request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kio.schema.offset_fetch.v9.request import OffsetFetchRequest, OffsetFetchRequestGroup

from cordwood.cluster.groups.subscription import CONSUMER
from cordwood.cluster.http import offsets
from cordwood.cluster.http.api.topics import Items
from cordwood.cluster.http.context import Context
from cordwood.cluster.http.places import Offsets, exists
from cordwood.cluster.http.refusal import HttpRefusal, check
from cordwood.cluster.http.route import ApiRequest, Nothing, Route
from cordwood.cluster.http.security.rights import DELETE_GROUP, DESCRIBE_GROUP, DESCRIBE_TOPIC, READ_GROUP, READ_TOPIC
from cordwood.cluster.kafka.handlers.find_coordinator import GROUP
from cordwood.cluster.kafka.message_reader import reading
from cordwood.cluster.kafka.wire import ITEMS_MAX, Malformed
from cordwood.cluster.operations import positions
from cordwood.cluster.proposals.topics import CONSUMER_OFFSETS
from cordwood.cluster.resources.turns import Steps
from cordwood.storage.types import TopicPartition

NO_MEMBER, NO_GENERATION = "", -1
VERSION_BYTES = 2
"""The version field before an assignment."""


class ListedGroup(msgspec.Struct, frozen=True):
    """A group, as its coordinator lists it."""

    group: str
    state: str
    protocol_type: str
    coordinator: int


class Groups(msgspec.Struct, frozen=True):
    """All groups by name, except those of brokers that did not respond."""

    groups: list[ListedGroup]
    unanswered_by: list[int]


class MemberDescription(msgspec.Struct, frozen=True):
    """A member of a group."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str


class GroupPartition(msgspec.Struct, frozen=True):
    """A group's committed offset in a partition. Unknown or absent values are null."""

    topic: str
    partition: int
    committed: int | None
    """The committed offset: the next one to read."""
    end: int | None
    lag_records: int | None
    member_id: str | None
    """The member that reads the partition now."""


class GroupDescription(msgspec.Struct, frozen=True):
    """A group with its members and its lag."""

    group: str
    state: str
    protocol_type: str
    protocol: str
    coordinator: int
    lag_records: int | None
    """The sum over the partitions whose lag is known; null if it is known of none."""
    members: list[MemberDescription]
    partitions: list[GroupPartition]


class DeletedGroup(msgspec.Struct, frozen=True):
    """The deleted group."""

    group: str


class Reset(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The position to which a group's committed offsets are reset."""

    to: str
    """earliest, latest, an offset, a time (2026-07-30T12:00:00Z) or milliseconds since 1970 (@1785412800000)."""
    topics: Annotated[list[str], Items] | None = None
    """Only these topics; otherwise all that the group has committed offsets for."""
    dry_run: bool = False
    """Return the offsets that would be committed, and change nothing."""


class ResetPartition(msgspec.Struct, frozen=True):
    """A group's committed offset in a partition before and after a reset."""

    topic: str
    partition: int
    committed: int | None
    new: int


class ResetGroup(msgspec.Struct, frozen=True):
    """The offsets that were reset, or would be."""

    group: str
    is_done: bool
    partitions: list[ResetPartition]


async def list_groups(asked: ApiRequest[Nothing, Nothing]) -> Groups:
    """List the groups of all brokers."""
    context = asked.context
    alive = [int(broker.id) for broker in context.image.brokers.values() if not broker.is_fenced]
    answers = await context.cluster.ask_all(alive, lambda _: ListGroupsRequest(states_filter=(), types_filter=()))
    found = {
        broker_id: answer.groups
        for broker_id, answer in answers.items()
        if answer is not None and answer.error_code is ErrorCode.none
    }
    rows = [
        ListedGroup(str(row.group_id), row.group_state, row.protocol_type, broker_id)
        async for broker_id, row in context.turns.within(found.items())
    ]
    return Groups(sorted(rows, key=attrgetter("group")), sorted(answers.keys() - found.keys()))


async def describe_group(asked: ApiRequest[Nothing, Nothing]) -> GroupDescription:
    """Describe a group with its members and the lag of each partition."""
    context, group_id = asked.context, asked.path["group"]
    coordinator = await _coordinator(group_id, context)
    request = DescribeGroupsRequest(groups=(group_id,), include_authorized_operations=False)
    (described,) = (await context.cluster.ask(coordinator, request)).groups
    committed = await _committed(group_id, coordinator, context)
    if described.error_code is not ErrorCode.group_id_not_found or not committed:
        check(described.error_code, described.error_message)
    owners = await _owners(described, context)
    places = sorted(committed.keys() | owners.keys())
    ends = await offsets.committed_ends(context, places)
    rows = [_row(place, committed, ends, owners) async for place in context.turns.each(places)]
    lags = [row.lag_records for row in rows if row.lag_records is not None]
    return GroupDescription(
        group=group_id,
        state=described.group_state,
        protocol_type=described.protocol_type,
        protocol=described.protocol_data,
        coordinator=coordinator,
        lag_records=sum(lags) if lags else None,
        members=[
            MemberDescription(
                member.member_id, member.group_instance_id, member.client_id, member.client_host.removeprefix("/")
            )
            for member in described.members
        ],
        partitions=rows,
    )


async def delete_group(asked: ApiRequest[Nothing, Nothing]) -> DeletedGroup:
    """Delete a group without members, with its committed offsets."""
    group_id = asked.path["group"]
    coordinator = await _coordinator(group_id, asked.context)
    (result,) = (await asked.context.cluster.ask(coordinator, DeleteGroupsRequest(groups_names=(group_id,)))).results
    check(result.error_code)
    return DeletedGroup(group_id)


async def reset_group(asked: ApiRequest[Nothing, Reset]) -> ResetGroup:
    """Reset the committed offsets of a group. The group must have no members."""
    context, group_id, wanted = asked.context, asked.path["group"], asked.body
    try:
        position = positions.parse(wanted.to)
    except positions.NoPosition as mistake:
        raise HttpRefusal(422, f"`to` is {wanted.to!r}, which is {mistake}") from None
    coordinator = await _coordinator(group_id, context, may_be_new=wanted.topics is not None)
    committed = await _committed(group_id, coordinator, context)
    places = await _places(wanted, committed, context)
    new = await offsets.resolve(context, position, places)
    if not wanted.dry_run:
        await _commit(group_id, coordinator, new, context)
    rows = [
        ResetPartition(place.topic, place.partition, committed.get(place), new[place])
        async for place in context.turns.each(places)
    ]
    return ResetGroup(group_id, not wanted.dry_run, rows)


async def _places(wanted: Reset, committed: Offsets, context: Context) -> list[TopicPartition]:
    """Return the partitions to reset. Raises HttpRefusal if there are none."""
    if wanted.topics is not None:
        topics = [context.topic(name, READ_TOPIC) for name in dict.fromkeys(wanted.topics)]
        counts = ((topic.name, range(len(topic.partitions))) for topic in topics)
        places = [TopicPartition(*place) async for place in context.turns.within(counts)]
    else:
        # Topics may have been deleted after the group committed.
        image = context.image
        places = [place async for place in context.turns.each(sorted(committed)) if exists(place, image)]
    if not places:
        raise HttpRefusal(422, "The group has no committed offsets: name the `topics` to reset.")
    return places


async def _coordinator(group_id: str, context: Context, *, may_be_new: bool = False) -> int:
    """Return the group's coordinator. Raises HttpRefusal. A lookup does not create the offsets topic."""
    if CONSUMER_OFFSETS not in context.image.topics_by_name and not may_be_new:
        raise HttpRefusal(404, f"There is no group {group_id!r}.", ErrorCode.group_id_not_found)
    request = FindCoordinatorRequest(key_type=GROUP, coordinator_keys=(group_id,))
    (found,) = (await context.cluster.ask(None, request)).coordinators
    check(found.error_code, found.error_message)
    return int(found.node_id)


async def _committed(group_id: str, coordinator: int, context: Context) -> Offsets:
    """Return the group's committed offsets. Raises HttpRefusal."""
    group = OffsetFetchRequestGroup(group_id=group_id, topics=None)
    (answer,) = (await context.cluster.ask(coordinator, OffsetFetchRequest(groups=(group,)))).groups
    if answer.error_code is not ErrorCode.group_id_not_found:
        check(answer.error_code)
    rows = context.turns.within((topic.name, topic.partitions) for topic in answer.topics)
    return {
        TopicPartition(name, row.partition_index): row.committed_offset
        async for name, row in rows
        if row.committed_offset >= 0
    }


async def _commit(group_id: str, coordinator: int, new: Offsets, context: Context) -> None:
    """Commit offsets without a member id, which a group accepts only while it has no members. Raises HttpRefusal."""
    by_topic: defaultdict[str, list[OffsetCommitRequestPartition]] = defaultdict(list)
    async for place, offset in context.turns.each(new.items()):
        row = OffsetCommitRequestPartition(
            partition_index=place.partition, committed_offset=offset, committed_metadata=None
        )
        by_topic[place.topic].append(row)
    request = OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=NO_GENERATION,
        member_id=NO_MEMBER,
        topics=tuple(OffsetCommitRequestTopic(name=name, partitions=tuple(rows)) for name, rows in by_topic.items()),
    )
    topics = (await context.cluster.ask(coordinator, request)).topics
    async for _, row in context.turns.within((topic, topic.partitions) for topic in topics):
        check(row.error_code)


async def _owners(described: Any, context: Context) -> dict[TopicPartition, str]:
    """Return the member that reads each partition. Assignments of other protocols cannot be decoded."""
    if described.protocol_type != CONSUMER:
        return {}
    return {
        place: str(member.member_id)
        for member in described.members
        for place in await context.turns.run(_assigned(member.member_assignment))
    }


def _assigned(assignment: bytes) -> Steps[list[TopicPartition]]:
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


def _row(
    place: TopicPartition, committed: Offsets, ends: Offsets, owners: Mapping[TopicPartition, str]
) -> GroupPartition:
    done, end = committed.get(place), ends.get(place)
    lag = None if done is None or end is None else max(end - done, 0)
    return GroupPartition(place.topic, place.partition, done, end, lag, owners.get(place))


_ONE_GROUP = "/v1/groups/{group}"

ROUTES = (
    Route(
        "GET", "/v1/groups", list_groups, Nothing, Nothing, Groups, requires=(), each=(DESCRIBE_GROUP,), refusals=(503,)
    ),
    Route(
        "GET",
        _ONE_GROUP,
        describe_group,
        Nothing,
        Nothing,
        GroupDescription,
        requires=(DESCRIBE_GROUP,),
        each=(DESCRIBE_TOPIC,),
        refusals=(404, 503),
    ),
    Route(
        "DELETE",
        _ONE_GROUP,
        delete_group,
        Nothing,
        Nothing,
        DeletedGroup,
        requires=(DELETE_GROUP,),
        refusals=(404, 409, 503),
    ),
    Route(
        "POST",
        f"{_ONE_GROUP}/reset",
        reset_group,
        Nothing,
        Reset,
        ResetGroup,
        requires=(READ_GROUP,),
        each=(READ_TOPIC,),
        refusals=(404, 409, 503),
    ),
)
