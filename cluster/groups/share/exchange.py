"""Requests and replies of share groups: frozen values, and the checks of a request that need no group."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from kio.schema.errors import ErrorCode

from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.groups.share.member import JOIN_EPOCH, LEAVE_EPOCH, PartitionsById

MEMBER_ID_CHARS_MAX = 36
"""Member ids are UUIDs, which the clients make."""
NAME_BYTES_MAX = 32_000
"""Largest length of a name that fits the records."""

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


@dataclass(frozen=True, slots=True)
class ShareReply:
    """The reply to a ShareGroupHeartbeat. The assignment is None while the member knows it."""

    code: ErrorCode
    message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: PartitionsById | None = None


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
    """The effect of deleting the share states of deleted topics; `ShareGroup.discarded` is called after it."""

    partitions: tuple[SharePartitionId, ...]
    topic_ids: frozenset[UUID]


def check_heartbeat(group_id: str, request: ShareHeartbeat) -> None:
    """Check a request. Raises Refused for one that no group accepts."""
    _check(bool(group_id.strip()), "GroupId can't be empty.")
    _check(bool(request.member_id.strip()), "MemberId can't be empty.")
    _check(len(request.member_id) <= MEMBER_ID_CHARS_MAX, f"MemberId is longer than {MEMBER_ID_CHARS_MAX} characters.")
    _check(request.rack_id is None or bool(request.rack_id.strip()), "RackId can't be empty.")
    _check(request.member_epoch >= LEAVE_EPOCH, "MemberEpoch is invalid.")
    if request.member_epoch == JOIN_EPOCH:
        _check(bool(request.topics), "SubscribedTopicNames must be set in first request.")
    for name in (*(request.topics or ()), request.rack_id or "", request.client_id):
        _check(len(name.encode()) <= NAME_BYTES_MAX, f"A name is longer than {NAME_BYTES_MAX} bytes.")


def _check(is_so: bool, message: str) -> None:
    if not is_so:
        raise Refused(ErrorCode.invalid_request, message)
