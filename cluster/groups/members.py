"""Members of a consumer group: their protocols, the leader, static members, and pending member ids."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from cordwood.cluster.groups.exchange import JoinedMember, MemberProtocol, RequestId, SavedMember


@dataclass(slots=True)
class Member:
    """One member. `joining` and `syncing` are its waiting requests: for all to join, and for the assignment."""

    id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[MemberProtocol, ...]
    assignment: bytes = b""
    session_deadline_ms: int = 0
    is_new: bool = False
    """Whether the member has had no reply yet, and so knows no id and cannot send heartbeats."""
    joining: RequestId | None = None
    syncing: RequestId | None = None

    @property
    def is_static(self) -> bool:
        return self.instance_id is not None

    @property
    def may_be_silent(self) -> bool:
        """True if a request of the member waits for the group, so that the member need not send heartbeats."""
        return not self.is_new and (self.joining is not None or self.syncing is not None)

    def metadata(self, protocol: str | None) -> bytes:
        return next((known.metadata for known in self.protocols if known.name == protocol), b"")

    def restart_session(self, now_ms: int) -> None:
        self.session_deadline_ms = now_ms + self.session_timeout_ms

    def joined(self, protocol: str | None) -> JoinedMember:
        return JoinedMember(self.id, self.instance_id, self.metadata(protocol))

    def saved(self, protocol: str | None, assignment: bytes) -> SavedMember:
        return SavedMember(
            self.id,
            self.instance_id,
            self.client_id,
            self.client_host,
            self.rebalance_timeout_ms,
            self.session_timeout_ms,
            self.metadata(protocol),
            assignment,
        )


class Members:
    """The members in the order of their arrival. The first one leads."""

    __slots__ = ("_supporters", "by_id", "leader", "metadata_bytes", "pending", "static_ids")

    def __init__(self) -> None:
        self.by_id: dict[str, Member] = {}
        self.static_ids: dict[str, str] = {}
        """Member ids by instance id (KIP-345)."""
        self.pending: dict[str, int] = {}
        """Ids given to new members that have not joined with them yet, and their deadlines (KIP-394)."""
        self.leader: str | None = None
        self.metadata_bytes = 0
        """Metadata bytes of all protocols of all members."""
        self._supporters: Counter[str] = Counter()

    def __iter__(self) -> Iterator[Member]:
        return iter(self.by_id.values())

    def __len__(self) -> int:
        return len(self.by_id)

    @property
    def have_all_joined(self) -> bool:
        """True if there is no member and no pending id to wait for."""
        return not self.pending and all(member.joining is not None for member in self)

    @property
    def joining_count(self) -> int:
        return sum(member.joining is not None for member in self)

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self), default=0)

    def add(self, member: Member) -> None:
        assert member.id not in self.by_id, "a member id is given once"
        self.pending.pop(member.id, None)
        self.by_id[member.id] = member
        if member.instance_id is not None:
            assert member.instance_id not in self.static_ids, "a static member is replaced, never added twice"
            self.static_ids[member.instance_id] = member.id
        self._support(member.protocols, 1)
        if self.leader is None:
            self.leader = member.id

    def remove(self, member_id: str) -> Member | None:
        """Remove a member or a pending id. If the leader is removed, the next member leads."""
        self.pending.pop(member_id, None)
        member = self.by_id.pop(member_id, None)
        if member is not None:
            self._support(member.protocols, -1)
            if member.instance_id is not None:
                self.static_ids.pop(member.instance_id, None)
        if self.leader == member_id:
            self.leader = next(iter(self.by_id), None)
        return member

    def replace(self, old: Member, new: Member) -> None:
        """Replace a static member that came back under a new id. The new one leads if the old one did."""
        was_leader = self.leader == old.id
        self.remove(old.id)
        self.add(new)
        if was_leader:
            self.leader = new.id

    def change_protocols(self, member: Member, protocols: tuple[MemberProtocol, ...]) -> None:
        self._support(member.protocols, -1)
        member.protocols = protocols
        self._support(protocols, 1)

    def _support(self, protocols: tuple[MemberProtocol, ...], times: int) -> None:
        for name in _names(protocols):
            self._supporters[name] += times
        self.metadata_bytes += times * sum(len(protocol.metadata) for protocol in protocols)

    def all_know_one_of(self, protocols: tuple[MemberProtocol, ...]) -> bool:
        return any(self._supporters[protocol.name] == len(self.by_id) for protocol in protocols)

    def elect_joined_leader(self) -> bool:
        """Elect a member that joined as leader, unless the present one has. Return False if no member has joined."""
        if self.leader is None:
            return False
        if self.by_id[self.leader].joining is None:
            joined = next((member.id for member in self if member.joining is not None), None)
            if joined is None:
                return False
            self.leader = joined
        return True

    def select_protocol(self) -> str:
        """Return the protocol with the most votes: each member votes for its first protocol that all members know."""
        votes: Counter[str] = Counter()
        for member in self:
            known = (protocol.name for protocol in member.protocols)
            votes[next(name for name in known if self._supporters[name] == len(self.by_id))] += 1
        return max(votes, key=lambda name: votes[name])


def _names(protocols: tuple[MemberProtocol, ...]) -> set[str]:
    return {protocol.name for protocol in protocols}
