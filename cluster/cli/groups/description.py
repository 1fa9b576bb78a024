"""Descriptions of groups of all types: their members, epochs and assignments."""

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from kio.schema.consumer_group_describe.v1.request import ConsumerGroupDescribeRequest
from kio.schema.consumer_protocol_assignment.v0.data import ConsumerProtocolAssignment
from kio.schema.describe_groups.v6.request import DescribeGroupsRequest
from kio.schema.errors import ErrorCode
from kio.schema.share_group_describe.v1.request import ShareGroupDescribeRequest
from kio.serial import entity_reader
from kio.serial.errors import SerialError

from cordwood.cluster.cli.exits import Failure
from cordwood.cluster.cli.groups.client import Coordinator, GroupRequests, check
from cordwood.storage.types import TopicPartition

CONSUMER_GROUP_DESCRIBE, SHARE_GROUP_DESCRIBE = 69, 77
VERSION_BYTES = 2
"""The version field before the assignment of a classic member."""
UNKNOWN_GROUPS = frozenset({ErrorCode.group_id_not_found, ErrorCode.unsupported_version})
DEAD = "Dead"


class GroupType(Enum):
    """The type of a group, as ListGroups names it."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"


@dataclass(frozen=True, slots=True)
class DescribedMember:
    """A member of a group. A classic member has no epoch, and its assignment is all that it has."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assigned: tuple[TopicPartition, ...]
    target: tuple[TopicPartition, ...] | None = None
    epoch: int | None = None
    topics: tuple[str, ...] | None = None
    regex: str | None = None


@dataclass(frozen=True, slots=True)
class Description:
    """A group. Classic groups have no epochs."""

    group: str
    type: GroupType
    state: str
    assignor: str
    coordinator: Coordinator
    members: tuple[DescribedMember, ...] = ()
    group_epoch: int | None = None
    assignment_epoch: int | None = None
    owners: dict[TopicPartition, list[str]] = field(default_factory=dict)
    """The members that read each partition now: one, but for share groups."""
    targets: dict[TopicPartition, list[str]] = field(default_factory=dict)
    """The members that each partition is to have."""


def describe(client: GroupRequests, group: str) -> Description | None:
    """Describe a group, whatever type it has; None if there is no such group. Raises Failure."""
    where = client.coordinator(group)
    if client.supports(group, CONSUMER_GROUP_DESCRIBE):
        request = ConsumerGroupDescribeRequest(group_ids=(group,), include_authorized_operations=False)
        found = _ask(client, group, request)
        if found is not None:
            return _with_epochs(found, GroupType.CONSUMER, found.assignor_name, where)
    if client.supports(group, SHARE_GROUP_DESCRIBE):
        found = _ask(client, group, ShareGroupDescribeRequest(group_ids=(group,), include_authorized_operations=False))
        if found is not None:
            return _with_epochs(found, GroupType.SHARE, found.assignor_name, where)
    found = _ask(client, group, DescribeGroupsRequest(groups=(group,), include_authorized_operations=False))
    return None if found is None or found.group_state == DEAD else _classic(found, where)


def no_such_group(group: str) -> Failure:
    """Return the failure for a missing group."""
    return Failure(f"there is no group {group!r}. List the groups with `cordwood group list`.")


def state_text(state: str) -> str:
    """Return the state of a group in lower case, with an underscore between words."""
    words = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in state).lstrip("_")
    # The names that this command has had from the start.
    return words.replace("_rebalance", "_rebalancing")


def _ask(client: GroupRequests, group: str, request: Any) -> Any:
    """Return the described group; None if there is no group of the type that the request is for."""
    response = client.ask(group, request, lambda answer: answer.groups[0].error_code)
    (found,) = response.groups
    if found.error_code in UNKNOWN_GROUPS:
        return None
    check(found.error_code, found.error_message)
    return found


def _with_epochs(found: Any, type_: GroupType, assignor: str, where: Coordinator) -> Description:
    has_target = type_ is GroupType.CONSUMER
    members = tuple(
        DescribedMember(
            member.member_id,
            getattr(member, "instance_id", None),
            member.client_id,
            member.client_host.removeprefix("/"),
            _places(member.assignment),
            _places(member.target_assignment) if has_target else None,
            member.member_epoch,
            tuple(member.subscribed_topic_names or ()),
            getattr(member, "subscribed_topic_regex", None) or None,
        )
        for member in found.members
    )
    return Description(
        found.group_id,
        type_,
        state_text(found.group_state),
        assignor,
        where,
        members,
        found.group_epoch,
        found.assignment_epoch,
        _by_place((member.member_id, member.assigned) for member in members),
        _by_place((member.member_id, member.target or ()) for member in members),
    )


def _classic(found: Any, where: Coordinator) -> Description:
    members = tuple(
        DescribedMember(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host.removeprefix("/"),
            _decoded(member.member_assignment) if found.protocol_type == "consumer" else (),
        )
        for member in found.members
    )
    owners = _by_place((member.member_id, member.assigned) for member in members)
    state = state_text(found.group_state)
    return Description(found.group_id, GroupType.CLASSIC, state, found.protocol_data, where, members, owners=owners)


def _places(assignment: Any) -> tuple[TopicPartition, ...]:
    return tuple(
        TopicPartition(str(topic.topic_name), int(index))
        for topic in assignment.topic_partitions
        for index in topic.partitions
    )


def _decoded(assignment: bytes) -> tuple[TopicPartition, ...]:
    """Decode a classic member's assignment: every version begins like version 0. Other bytes count as none."""
    if len(assignment) <= VERSION_BYTES:
        return ()
    try:
        decoded, _ = entity_reader(ConsumerProtocolAssignment)(memoryview(assignment), VERSION_BYTES)
    except (SerialError, ValueError, struct.error, IndexError):
        # Members may write any bytes.
        return ()
    return tuple(
        TopicPartition(str(topic.topic), int(index))
        for topic in decoded.assigned_partitions
        for index in topic.partitions
    )


def _by_place(rows: Iterable[tuple[str, Iterable[TopicPartition]]]) -> dict[TopicPartition, list[str]]:
    found: dict[TopicPartition, list[str]] = {}
    for member_id, places in rows:
        for place in places:
            found.setdefault(place, []).append(member_id)
    return found
