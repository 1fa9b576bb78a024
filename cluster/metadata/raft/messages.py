"""The messages between voters and observers: frozen values, packed as msgpack, and validated when received."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from enum import IntEnum
from types import UnionType
from typing import Any, ClassVar, get_args, get_type_hints
from uuid import UUID

from cordwood.cluster.metadata.commands import BrokerId
from cordwood.cluster.metadata.fields import reader_of
from cordwood.cluster.metadata.packed import pack, unpack
from cordwood.cluster.metadata.quorum import Heartbeat

Row = tuple[bytes, int, int]
"""An entry of the log as PySyncObj has it: command, index, term."""


TERM_MAX = (1 << 33) - 1
"""The highest term of a message. A term far beyond it has no name for a snapshot, and none may follow 2^63 - 1."""
VOTERS_MAX = 64
"""Voters of which a peer may tell at once: each is dialled."""


class MalformedMessage(Exception):
    """Bytes that no broker sends: the connection is closed."""


class Contradiction(MalformedMessage):
    """A message that contradicts what this voter knows for certain: the peer, or this voter, broke a rule of Raft."""

    SAYS: ClassVar[str] = "a contradiction: "

    def __init__(self, what: str) -> None:
        super().__init__(self.SAYS + what)


class Standing(IntEnum):
    """The state of a voter's memory, which decides whether it may vote (docs/adr/0011)."""

    EMPTY = 1
    """No state: a new voter or a wiped disk, which the standings of the others show."""
    FOUNDING = 2
    """A founder: all voters are new. It may vote, has not voted yet, and its log is empty."""
    MEMBER = 3
    """A voter with its votes and its log."""
    AMNESIAC = 4
    """A voter that lost its votes or log.

    It takes entries; it has no vote, and does not count for a majority, until it is readmitted.
    """

    @property
    def may_vote(self) -> bool:
        return self in (Standing.FOUNDING, Standing.MEMBER)


@dataclass(frozen=True, slots=True)
class MyStanding:
    """A voter's standing, sent to every voter after connecting and after a change."""

    KIND: ClassVar[int] = 1
    standing: int


@dataclass(frozen=True, slots=True)
class PreVoteRequest:
    """A pre-vote request for the next term, which changes no state of its receivers (Ongaro's thesis, 9.6)."""

    KIND: ClassVar[int] = 2
    term: int
    nonce: int
    last_index: int
    last_term: int


@dataclass(frozen=True, slots=True)
class PreVote:
    """The reply to a pre-vote request. `term` is the replying voter's own."""

    KIND: ClassVar[int] = 3
    term: int
    nonce: int
    is_granted: bool


@dataclass(frozen=True, slots=True)
class VoteRequest:
    """RequestVote of the Raft paper."""

    KIND: ClassVar[int] = 4
    term: int
    last_index: int
    last_term: int


@dataclass(frozen=True, slots=True)
class Vote:
    """A vote for the receiver. It is on the voter's disk."""

    KIND: ClassVar[int] = 5
    term: int


@dataclass(frozen=True, slots=True)
class Append:
    """AppendEntries of the Raft paper. Without entries it is a heartbeat, or a probe for where the logs agree."""

    KIND: ClassVar[int] = 6
    term: int
    prev_index: int
    prev_term: int
    commit_index: int
    entries: tuple[Row, ...] = ()


@dataclass(frozen=True, slots=True)
class AppendReply:
    """The reply to an Append.

    Without `rejected`, the follower's log equals the leader's up to `end`, on disk. Otherwise the follower has no entry
    `rejected`, the `prev_index` that it was sent, and `end` is the next index to probe.
    """

    KIND: ClassVar[int] = 7
    term: int
    end: int
    may_vote: bool
    rejected: int | None = None


@dataclass(frozen=True, slots=True)
class Install:
    """InstallSnapshot of the Raft paper: the whole image after entry `index`.

    It replaces entries that the sender's log no longer has.
    """

    KIND: ClassVar[int] = 8
    term: int
    index: int
    index_term: int
    image: bytes


@dataclass(frozen=True, slots=True)
class Readmit:
    """Readmission of an amnesiac voter that has the log up to `barrier` (docs/adr/0011)."""

    KIND: ClassVar[int] = 9
    term: int
    barrier: int


@dataclass(frozen=True, slots=True)
class Propose:
    """An entry for the leader to append. A receiver that is not the leader may drop it without a reply."""

    KIND: ClassVar[int] = 10
    entry: bytes


@dataclass(frozen=True, slots=True)
class Resign:
    """The leader of this term stops: the successor stands immediately, and the other voters grant it pre-votes."""

    KIND: ClassVar[int] = 11
    term: int
    successor: int


@dataclass(frozen=True, slots=True)
class Alive:
    """A broker's heartbeat."""

    KIND: ClassVar[int] = 12
    broker_id: int
    incarnation: UUID
    broker_epoch: int
    applied_index: int
    wants_shutdown: bool

    @classmethod
    def of(cls, heartbeat: Heartbeat) -> "Alive":
        return cls(*(getattr(heartbeat, field.name) for field in fields(Heartbeat)))

    def heartbeat(self) -> Heartbeat:
        return Heartbeat(
            BrokerId(self.broker_id), self.incarnation, self.broker_epoch, self.applied_index, self.wants_shutdown
        )


