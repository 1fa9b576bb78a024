"""Classic group: a state machine without clock and network.

The rules are those of Kafka's GroupCoordinator (KIP-62, KIP-134, KIP-345, KIP-394, KIP-800, KIP-814). Times are
milliseconds of one monotonic clock, passed in. `take_effects` returns the effects of each call, and `next_deadline` the
time of the next `tick`. The rebalance itself is in `rebalance.py`.
"""

from collections.abc import Iterable, Sequence

from kio.schema.errors import ErrorCode

from cordwood.cluster.groups.any_group import ClassicMembership
from cordwood.cluster.groups.classic.members import Member
from cordwood.cluster.groups.classic.rebalance import LISTED_MAX, Rebalance, State, listed
from cordwood.cluster.groups.exchange import (
    NO_MEMBER,
    Join,
    JoinAnswer,
    JoinReply,
    Leaver,
    MemberProtocol,
    Purpose,
    RequestId,
    SavedGroup,
    Store,
    Sync,
    SyncAnswer,
    SyncReply,
)
from cordwood.cluster.groups.settings import GroupSettings
from cordwood.cluster.groups.subscription import CONSUMER
from cordwood.storage.steps import Steps, portions
from cordwood.storage.types import TopicPartition

METADATA_BYTES_MAX = 64 << 20
"""Metadata of all members above which a group admits no new member."""
PENDING_MAX = 10_000
"""Largest number of member ids that a group has given out and that have not joined yet."""


