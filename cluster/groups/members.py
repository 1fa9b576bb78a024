"""Who is in a group: its members and their protocols, its leader, and those who have only been promised a place."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from cordwood.cluster.groups.exchange import JoinedMember, MemberProtocol, RequestId, SavedMember


@dataclass(slots=True)
class Member:
    """One member. Its tickets are its requests that wait: for the others to join, or for the leader to assign."""

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
    """It has not had its first answer yet, and so cannot know its id or send heartbeats."""
    joining: RequestId | None = None
    syncing: RequestId | None = None

    @property
    def is_static(self) -> bool:
        return self.instance_id is not None

    @property
    def may_be_silent(self) -> bool:
        """Whether it waits for the group, and need not be heard of meanwhile."""
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
    """The members in the order in which they came. The first one leads."""

    __slots__ = ("_supporters", "by_id", "leader", "metadata_bytes", "pending", "static_ids")

    def __init__(self) -> None:
        self.by_id: dict[str, Member] = {}
        self.static_ids: dict[str, str] = {}
        """Member ids by instance id (KIP-345)."""
        self.pending: dict[str, int] = {}
        """Ids that were given to newcomers who have yet to come back with them, and until when they may."""
        self.leader: str | None = None
        self.metadata_bytes = 0
        """Of all protocols of all members."""
        self._supporters: Counter[str] = Counter()

    def __iter__(self) -> Iterator[Member]:
        return iter(self.by_id.values())

    def __len__(self) -> int:
        return len(self.by_id)

    @property
    def have_all_joined(self) -> bool:
        """Whether nobody has to be waited for."""
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
        """Take out a member or a promise. The next member leads where the leader goes."""
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
        """A static member has come back under a new id; it leads if it did."""
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
        """Have a member lead that takes part in the rebalance. False if none does."""
        if self.leader is None:
            return False
        if self.by_id[self.leader].joining is None:
            joined = next((member.id for member in self if member.joining is not None), None)
            if joined is None:
                return False
            self.leader = joined
        return True

    def select_protocol(self) -> str:
        """The protocol with the most votes: each member votes for its first that all know."""
        votes: Counter[str] = Counter()
        for member in self:
            known = (protocol.name for protocol in member.protocols)
            votes[next(name for name in known if self._supporters[name] == len(self.by_id))] += 1
        return max(votes, key=lambda name: votes[name])


def _names(protocols: tuple[MemberProtocol, ...]) -> set[str]:
    return {protocol.name for protocol in protocols}
