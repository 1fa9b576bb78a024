"""Requests and replies of share groups: frozen values, and the checks of a request that need no group."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from cordwood.cluster.groups.heartbeat import JOIN_EPOCH, LEAVE_EPOCH, check, check_names

MEMBER_ID_CHARS_MAX = 36
"""Member ids are UUIDs, which the clients make."""
SharePartitionId = tuple[UUID, int]
"""Topic id and index of a partition."""


@dataclass(frozen=True, slots=True)
class ShareHeartbeat:
    """A ShareGroupHeartbeat request. None stands for what has not changed since the last one."""

    member_id: str
    member_epoch: int
    topics: frozenset[str] | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""


class StateStart(NamedTuple):
    """Where the share state of a partition begins. -1 stands for share.auto.offset.reset, at the first fetch."""

    state_epoch: int
    start_offset: int = -1


@dataclass(frozen=True, slots=True)
class Initialize:
    """The effect of initializing the share states of partitions; `ShareGroup.initialized` is called after it."""

    partitions: Mapping[SharePartitionId, StateStart]


@dataclass(frozen=True, slots=True)
class Discard:
    """The effect of deleting the share states of topics; `ShareGroup.discarded` is called after it."""

    partitions: tuple[SharePartitionId, ...]
    topic_ids: frozenset[UUID]


def check_heartbeat(group_id: str, request: ShareHeartbeat) -> None:
    """Check a request. Raises Refused for one that no group accepts."""
    check(bool(group_id.strip()), "GroupId can't be empty.")
    check(bool(request.member_id.strip()), "MemberId can't be empty.")
    check(len(request.member_id) <= MEMBER_ID_CHARS_MAX, f"MemberId is longer than {MEMBER_ID_CHARS_MAX} characters.")
    check(request.rack_id is None or bool(request.rack_id.strip()), "RackId can't be empty.")
    check(request.member_epoch >= LEAVE_EPOCH, "MemberEpoch is invalid.")
    if request.member_epoch == JOIN_EPOCH:
        check(bool(request.topics), "SubscribedTopicNames must be set in first request.")
    check_names(request.topics or ())
    check_names((request.rack_id or "", request.client_id))
