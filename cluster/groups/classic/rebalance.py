"""Rebalance of a classic group from one generation to the next: join, assignment by the leader, sync.

Empty → PreparingRebalance (until all have joined, or the rebalance timeout) → CompletingRebalance (until the leader's
assignment is on disk) → Stable. A member that misses a deadline on the way is removed.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from itertools import islice

from kio.schema.errors import ErrorCode

from cordwood.cluster.groups.any_group import AnyGroup, GroupKind
from cordwood.cluster.groups.classic.members import Member, Members
from cordwood.cluster.groups.exchange import (
    NO_MEMBER,
    Effect,
    JoinAnswer,
    JoinedMember,
    JoinReply,
    Purpose,
    Rebalancing,
    RequestId,
    SavedGroup,
    SavedMember,
    Store,
    SyncAnswer,
    SyncReply,
)
from cordwood.cluster.groups.settings import EXPIRED_PER_TICK_MAX, GroupSettings
from cordwood.cluster.groups.subscription import CONSUMER
from cordwood.storage.steps import Steps, portions

LISTED_MAX = 5
"""Members that the reason of a rebalance lists."""


class State(Enum):
    """Group states, with the names that Kafka's tools show."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"
    """The state reported for a group that does not exist; no group is in it."""


class Rebalance(AnyGroup):
    """The state of a group and its transitions. `ClassicGroup` adds the requests of its members."""

    kind = GroupKind.CLASSIC
    __slots__ = (
        "_extension_left_ms",
        "_extension_ms",
        "_is_completing",
        "_steps",
        "effects",
        "emptied_ms",
        "generation",
        "group_id",
        "has_newcomers",
        "is_initial",
        "is_storing",
        "join_deadline_ms",
        "members",
        "pending_sync",
        "protocol",
        "protocol_type",
        "settings",
        "state",
        "subscribed_topics",
        "sync_deadline_ms",
    )  # fmt: skip

    def __init__(self, group_id: str, settings: GroupSettings) -> None:
        self.group_id, self.settings = group_id, settings
        self.state = State.EMPTY
        self.generation = 0
        self.protocol_type: str | None = None
        """None for a group that has never had a member: its consumers assign partitions to themselves."""
        self.protocol: str | None = None
        self.members = Members()
        self.subscribed_topics: frozenset[str] | None = None
        self.pending_sync: set[str] = set()
        self.join_deadline_ms: int | None = None
        self.sync_deadline_ms: int | None = None
        self.is_initial = False
        """Whether this rebalance is the first after the group was empty: it waits for more members."""
        self.has_newcomers = False
        self.is_storing = False
        """Whether the assignment of this generation is being written."""
        self.emptied_ms: int | None = None
        """Wall-clock time since which the group has had no members, as in its record; None if it is not known."""
        self.effects: list[Effect] = []
        self._extension_ms = self._extension_left_ms = 0
        self._steps: deque[Steps[None]] = deque()
        """What an event has left to do for many members, in order."""
        self._is_completing = False
        """Whether the end of the join phase is among it."""

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def epoch(self) -> int:
        return self.generation

    @property
    def member_count(self) -> int:
        return len(self.members)

    def waiting(self) -> Iterator[RequestId]:
        for member in self.members:
            yield from (waiting for waiting in (member.joining, member.syncing) if waiting is not None)

    def record_keys(self) -> Sequence[bytes]:
        return ()

    def take_effects(self) -> Steps[list[Effect]]:
        """Do what is left for many members. Return the effects to execute, in order, and clear them."""
        while self._steps:
            yield from self._steps.popleft()
        effects, self.effects = self.effects, []
        return effects

    @property
    def is_vacant(self) -> bool:
        """True if the group has no members and no pending member ids."""
        return not self.members and not self.members.pending

    def next_deadline(self) -> int | None:
        """Return the time of the next `tick`; None without a deadline."""
        times = (self.members.deadlines.next(), self.join_deadline_ms, self.sync_deadline_ms)
        return min((at for at in times if at is not None), default=None)

    def tick(self, now_ms: int) -> None:
        """Expire pending ids, sessions, and the deadlines of join and sync.

        Of many ids some are left for the next tick, which is then due.
        """
        for member_id in islice(self.members.deadlines.take_due(now_ms), EXPIRED_PER_TICK_MAX):
            if member_id in self.members.pending:
                self.members.pending.remove(member_id)
                self._complete_if_all_joined(now_ms)
            else:
                self._session_is_over(self.members.by_id[member_id], now_ms)
        if self.join_deadline_ms is not None and self.join_deadline_ms <= now_ms:
            self._join_time_is_over(now_ms)
        if self.sync_deadline_ms is not None and self.sync_deadline_ms <= now_ms:
            self._sync_time_is_over(now_ms)

    def _session_is_over(self, member: Member, now_ms: int) -> None:
        """Dismiss a member whose session has expired, unless a rebalance makes it wait."""
        if member.may_be_silent:
            self.members.restart_session(member, now_ms)
        else:
            self._dismiss(member.id, ErrorCode.unknown_member_id)
            self._rebalance_or_complete(f"{member.id} sent no heartbeat within its session timeout", now_ms)

    def _rebalance_or_complete(self, reason: str, now_ms: int) -> None:
        """Rebalance after a member has come or left, or complete the rebalance that waited for it."""
        if self.state is State.PREPARING_REBALANCE:
            self._complete_if_all_joined(now_ms)
        else:
            self._prepare(reason, now_ms)

    def _prepare(self, reason: str, now_ms: int) -> None:
        """Begin a rebalance: all members have to rejoin."""
        assert self.state is not State.PREPARING_REBALANCE, "a rebalance begins once"
        if self.state is State.COMPLETING_REBALANCE:
            self._void_shares(ErrorCode.rebalance_in_progress, now_ms)
        self.pending_sync.clear()
        self.sync_deadline_ms = None
        self.is_initial = self.state is State.EMPTY
        self.state = State.PREPARING_REBALANCE
        self.effects.append(Rebalancing(reason))
        if not self.is_initial:
            self.join_deadline_ms = now_ms + self.members.rebalance_timeout_ms
            self._complete_if_all_joined(now_ms)
            return
        self.has_newcomers = False
        self._extension_ms = self.settings.initial_rebalance_delay_ms
        self._extension_left_ms = max(self.members.rebalance_timeout_ms - self._extension_ms, 0)
        self.join_deadline_ms = now_ms + self._extension_ms
        if self._extension_ms == 0:
            self._complete_join(now_ms)

    def _complete_if_all_joined(self, now_ms: int) -> None:
        """Complete the join phase if all have joined. An initial rebalance waits for its whole delay."""
        if self.state is State.PREPARING_REBALANCE and not self.is_initial and self.members.have_all_joined:
            self._complete_join(now_ms)

    def _join_time_is_over(self, now_ms: int) -> None:
        if not self.is_initial or not self.has_newcomers or self._extension_left_ms == 0:
            self._complete_join(now_ms)
            return
        self.has_newcomers = False
        used_ms = self._extension_ms
        self._extension_ms = min(self.settings.initial_rebalance_delay_ms, self._extension_left_ms)
        self._extension_left_ms = max(self._extension_left_ms - used_ms, 0)
        self.join_deadline_ms = now_ms + self._extension_ms

    def _complete_join(self, now_ms: int) -> None:
        if not self._is_completing:
            self._is_completing = True
            self._steps.append(self._begin_generation(now_ms))

    def _begin_generation(self, now_ms: int) -> Steps[None]:
        """Begin the next generation: the members that joined, and static ones, which may be absent for a session."""
        self._is_completing = False
        for member in list(self.members):
            if member.joining is None and not member.is_static:
                self.members.remove(member.id)
            yield
        if not self.members.elect_joined_leader() and self.members:
            # Only absent static members are left: wait until one joins or their sessions expire.
            self.is_initial = False
            self.join_deadline_ms = now_ms + self.members.rebalance_timeout_ms
            return
        self.join_deadline_ms = None
        self.is_initial = False
        self.generation += 1
        self.is_storing = False
        if self.members:
            yield from self._begin_assignment(now_ms)
        else:
            self._become_empty()

    def _become_empty(self) -> None:
        self.state = State.EMPTY
        self.protocol = None
        self.subscribed_topics = self._topics()
        self.effects.append(Store(Purpose.EMPTIED, self._saved(())))

    def _begin_assignment(self, now_ms: int) -> Steps[None]:
        self.state = State.COMPLETING_REBALANCE
        self.protocol = self.members.select_protocol()
        self.subscribed_topics = self._topics()
        self.sync_deadline_ms = now_ms + self.members.rebalance_timeout_ms
        joined: list[JoinedMember] = []
        for portion in portions(self.members):
            joined += (member.joined(self.protocol) for member in portion)
            yield
        for portion in portions(self.members):
            for member in portion:
                reply = self._place(member, tuple(joined) if member.id == self.members.leader else ())
                self._answer_join(member, reply)
                self.members.restart_session(member, now_ms)
                member.is_new = False
                self.pending_sync.add(member.id)
            yield

    def _sync_time_is_over(self, now_ms: int) -> None:
        """Remove members that sent no SyncGroup in time."""
        self.sync_deadline_ms = None
        self._steps.append(self._remove_missing(sorted(self.pending_sync), now_ms))

    def _remove_missing(self, missing: Sequence[str], now_ms: int) -> Steps[None]:
        for member_id in missing:
            self._dismiss(member_id, ErrorCode.unknown_member_id)
            yield
        self._prepare(f"{listed(missing)} did not sync in time", now_ms)

    def _has_synced(self, member_id: str) -> None:
        self.pending_sync.discard(member_id)
        if not self.pending_sync:
            self.sync_deadline_ms = None

    def _assigned(self, saved: SavedGroup, code: ErrorCode, now_ms: int) -> None:
        """Complete the assignment, which is on disk, or could not be written."""
        if self.state is not State.COMPLETING_REBALANCE or saved.generation != self.generation:
            # A rebalance has begun meanwhile, and has answered the waiting requests.
            return
        if code is not ErrorCode.none:
            self._void_shares(code, now_ms)
            self._prepare(f"the assignment could not be written: {code.name}", now_ms)
            return
        self.state = State.STABLE
        self._steps.append(self._assign(saved, now_ms))

    def _assign(self, saved: SavedGroup, now_ms: int) -> Steps[None]:
        """Give all members their assignments. Members that have come back under a new id have none."""
        for written in portions(saved.members):
            for known in written:
                if known.member_id in self.members.by_id:
                    self.members.by_id[known.member_id].assignment = known.assignment
            yield
        for portion in portions(self.members):
            for member in portion:
                if member.syncing is not None:
                    self._answer_sync(member, self._share(member))
                    self.members.restart_session(member, now_ms)
            yield

    def _void_shares(self, code: ErrorCode, now_ms: int) -> None:
        self._steps.append(self._refuse_shares(code, now_ms))

    def _refuse_shares(self, code: ErrorCode, now_ms: int) -> Steps[None]:
        for portion in portions(self.members):
            for member in portion:
                member.assignment = b""
                if member.syncing is not None:
                    self._answer_sync(member, SyncReply(code))
                    self.members.restart_session(member, now_ms)
            yield

    def _dismiss(self, member_id: str, code: ErrorCode) -> None:
        """Remove a member or pending id. A waiting request is refused, so that a live client rejoins."""
        member = self.members.remove(member_id)
        if member is not None:
            self._answer_join(member, JoinReply(code, NO_MEMBER))
            self._answer_sync(member, SyncReply(code))

    def _answer_join(self, member: Member, reply: JoinReply) -> None:
        request_id = self.members.end_join(member)
        if request_id is not None:
            self.effects.append(JoinAnswer(request_id, reply))

    def _answer_sync(self, member: Member, reply: SyncReply) -> None:
        if member.syncing is not None:
            self.effects.append(SyncAnswer(member.syncing, reply))
            member.syncing = None

    def _place(self, member: Member, joined: tuple[JoinedMember, ...] | None = None) -> JoinReply:
        """Return the JoinGroup reply to a member in this generation: with `joined`, or the leader with all members."""
        if joined is None:
            is_leader = member.id == self.members.leader
            joined = tuple(known.joined(self.protocol) for known in self.members) if is_leader else ()
        return JoinReply(
            ErrorCode.none,
            member.id,
            self.generation,
            self.protocol_type,
            self.protocol,
            self.members.leader or NO_MEMBER,
            members=joined,
        )

    def _share(self, member: Member) -> SyncReply:
        return SyncReply(ErrorCode.none, member.assignment, self.protocol_type, self.protocol)

    def _store(self, purpose: Purpose, shares: Mapping[str, bytes] | None, *answers: JoinAnswer) -> Steps[None]:
        """Have the group written, with these assignments or the present ones."""
        members: list[SavedMember] = []
        for portion in portions(self.members):
            for member in portion:
                share = member.assignment if shares is None else shares.get(member.id, b"")
                members.append(member.saved(self.protocol, share))
            yield
        self.effects.append(Store(purpose, self._saved(members), answers))

    def _saved(self, members: Sequence[SavedMember]) -> SavedGroup:
        return SavedGroup(self.protocol_type or "", self.generation, self.protocol, self.members.leader, tuple(members))

    def _topics(self) -> frozenset[str] | None:
        """Return the topics that the group's consumers read; None for another protocol type or invalid metadata."""
        if self.protocol_type != CONSUMER:
            return None
        if self.protocol is None:
            return None if self.members else frozenset()
        return self.members.subscriptions.topics(self.protocol)


def listed(member_ids: Sequence[str]) -> str:
    """Return member ids for the log; the first ones of many."""
    first = ", ".join(member_ids[:LISTED_MAX])
    return first if len(member_ids) <= LISTED_MAX else f"{first} and {len(member_ids) - LISTED_MAX} more"
