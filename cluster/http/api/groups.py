"""Groups of all types over HTTP: members, lag, deletion and offset reset."""

from collections import Counter, defaultdict
from collections.abc import Mapping
from operator import attrgetter
from typing import Annotated, Any

import msgspec
from kio.schema.alter_share_group_offsets.v0.request import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from kio.schema.delete_groups.v2.request import DeleteGroupsRequest
from kio.schema.errors import ErrorCode
from kio.schema.find_coordinator.v4.request import FindCoordinatorRequest
from kio.schema.list_groups.v5.request import ListGroupsRequest
from kio.schema.offset_commit.v9.request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kio.schema.offset_fetch.v9.request import OffsetFetchRequest, OffsetFetchRequestGroup

from cordwood.cluster.config.group_configs import GroupConfigs
from cordwood.cluster.groups.any_group import GroupKind
from cordwood.cluster.groups.exchange import NO_GENERATION, NO_MEMBER
from cordwood.cluster.http import offsets
from cordwood.cluster.http.api.topics import Items
from cordwood.cluster.http.context import Context
from cordwood.cluster.http.group_description import (
    FoundGroup,
    ShareState,
    find_group,
    only,
    records_in_flight,
    share_states,
)
from cordwood.cluster.http.refusal import HttpRefusal, check
from cordwood.cluster.http.route import ApiRequest, Nothing, Route
from cordwood.cluster.http.security.rights import DELETE_GROUP, DESCRIBE_GROUP, DESCRIBE_TOPIC, READ_GROUP, READ_TOPIC
from cordwood.cluster.kafka.handlers.find_coordinator import GROUP
from cordwood.cluster.metadata.leaders import Offsets, exists
from cordwood.cluster.operations import positions
from cordwood.cluster.proposals.topics import CONSUMER_OFFSETS
from cordwood.storage.steps import in_order
from cordwood.storage.types import TopicPartition


class ListedGroup(msgspec.Struct, frozen=True):
    """A group, as its coordinator lists it."""

    group: str
    type: str
    """classic, consumer or share."""
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
    epoch: int | None = None
    """Null in a classic group."""
    topics: list[str] | None = None
    """The topics to which it subscribes; null in a classic group."""
    regex: str | None = None
    """The regular expression to which it subscribes."""
    partition_count: int = 0
    """The partitions that it reads now."""
    target_count: int | None = None
    """The partitions that it is to have; known in a group of the consumer protocol."""


class GroupSharePartition(msgspec.Struct, frozen=True):
    """A share group's records in a partition. Unknown values are null."""

    start: int | None
    """All records before it are finished."""
    in_flight: int | None
    """Records that were delivered and are not finished."""
    locked: int | None
    """Records that are locked for members now."""
    delivery_count_max: int | None
    """The highest number of deliveries of a record in flight."""
    members: list[str]


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
    target_member_id: str | None = None
    """The member that is to have it; known in a group of the consumer protocol."""
    share: GroupSharePartition | None = None
    """Only of a share group, which commits no offsets. Its lag counts the records that are not finished."""


class GroupDescription(msgspec.Struct, frozen=True):
    """A group with its members and its lag."""

    group: str
    type: str
    """classic, consumer or share."""
    state: str
    protocol_type: str
    protocol: str
    """The assignor."""
    coordinator: int
    group_epoch: int | None
    """Null for a classic group."""
    assignment_epoch: int | None
    """The group epoch of the newest assignment."""
    lag_records: int | None
    """The sum over the partitions whose lag is known; null if it is known of none."""
    dead_letter_topic: str | None
    """Where records go that a share group rejects, or delivers too often."""
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
        ListedGroup(str(row.group_id), row.group_type.lower(), row.group_state, row.protocol_type, broker_id)
        async for broker_id, row in context.turns.within(found.items())
    ]
    ordered = await context.turns.run(in_order(rows, key=attrgetter("group")))
    return Groups(ordered, sorted(answers.keys() - found.keys()))


