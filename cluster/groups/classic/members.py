"""Members of a classic group: their protocols, the leader, static members, and pending member ids.

What a group asks about all its members is counted as members come, change and go, so that an event of one member costs
the same in a group of any size.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

from cordwood.cluster.groups.deadlines import Deadlines
from cordwood.cluster.groups.exchange import JoinedMember, MemberProtocol, RequestId, SavedMember
from cordwood.cluster.groups.subscription import Subscriptions

_Counted = TypeVar("_Counted", str, int, tuple[str, ...])


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
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        return b""

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

    __slots__ = (
        "_preferences", "_supporters", "_timeouts", "by_id", "deadlines", "joining_count", "leader",
        "metadata_bytes", "pending", "static_ids", "subscriptions",
    )  # fmt: skip

    def __init__(self) -> None:
        self.by_id: dict[str, Member] = {}
        self.static_ids: dict[str, str] = {}
        """Member ids by instance id (KIP-345)."""
        self.pending: set[str] = set()
        """Ids given to new members that have not joined with them yet (KIP-394)."""
        self.deadlines: Deadlines[str] = Deadlines()
        """The ends of the members' sessions, and of the time in which pending ids may be used, by id."""
        self.leader: str | None = None
        self.joining_count = 0
        """Number of members that wait for all to join."""
        self.metadata_bytes = 0
        """Metadata bytes of all protocols of all members."""
        self.subscriptions = Subscriptions()
        self._supporters: Counter[str] = Counter()
        self._preferences: Counter[tuple[str, ...]] = Counter()
        """Numbers of members by the names of their protocols in order of preference."""
        self._timeouts: Counter[int] = Counter()
        """Numbers of members by rebalance timeout."""

    def __iter__(self) -> Iterator[Member]:
        return iter(self.by_id.values())

    def __len__(self) -> int:
        return len(self.by_id)

    @property
    def have_all_joined(self) -> bool:
        """True if there is no member and no pending id to wait for."""
        return not self.pending and self.joining_count == len(self.by_id)

    @property
    def rebalance_timeout_ms(self) -> int:
        return max(self._timeouts, default=0)

    def give(self, member_id: str, until_ms: int) -> None:
        """Give an id to a new member, which may join with it until that time."""
        self.pending.add(member_id)
        self.deadlines.put(member_id, until_ms)

    def restart_session(self, member: Member, now_ms: int) -> None:
        # A record may have a timeout of 0.
        self.deadlines.put(member.id, now_ms + max(member.session_timeout_ms, 1))

    def add(self, member: Member) -> None:
        assert member.id not in self.by_id, "a member id is given once"
        self._drop_pending(member.id)
        self.by_id[member.id] = member
        if member.instance_id is not None:
            assert member.instance_id not in self.static_ids, "a static member is replaced, never added twice"
            self.static_ids[member.instance_id] = member.id
        self._count(member, 1)
        if self.leader is None:
            self.leader = member.id

    def remove(self, member_id: str) -> Member | None:
        """Remove a member or a pending id. If the leader is removed, the next member leads."""
        self._drop_pending(member_id)
        member = self.by_id.pop(member_id, None)
        if member is not None:
            self.deadlines.remove(member_id)
            self._count(member, -1)
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

    def change(self, member: Member, protocols: tuple[MemberProtocol, ...], rebalance_timeout_ms: int) -> None:
        """Change what a member joins again with."""
        if (member.protocols, member.rebalance_timeout_ms) == (protocols, rebalance_timeout_ms):
            return
        self._count(member, -1)
        member.protocols, member.rebalance_timeout_ms = protocols, rebalance_timeout_ms
        self._count(member, 1)

    def await_join(self, member: Member, request_id: RequestId) -> None:
        """Note the request of a member that waits for all to join. It must have no other."""
        assert member.joining is None, "a member waits with one request"
        member.joining = request_id
        self.joining_count += 1

    def end_join(self, member: Member) -> RequestId | None:
        """Return the request of a member that has waited for all to join, which is to be answered; None without one."""
        request_id, member.joining = member.joining, None
        if request_id is not None and member.id in self.by_id:
            self.joining_count -= 1
        return request_id

    def all_know_one_of(self, protocols: tuple[MemberProtocol, ...]) -> bool:
        return any(self._supporters[protocol.name] == len(self.by_id) for protocol in protocols)

    def select_protocol(self) -> str:
        """Return the protocol with the most votes: each member votes for its first protocol that all members know."""
        votes: Counter[str] = Counter()
        for names, count in self._preferences.items():
            votes[next(name for name in names if self._supporters[name] == len(self.by_id))] += count
        return max(votes, key=lambda name: votes[name])

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

    def _drop_pending(self, member_id: str) -> None:
        if member_id in self.pending:
            self.pending.remove(member_id)
            self.deadlines.remove(member_id)

    def _count(self, member: Member, times: int) -> None:
        """Count a member, or stop to count it with `times` -1."""
        names = tuple(protocol.name for protocol in member.protocols)
        for name in set(names):
            _add(self._supporters, name, times)
        _add(self._preferences, names, times)
        _add(self._timeouts, member.rebalance_timeout_ms, times)
        self.joining_count += times * (member.joining is not None)
        self.metadata_bytes += times * sum(len(protocol.metadata) for protocol in member.protocols)
        self.subscriptions.count(member.protocols, times)


def _add(counter: Counter[_Counted], key: _Counted, times: int) -> None:
    """Add to a count, and keep no zero."""
    counter[key] += times
    if not counter[key]:
        del counter[key]