@dataclass(frozen=True, slots=True)
class Follow:
    """An observer's request for the entries after `index`, the last one that it has applied."""

    KIND: ClassVar[int] = 13
    index: int


@dataclass(frozen=True, slots=True)
class Committed:
    """Committed entries for an observer, with leader and term; None for an unknown leader."""

    KIND: ClassVar[int] = 14
    leader_id: int | None
    term: int
    commit_index: int
    entries: tuple[Row, ...] = ()


@dataclass(frozen=True, slots=True)
class Declined:
    """The leader's refusal of a proposed change of the voters, which is not in the log. `code` is Kafka's."""

    KIND: ClassVar[int] = 15
    LEVEL: ClassVar[int] = 2
    tag: bytes
    code: int
    reason: str


@dataclass(frozen=True, slots=True)
class VotersAre:
    """The sender's voters in force, packed, for a peer that has to find them. It dials them, and nothing more."""

    KIND: ClassVar[int] = 16
    LEVEL: ClassVar[int] = 2
    """The metadata.version from which on every broker has the message."""
    index: int
    rows: bytes

    @classmethod
    def of(cls, index: int, addresses: Mapping[BrokerId, tuple[str, int]]) -> "VotersAre":
        return cls(index, pack([(voter_id, *address) for voter_id, address in addresses.items()]))

    def addresses(self) -> Mapping[BrokerId, tuple[str, int]]:
        """Return the address of each voter. Raises MalformedMessage."""
        try:
            rows = _VOTER_ROWS(unpack(self.rows))
        except (ValueError, TypeError) as error:
            raise MalformedMessage(f"malformed voters: {error}") from None
        if len(rows) > VOTERS_MAX:
            raise MalformedMessage(f"{len(rows)} voters")
        for voter_id, host, port in rows:
            if voter_id < 0 or not 0 < len(host) < 256 or not host.isprintable() or not 0 < port < 1 << 16:
                raise MalformedMessage(f"voter {voter_id} at {host[:256]!r}, port {port}")
        return {BrokerId(voter_id): (host, port) for voter_id, host, port in rows}


Message = (
    MyStanding
    | PreVoteRequest
    | PreVote
    | VoteRequest
    | Vote
    | Append
    | AppendReply
    | Install
    | Readmit
    | Propose
    | Resign
    | Alive
    | Follow
    | Committed
    | Declined
    | VotersAre
)

_VOTER_ROWS = reader_of(tuple[tuple[BrokerId, str, int], ...], {})

_KINDS: dict[int, Callable[..., Message]] = {kind.KIND: kind for kind in get_args(Message)}


def _allowed(annotation: Any) -> tuple[type, ...]:
    if isinstance(annotation, UnionType):
        return get_args(annotation)
    return (tuple,) if annotation == tuple[Row, ...] else (annotation,)


_SHAPES = {
    kind.KIND: tuple(
        _allowed(annotation) for name, annotation in get_type_hints(kind).items() if name not in ("KIND", "LEVEL")
    )
    for kind in get_args(Message)
}


_TERMS = {
    kind.KIND: tuple(at for at, name in enumerate(kind.__slots__) if name.endswith("term"))
    for kind in get_args(Message)
}
"""By kind: the positions of terms."""


def encode(message: Message) -> bytes:
    return pack((message.KIND, *(getattr(message, name) for name in message.__slots__)))


def decode(data: bytes) -> Message:
    """Decode a message. Raises MalformedMessage if a field is not of its declared type."""
    try:
        kind, *values = unpack(data)
        shape = _SHAPES[kind]
    except (ValueError, TypeError, LookupError) as error:
        raise MalformedMessage(f"{len(data)} bytes that are not a valid message: {error}") from None
    if len(values) != len(shape):
        raise MalformedMessage(f"message {kind} has {len(values)} fields")
    for value, allowed in zip(values, shape, strict=True):
        if type(value) not in allowed or (type(value) is int and not 0 <= value < 1 << 63):
            raise MalformedMessage(f"message {kind} with {type(value).__name__} where {allowed} belongs")
        if type(value) is tuple:
            _check_rows(kind, value)
    for at in _TERMS[kind]:
        if values[at] > TERM_MAX:
            raise MalformedMessage(f"message {kind} of term {values[at]}")
    return _KINDS[kind](*values)


def _check_rows(kind: int, rows: tuple[Any, ...]) -> None:
    """Check that entries have no gap, and that their terms never decrease."""
    known: tuple[int, int] | None = None
    for row in rows:
        if type(row) is not tuple or tuple(map(type, row)) != (bytes, int, int):
            raise MalformedMessage(f"message {kind} with a malformed entry")
        _, index, term = row
        if index < 0 or not 0 <= term <= TERM_MAX:
            raise MalformedMessage(f"message {kind} with entry {index} of term {term}")
        if known is not None and (index != known[0] + 1 or term < known[1]):
            raise MalformedMessage(f"message {kind} with entry {index} of term {term} after {known[0]} of {known[1]}")
        known = index, term