async def describe_group(asked: ApiRequest[Nothing, Nothing]) -> GroupDescription:
    """Describe a group with its members and the lag of each partition."""
    context, group_id = asked.context, asked.path["group"]
    coordinator = await _coordinator(group_id, context)
    found, code, message = await find_group(group_id, coordinator, context)
    if found.kind is GroupKind.SHARE:
        rows = await _share_rows(group_id, coordinator, found, context)
    else:
        committed = await _committed(group_id, coordinator, context)
        if code is not ErrorCode.group_id_not_found or not committed:
            check(code, message)
        rows = await _rows(committed, found, context)
    lags = [row.lag_records for row in rows if row.lag_records is not None]
    return GroupDescription(
        group=group_id,
        type=found.kind.value,
        state=found.state,
        protocol_type=found.protocol_type,
        protocol=found.protocol,
        coordinator=coordinator,
        group_epoch=found.group_epoch,
        assignment_epoch=found.assignment_epoch,
        lag_records=sum(lags) if lags else None,
        dead_letter_topic=_dead_letter_topic(group_id, found, context),
        members=await _members(found, context),
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
    """Reset the committed offsets of a group, or the start offsets of a share group. The group must have no members."""
    context, group_id, wanted = asked.context, asked.path["group"], asked.body
    try:
        position = positions.parse(wanted.to)
    except positions.NoPosition as mistake:
        raise HttpRefusal(422, f"`to` is {wanted.to!r}, which is {mistake}") from None
    coordinator = await _coordinator(group_id, context, may_be_new=wanted.topics is not None)
    found, _, _ = await find_group(group_id, coordinator, context)
    is_share = found.kind is GroupKind.SHARE
    if is_share:
        states = await share_states(group_id, coordinator, context)
        committed = {place: state.start_offset for place, state in states.items() if state.start_offset is not None}
    else:
        committed = await _committed(group_id, coordinator, context)
    places = await _places(wanted, committed, context)
    new = await offsets.resolve(context, position, places)
    if not wanted.dry_run:
        await (_alter if is_share else _commit)(group_id, coordinator, new, context)
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


async def _alter(group_id: str, coordinator: int, new: Offsets, context: Context) -> None:
    """Set the start offsets of a share group, which must have no members. Raises HttpRefusal."""
    by_topic: defaultdict[str, list[AlterShareGroupOffsetsRequestPartition]] = defaultdict(list)
    async for place, offset in context.turns.each(new.items()):
        row = AlterShareGroupOffsetsRequestPartition(partition_index=place.partition, start_offset=offset)
        by_topic[place.topic].append(row)
    request = AlterShareGroupOffsetsRequest(
        group_id=group_id,
        topics=tuple(
            AlterShareGroupOffsetsRequestTopic(topic_name=name, partitions=tuple(rows))
            for name, rows in by_topic.items()
        ),
    )
    answer = await context.cluster.ask(coordinator, request)
    check(answer.error_code, answer.error_message)
    async for _, row in context.turns.within((topic, topic.partitions) for topic in answer.responses):
        check(row.error_code, row.error_message)


def _dead_letter_topic(group_id: str, found: FoundGroup, context: Context) -> str | None:
    if found.kind is not GroupKind.SHARE:
        return None
    return GroupConfigs(context.settings, lambda: context.image)(group_id).share.dead_letter_topic or None


async def _members(found: FoundGroup, context: Context) -> list[MemberDescription]:
    counts = Counter([member async for _, member in context.turns.within(found.owners.items())])
    targets = Counter([member async for _, member in context.turns.within(found.targets.items())])
    return [_member(member, found.kind, counts, targets) async for member in context.turns.each(found.members)]


def _member(member: Any, kind: GroupKind, counts: Mapping[str, int], targets: Mapping[str, int]) -> MemberDescription:
    member_id, host = str(member.member_id), member.client_host.removeprefix("/")
    count = counts.get(member_id, 0)
    if kind is GroupKind.CLASSIC:
        return MemberDescription(member_id, member.group_instance_id, member.client_id, host, partition_count=count)
    return MemberDescription(
        member_id,
        getattr(member, "instance_id", None),
        member.client_id,
        host,
        int(member.member_epoch),
        list(map(str, member.subscribed_topic_names or ())),
        getattr(member, "subscribed_topic_regex", None) or None,
        count,
        targets.get(member_id, 0) if kind is GroupKind.CONSUMER else None,
    )


async def _rows(committed: Offsets, found: FoundGroup, context: Context) -> list[GroupPartition]:
    places = sorted(committed.keys() | found.owners.keys() | found.targets.keys())
    ends = await offsets.high_watermarks(context, places)
    return [_row(place, committed, ends, found) async for place in context.turns.each(places)]


def _row(place: TopicPartition, committed: Offsets, ends: Offsets, found: FoundGroup) -> GroupPartition:
    done, end = committed.get(place), ends.get(place)
    lag = None if done is None or end is None else max(end - done, 0)
    owner, target = only(found.owners, place), only(found.targets, place)
    return GroupPartition(place.topic, place.partition, done, end, lag, owner, target)


async def _share_rows(group_id: str, coordinator: int, found: FoundGroup, context: Context) -> list[GroupPartition]:
    states = await share_states(group_id, coordinator, context)
    places = sorted(states.keys() | found.owners.keys())
    flights = await records_in_flight(group_id, places, context)
    ends = await offsets.high_watermarks(context, places)
    rows = []
    async for place in context.turns.each(places):
        state, flight = states.get(place, ShareState(None, None)), flights.get(place)
        share = GroupSharePartition(
            state.start_offset,
            None if flight is None else int(flight.in_flight),
            None if flight is None else int(flight.acquired),
            None if flight is None else int(flight.delivery_count_max),
            found.owners.get(place, []),
        )
        rows.append(GroupPartition(place.topic, place.partition, None, ends.get(place), state.lag, None, share=share))
    return rows


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
