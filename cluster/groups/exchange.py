"""What members ask of their group, what they are told, and what a group wants done: frozen values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, NewType

from kio.schema.errors import ErrorCode

RequestId = NewType("RequestId", int)
"""Stands for a request that waits for its answer; whoever hands it in knows whose it is."""

NO_MEMBER = ""
NO_GENERATION = -1


class MemberProtocol(NamedTuple):
    """One way to share out the partitions that a member knows, and what it says about itself for that way."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True)
class Join:
    """A JoinGroup request. `member_id` is empty for someone new; the protocols stand in order of preference."""

    member_id: str
    protocol_type: str
    protocols: tuple[MemberProtocol, ...]
    session_timeout_ms: int
    rebalance_timeout_ms: int
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    reason: str = ""
    must_know_id: bool = True
    """A newcomer is sent away with an id first, so that one who vanishes leaves nothing behind (KIP-394)."""
    may_skip_assignment: bool = True
    """The client understands that it leads and has nothing to assign (KIP-814)."""


class JoinedMember(NamedTuple):
    """A member as the leader is told of it."""

    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinReply:
    """The members are told to the leader only."""

    code: ErrorCode
    member_id: str
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = NO_MEMBER
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


@dataclass(frozen=True, slots=True)
class Sync:
    """A SyncGroup request. Only the leader brings assignments, by member id."""

    member_id: str
    generation: int
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol: str | None = None
    assignments: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SyncReply:
    """A member's share."""

    code: ErrorCode
    assignment: bytes = b""
    protocol_type: str | None = None
    protocol: str | None = None


@dataclass(frozen=True, slots=True)
class Leaver:
    """Someone to remove: a member by its id, or a static one by its instance id alone, as administrators do."""

    member_id: str
    instance_id: str | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class SavedMember:
    """A member as it is written down: with its metadata for the protocol that was chosen."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class SavedGroup:
    """A group as it is written down. `since_ms` is by the wall clock; -1 where an old record does not say."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    members: tuple[SavedMember, ...]
    since_ms: int = -1


class Purpose(Enum):
    """Why a group is to be written down, and so what is due once it is."""

    EMPTIED = "its last member has gone"
    ASSIGNED = "its leader has shared out the partitions"
    REPLACED = "a static member has come back under a new id"


@dataclass(frozen=True, slots=True)
class JoinAnswer:
    """Answer the JoinGroup request that `request_id` stands for."""

    request_id: RequestId
    reply: JoinReply


@dataclass(frozen=True, slots=True)
class SyncAnswer:
    """Answer the SyncGroup request that `request_id` stands for."""

    request_id: RequestId
    reply: SyncReply


@dataclass(frozen=True, slots=True)
class Store:
    """Write the group down, then tell it by `Group.stored`."""

    purpose: Purpose
    group: SavedGroup
    answers: tuple[JoinAnswer, ...] = ()
    """For REPLACED: what the returned member is told if nothing has changed by then."""


@dataclass(frozen=True, slots=True)
class Rebalancing:
    """Nothing to do: the group tells why its members have to join anew."""

    reason: str


Effect = JoinAnswer | SyncAnswer | Store | Rebalancing