class ClassicGroup(Rebalance, ClassicMembership):
    """One classic group. `join` and `sync` reply by effects, possibly later; all other methods reply immediately."""

    __slots__ = ()

    @classmethod
    def restore(cls, group_id: str, saved: SavedGroup, settings: GroupSettings) -> Steps["ClassicGroup"]:
        """Return the group of a record, a member a step. Call `begin_sessions` next."""
        group = cls(group_id, settings)
        group.generation = saved.generation
        group.protocol_type = saved.protocol_type or None
        group.protocol = saved.protocol
        group.emptied_ms = saved.since_ms if saved.since_ms >= 0 else None
        for known in saved.members:
            member = Member(
                known.member_id,
                known.instance_id,
                known.client_id,
                known.client_host,
                known.session_timeout_ms,
                known.session_timeout_ms if known.rebalance_timeout_ms < 0 else known.rebalance_timeout_ms,
                (MemberProtocol(saved.protocol or "", known.subscription),),
                known.assignment,
            )
            group.members.add(member)
            yield
        group.subscribed_topics = group._topics()
        if saved.members:
            group.state = State.STABLE
            if saved.leader in group.members.by_id:
                group.members.leader = saved.leader
        return group

    def keep_protocols(self, protocols: Iterable[tuple[str, tuple[MemberProtocol, ...]]], now_ms: int) -> Steps[None]:
        """Set all protocols of restored members, of which a record has only the chosen one. Start their sessions."""
        for member_id, known in protocols:
            member = self.members.by_id[member_id]
            self.members.change(member, known, member.rebalance_timeout_ms)
            self.members.restart_session(member, now_ms)
            yield

    def rebalance(self, reason: str, now_ms: int) -> None:
        """Begin a rebalance of a stable group."""
        self._prepare(reason, now_ms)

    def refuse_waiting(self, code: ErrorCode) -> None:
        """Refuse all requests that wait for the group, which becomes one of another kind."""
        self._steps.append(self._refuse_all(code))

    def _refuse_all(self, code: ErrorCode) -> Steps[None]:
        for portion in portions(self.members):
            for member in portion:
                self._answer_join(member, JoinReply(code, member.id))
                self._answer_sync(member, SyncReply(code))
            yield

    def begin_sessions(self, now_ms: int) -> None:
        """Start the sessions of restored members. Members need not rejoin, unless the group is too large."""
        self._steps.append(self._begin_sessions(now_ms))
        if self.state is State.STABLE and len(self.members) > self.settings.size_max:
            self._prepare(f"{len(self.members)} members, but the limit is {self.settings.size_max}", now_ms)

    def _begin_sessions(self, now_ms: int) -> Steps[None]:
        for portion in portions(self.members):
            for member in portion:
                if member.id not in self.members.deadlines:
                    self.members.restart_session(member, now_ms)
            yield

    def join(self, request: Join, request_id: RequestId, new_id: str, now_ms: int) -> None:
        """Handle JoinGroup. `new_id` is the id for a new member."""
        if not self._has_room_for(request.member_id):
            self._turn_away(request.member_id, request_id, now_ms)
        elif not self._suits(request):
            self._refuse_join(request_id, ErrorCode.inconsistent_group_protocol, request.member_id)
        elif request.member_id == NO_MEMBER:
            self._join_newcomer(request, request_id, new_id, now_ms)
        elif request.member_id in self.members.pending and request.instance_id is None:
            self._let_in(request, request_id, request.member_id, now_ms)
        elif (code := self._check_member(request.member_id, request.instance_id)) is not ErrorCode.none:
            self._refuse_join(request_id, code, request.member_id)
        else:
            self._rejoin(self.members.by_id[request.member_id], request, request_id, now_ms)

    def sync(self, request: Sync, request_id: RequestId, now_ms: int) -> None:
        """Handle SyncGroup: the leader sends all assignments, and each member gets its own."""
        code = self._check_sync(request)
        if code is not ErrorCode.none:
            self.effects.append(SyncAnswer(request_id, SyncReply(code)))
            return
        member = self.members.by_id[request.member_id]
        self.members.restart_session(member, now_ms)
        self._has_synced(member.id)
        if self.state is State.STABLE:
            self.effects.append(SyncAnswer(request_id, self._share(member)))
            return
        self._answer_sync(member, SyncReply(ErrorCode.rebalance_in_progress))
        member.syncing = request_id
        if member.id == self.members.leader and not self.is_storing:
            self.is_storing = True
            self._steps.append(self._store(Purpose.ASSIGNED, request.assignments))

    def stored(self, store: Store, code: ErrorCode, now_ms: int) -> None:
        """Continue after a `Store`, which has succeeded or has failed with `code`."""
        match store.purpose:
            case Purpose.ASSIGNED:
                self._assigned(store.group, code, now_ms)
            case Purpose.REPLACED:
                self._replaced(store.answers[0], store.group.generation, code)
            case Purpose.EMPTIED:
                # The coordinator replies to the leavers. If the record is not on disk, the previous generation comes
                # back.
                pass

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int, now_ms: int) -> ErrorCode:
        code = self._check_generation(member_id, instance_id, generation)
        if code is not ErrorCode.none:
            return code
        self.members.restart_session(self.members.by_id[member_id], now_ms)
        is_preparing = self.state is State.PREPARING_REBALANCE
        return ErrorCode.rebalance_in_progress if is_preparing else ErrorCode.none

    def leave(self, leavers: Sequence[Leaver], now_ms: int) -> list[ErrorCode]:
        """Handle LeaveGroup. Return a code for each leaver. One rebalance serves all of them."""
        gone: dict[str, None] = {}
        codes = []
        for leaver in leavers:
            code, member_id = self._leaving(leaver)
            if code is ErrorCode.none and member_id in gone:
                code = ErrorCode.unknown_member_id
            elif code is ErrorCode.none:
                gone[member_id] = None
            codes.append(code)
        self._steps.append(self._leave(list(gone), _farewell(leavers), now_ms))
        return codes

    def _leave(self, member_ids: Sequence[str], reason: str, now_ms: int) -> Steps[None]:
        count = len(self.members)
        for member_id in member_ids:
            self._dismiss(member_id, ErrorCode.unknown_member_id)
            yield
        if len(self.members) < count:
            self._rebalance_or_complete(reason, now_ms)
        else:
            self._complete_if_all_joined(now_ms)

    def check_commit(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        now_ms: int,
        partitions: Iterable[TopicPartition],  # noqa: ARG002
        *,
        knows_epochs: bool = True,  # noqa: ARG002
    ) -> ErrorCode:
        """Return the code for an offset commit. A commit that is allowed also restarts the member's session.

        Consumers that assign partitions to themselves have no generation and no member id, and their group has no
        members.
        """
        if generation < 0 and self.state is State.EMPTY:
            return ErrorCode.none
        code = self._check_generation(member_id, instance_id, generation)
        if code is not ErrorCode.none:
            return code
        if self.state is State.COMPLETING_REBALANCE:
            return ErrorCode.rebalance_in_progress
        self.members.restart_session(self.members.by_id[member_id], now_ms)
        return ErrorCode.none

    def check_transactional_commit(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        partitions: Iterable[TopicPartition],  # noqa: ARG002
    ) -> ErrorCode:
        """Return the code for an offset commit in a transaction (KIP-447).

        Old producers name no member, and are fenced by their producer epoch alone. A member may commit while the next
        generation begins: its transaction has read in the present one.
        """
        names_no_member = member_id == NO_MEMBER and instance_id is None
        if generation < 0 and (names_no_member or self.state is State.EMPTY):
            return ErrorCode.none
        return self._check_generation(member_id, instance_id, generation)

    def check_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:  # noqa: ARG002
        """Members with the classic protocol name no epoch, and any client may fetch."""
        return ErrorCode.none

    def check_delete(self) -> ErrorCode:
        """Return the code for deleting the group: only a group without members may be deleted."""
        return ErrorCode.none if self.state is State.EMPTY else ErrorCode.non_empty_group

    def check_offset_delete(self) -> ErrorCode:
        """Return the code for deleting offsets: the topics that members of another protocol type read are unknown."""
        if self.state is State.EMPTY or self.protocol_type == CONSUMER:
            return ErrorCode.none
        return ErrorCode.non_empty_group

    def reads(self, topic: str) -> bool:
        """Return True if a consumer of the group has subscribed to the topic, or may have."""
        topics = self.subscribed_topics
        return self.protocol_type == CONSUMER if topics is None else topic in topics

    def retained_from(self, topic: str, committed_ms: int) -> int | None:
        """Return the time from which the retention of an offset runs; None while it does not.

        Without members it runs from when the last member left. In a stable group it runs from the commit, for topics
        that no member reads. For consumers that assign partitions to themselves it runs from the commit.
        """
        if self.protocol_type is None:
            return committed_ms
        if self.state is State.EMPTY:
            return committed_ms if self.emptied_ms is None else self.emptied_ms
        if self.state is not State.STABLE or self.subscribed_topics is None:
            return None
        return None if topic in self.subscribed_topics else committed_ms

    def _has_room_for(self, member_id: str) -> bool:
        members, size_max = self.members, self.settings.size_max
        is_full = members.metadata_bytes >= METADATA_BYTES_MAX or len(members.pending) >= PENDING_MAX
        if is_full and member_id not in members.by_id and member_id not in members.pending:
            return False
        if self.state is State.EMPTY or len(members) < size_max:
            return True
        member = members.by_id.get(member_id)
        if self.state is State.PREPARING_REBALANCE:
            # Members that have rejoined stay, so a group that is too large loses those that rejoin last.
            return (member is not None and member.joining is not None) or members.joining_count < size_max
        return member is not None

    def _turn_away(self, member_id: str, request_id: RequestId, now_ms: int) -> None:
        self._dismiss(member_id, ErrorCode.group_max_size_reached)
        self._refuse_join(request_id, ErrorCode.group_max_size_reached, NO_MEMBER)
        self._complete_if_all_joined(now_ms)

    def _suits(self, request: Join) -> bool:
        if self.state is State.EMPTY:
            return bool(request.protocol_type and request.protocols)
        return request.protocol_type == self.protocol_type and self.members.all_know_one_of(request.protocols)

    def _join_newcomer(self, request: Join, request_id: RequestId, new_id: str, now_ms: int) -> None:
        if request.instance_id is not None:
            known_id = self.members.static_ids.get(request.instance_id)
            if known_id is None:
                self._let_in(request, request_id, new_id, now_ms)
            else:
                self._replace(self.members.by_id[known_id], request, request_id, new_id, now_ms)
        elif request.must_know_id:
            self.members.give(new_id, now_ms + request.session_timeout_ms)
            self._refuse_join(request_id, ErrorCode.member_id_required, new_id)
        else:
            self._let_in(request, request_id, new_id, now_ms)

    def _let_in(self, request: Join, request_id: RequestId, member_id: str, now_ms: int) -> None:
        if not self.members:
            self.protocol_type = request.protocol_type
        member = _member(request, member_id, request_id)
        member.is_new = True
        self.has_newcomers = True
        self.members.add(member)
        self.members.deadlines.put(member.id, now_ms + self.settings.new_member_join_timeout_ms)
        self._rebalance_or_complete(f"{member_id} joins{_because(request)}", now_ms)

    def _rejoin(self, member: Member, request: Join, request_id: RequestId, now_ms: int) -> None:
        self.members.restart_session(member, now_ms)
        is_same = member.protocols == request.protocols
        must_rebalance = self.state is State.PREPARING_REBALANCE or not is_same
        if self.state is State.STABLE and member.id == self.members.leader:
            # The leader may know of a reason that its metadata does not show, such as new partitions.
            must_rebalance = True
        if not must_rebalance:
            # The reply to an earlier request was lost, or the member only asks for the current generation.
            self.effects.append(JoinAnswer(request_id, self._place(member)))
            return
        self._update(member, request, request_id)
        self._rebalance_or_complete(f"{member.id} joins again{_because(request)}", now_ms)

    def _update(self, member: Member, request: Join, request_id: RequestId) -> None:
        self.members.change(member, request.protocols, request.rebalance_timeout_ms)
        member.session_timeout_ms = request.session_timeout_ms
        self._answer_join(member, JoinReply(ErrorCode.rebalance_in_progress, member.id))
        self.members.await_join(member, request_id)

    def _replace(self, old: Member, request: Join, request_id: RequestId, new_id: str, now_ms: int) -> None:
        """Replace a restarted static member. Without a change for the others there is no rebalance (KIP-345)."""
        former_leader = self.members.leader
        self._answer_join(old, JoinReply(ErrorCode.fenced_instance_id, old.id))
        self._answer_sync(old, SyncReply(ErrorCode.fenced_instance_id))
        member = _member(request, new_id, request_id)
        member.assignment = old.assignment
        self._has_synced(old.id)
        self.members.replace(old, member)
        self.members.restart_session(member, now_ms)
        if self.state is State.PREPARING_REBALANCE:
            self._complete_if_all_joined(now_ms)
        elif self.state is State.STABLE and self.members.select_protocol() == self.protocol:
            answer = JoinAnswer(request_id, self._returned(member, request, former_leader))
            self._steps.append(self._store(Purpose.REPLACED, None, answer))
        else:
            # The leader may be assigning partitions to the old id, or the protocol changes.
            self._prepare(f"static member {request.instance_id} rejoined{_because(request)}", now_ms)

    def _returned(self, member: Member, request: Join, former_leader: str | None) -> JoinReply:
        """Return the reply to a static member that came back. A client without KIP-814 must not learn that it leads."""
        if request.may_skip_assignment:
            return self._place(member)._replace(skip_assignment=member.id == self.members.leader)
        return self._place(member)._replace(leader=former_leader or NO_MEMBER, members=())

    def _replaced(self, answer: JoinAnswer, generation: int, code: ErrorCode) -> None:
        member = self.members.by_id.get(answer.reply.member_id)
        if member is None or self.state is not State.STABLE or self.generation != generation:
            # A rebalance has begun meanwhile, and replies when it ends.
            return
        self._answer_join(member, answer.reply if code is ErrorCode.none else JoinReply(code, NO_MEMBER))

    def _check_member(self, member_id: str, instance_id: str | None) -> ErrorCode:
        if instance_id is not None:
            known_id = self.members.static_ids.get(instance_id)
            if known_id is not None and known_id != member_id:
                return ErrorCode.fenced_instance_id
            if known_id is None:
                return ErrorCode.unknown_member_id
        return ErrorCode.none if member_id in self.members.by_id else ErrorCode.unknown_member_id

    def _check_generation(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        code = self._check_member(member_id, instance_id)
        if code is ErrorCode.none and generation != self.generation:
            return ErrorCode.illegal_generation
        return code

    def _check_sync(self, request: Sync) -> ErrorCode:
        code = self._check_generation(request.member_id, request.instance_id, request.generation)
        if code is not ErrorCode.none:
            return code
        for asked, chosen in ((request.protocol_type, self.protocol_type), (request.protocol, self.protocol)):
            if asked is not None and chosen is not None and asked != chosen:
                return ErrorCode.inconsistent_group_protocol
        is_preparing = self.state is State.PREPARING_REBALANCE
        return ErrorCode.rebalance_in_progress if is_preparing else ErrorCode.none

    def _leaving(self, leaver: Leaver) -> tuple[ErrorCode, str]:
        """Return the code for a leaver, and the id of the member or the pending id that leaves."""
        member_id = leaver.member_id
        if member_id == NO_MEMBER:
            member_id = self.members.static_ids.get(leaver.instance_id or "", NO_MEMBER)
        elif member_id not in self.members.pending:
            return self._check_member(member_id, leaver.instance_id), member_id
        return ErrorCode.unknown_member_id if member_id == NO_MEMBER else ErrorCode.none, member_id

    def _refuse_join(self, request_id: RequestId, code: ErrorCode, member_id: str) -> None:
        self.effects.append(JoinAnswer(request_id, JoinReply(code, member_id)))


def _member(request: Join, member_id: str, request_id: RequestId) -> Member:
    return Member(
        member_id,
        request.instance_id,
        request.client_id,
        request.client_host,
        request.session_timeout_ms,
        request.rebalance_timeout_ms,
        request.protocols,
        joining=request_id,
    )


def _farewell(leavers: Sequence[Leaver]) -> str:
    gone = listed([leaver.member_id or str(leaver.instance_id) for leaver in leavers])
    reasons = "; ".join(leaver.reason for leaver in leavers[:LISTED_MAX] if leaver.reason)
    return f"{gone} left: {reasons}" if reasons else f"{gone} left"


def _because(request: Join) -> str:
    return f": {request.reason}" if request.reason else ""
