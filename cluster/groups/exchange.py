"""Requests, replies and effects of the group state machine: frozen values.

Those of which a rebalance makes one for each member are named tuples, which cost a third of dataclasses.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, NewType

from kio.schema.errors import ErrorCode

from cordwood.cluster.coordination.shard import Content
from cordwood.cluster.groups.heartbeat import HeartbeatReply
from cordwood.cluster.groups.share.exchange import Discard, Initialize
from cordwood.storage.steps import Steps

if TYPE_CHECKING:
    from cordwood.cluster.groups.any_group import AnyGroup

RequestId = NewType("RequestId", int)
"""Id of a waiting request. The caller knows which request the id stands for."""

NO_MEMBER = ""
NO_GENERATION = -1


class MemberProtocol(NamedTuple):
    """One assignment protocol that a member supports, and the member's metadata for it."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True)
class Join:
    """A JoinGroup request. `member_id` is empty for a new member; protocols are in order of preference."""

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
    """Whether a new member gets its id in an error first, so that a vanished client leaves no member (KIP-394)."""
    may_skip_assignment: bool = True
    """Whether the client can be the leader and skip the assignment (KIP-814)."""


class JoinedMember(NamedTuple):
    """A member as the leader gets it."""

    member_id: str
    instance_id: str | None
    metadata: bytes


class JoinReply(NamedTuple):
    """A JoinGroup reply. Only the leader gets the members."""

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
    """A SyncGroup request. Only the leader sends assignments, by member id."""

    member_id: str
    generation: int
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol: str | None = None
    assignments: Mapping[str, bytes] = field(default_factory=dict)


class SyncReply(NamedTuple):
    """A SyncGroup reply: the member's assignment."""

    code: ErrorCode
    assignment: bytes = b""
    protocol_type: str | None = None
    protocol: str | None = None


@dataclass(frozen=True, slots=True)
class Leaver:
    """A member to remove: by its id, or a static one by its instance id alone, as administrators do."""

    member_id: str
    instance_id: str | None = None
    reason: str = ""


class SavedMember(NamedTuple):
    """A member in a GroupMetadata record, with its metadata for the chosen protocol."""

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
    """A GroupMetadata record. `since_ms` is wall-clock time; -1 if an old record has none."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    members: tuple[SavedMember, ...]
    since_ms: int = -1


class Purpose(Enum):
    """The reason to write a GroupMetadata record, and so the next step after the write."""

    EMPTIED = "the last member left"
    ASSIGNED = "the group leader assigned the partitions"
    REPLACED = "a static member rejoined with a new member id"


class JoinAnswer(NamedTuple):
    """The effect of a reply to JoinGroup request `request_id`."""

    request_id: RequestId
    reply: JoinReply


class SyncAnswer(NamedTuple):
    """The effect of a reply to SyncGroup request `request_id`."""

    request_id: RequestId
    reply: SyncReply


@dataclass(frozen=True, slots=True)
class Store:
    """The effect of a write of the group's record; `ClassicGroup.stored` is called after it."""

    purpose: Purpose
    group: SavedGroup
    answers: tuple[JoinAnswer, ...] = ()
    """For REPLACED: the reply to the returned member if nothing has changed by then."""


@dataclass(frozen=True, slots=True)
class Rebalancing:
    """The effect of a rebalance: a log line with its reason."""

    reason: str


@dataclass(frozen=True, slots=True)
class HeartbeatAnswer:
    """The effect of a reply to ConsumerGroupHeartbeat or ShareGroupHeartbeat."""

    request_id: RequestId
    reply: HeartbeatReply


AnyAnswer = JoinAnswer | SyncAnswer | HeartbeatAnswer


@dataclass(frozen=True, slots=True)
class AppendRecords:
    """The effect of appending records, and of replies once these and all earlier ones of the group are committed.

    Without records, the replies wait for the group's earlier records alone: a reply never shows what another
    coordinator would not know. If the append fails, the requests are refused and `AnyGroup.not_appended` is called.
    """

    contents: tuple[Content, ...] = ()
    answers: tuple[AnyAnswer, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Compute:
    """The effect of a computation in time slices beside the requests; `AnyGroup.computed` is called with its result.

    The group may have changed by then.
    """

    steps: Callable[[], Steps[object]]
    is_large: bool = True
    """Whether it takes more than a millisecond. A small one is done before the next effect."""


@dataclass(frozen=True, slots=True, eq=False)
class Become:
    """The result of a conversion: a group of another kind, `successor`, with the same id.

    `contents` delete the records of the former group. `saved` is the record of a classic successor, if it has one,
    which is written before them: from then on a new coordinator has the classic group.
    """

    successor: "AnyGroup"
    contents: tuple[Content, ...]
    saved: SavedGroup | None = None
    answers: tuple[AnyAnswer, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Convert:
    """The effect of a conversion to another kind in time slices beside the requests of other groups.

    Requests that change this group wait until the conversion has ended, and so do deadlines and results of
    computations.
    """

    steps: Callable[[], Steps[Become]]
    answers: tuple[AnyAnswer, ...] = ()
    """The replies once the conversion is written, besides those of its result."""
    is_large: bool = True


Effect = (
    JoinAnswer
    | SyncAnswer
    | Store
    | Rebalancing
    | HeartbeatAnswer
    | AppendRecords
    | Compute
    | Convert
    | Initialize
    | Discard
)
