"""Consumer group: the members with the consumer protocol, their heartbeats, their expiry (KIP-848).

The checks and their order are those of Kafka's GroupMetadataManager. Times are milliseconds of one monotonic clock.
"""

from collections.abc import Iterable
from dataclasses import replace
from itertools import islice

from kio.schema.errors import ErrorCode

from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.groups.consumer.classic_members import ClassicMembers
from cordwood.cluster.groups.consumer.exchange import UNCHANGED, ConsumerHeartbeat
from cordwood.cluster.groups.consumer.formats import RecordType
from cordwood.cluster.groups.consumer.member import ConsumerMember, MemberState
from cordwood.cluster.groups.consumer.reconciliation import all_in, contains
from cordwood.cluster.groups.consumer.state import HeldRequest, Timer, TimerKey, has_left
from cordwood.cluster.groups.epoch_group import event
from cordwood.cluster.groups.exchange import HeartbeatAnswer, RequestId
from cordwood.cluster.groups.heartbeat import JOIN_EPOCH, LEAVE_EPOCH, STATIC_LEAVE_EPOCH, HeartbeatReply
from cordwood.cluster.groups.settings import EXPIRED_PER_TICK_MAX
from cordwood.cluster.groups.target_assignment import NO_PARTITIONS, Partitions
from cordwood.storage.steps import Steps, at_once
from cordwood.storage.types import TopicPartition

SUBSCRIPTION_BYTES_MAX = 64 << 20
"""Memory of all subscriptions above which a group admits no new member."""
REGEXES_MAX = 100
"""Largest number of different regular expressions in a group: each is resolved after each change of topics."""


class ConsumerGroup(ClassicMembers):
    """One group. `consumer_heartbeat` replies by an effect, possibly later."""

    __slots__ = ()

    @event
    def consumer_heartbeat(
        self, request: ConsumerHeartbeat, request_id: RequestId, new_id: str, now_ms: int
    ) -> Steps[None]:
        """Handle ConsumerGroupHeartbeat, which `check_heartbeat` has accepted. `new_id` is the id for a new member."""
        try:
            if request.member_epoch in (LEAVE_EPOCH, STATIC_LEAVE_EPOCH):
                yield from self._leave(request, request_id, now_ms)
            else:
                yield from self._heartbeat(request, request_id, request.member_id or new_id, now_ms)
        except Refused as refusal:
            reply = HeartbeatReply(refusal.code, refusal.message, request.member_id, request.member_epoch)
            self._answers.append(HeartbeatAnswer(request_id, reply))

    def begin_sessions(self, now_ms: int) -> None:
        """Start the sessions of restored members, and the time for their revocations."""
        at_once(self.begin_sessions_in_steps(now_ms))

    def begin_sessions_in_steps(self, now_ms: int) -> Steps[None]:
        for member in self.members:
            self._restart_session(member, now_ms)
            self._time_revocation(member, now_ms)
            yield

    @event
    def tick(self, now_ms: int) -> Steps[None]:
        """Remove the members whose session, or whose time to revoke, join or sync, has ended.

        Of many members some are left for the next tick, which is then due.
        """
        for timer, member_id in islice(self._deadlines.take_due(now_ms), EXPIRED_PER_TICK_MAX):
            if member_id in self.members.by_id:
                yield from self._fence(member_id, f"{member_id} missed its deadline for {timer.value}", now_ms)
        yield from self._release_held(now_ms)

    def check_commit(
        self,
        member_id: str,
        instance_id: str | None,  # noqa: ARG002
        generation: int,
        now_ms: int,  # noqa: ARG002
        partitions: Iterable[TopicPartition],
        *,
        knows_epochs: bool = True,
    ) -> ErrorCode:
        """Return the code for an offset commit. Clients without a member id may commit while there are no members."""
        if generation < 0 and not self.members:
            return ErrorCode.none
        member = self.members.by_id.get(member_id)
        if member is None:
            return ErrorCode.unknown_member_id
        if member.classic is None and not knows_epochs:
            return ErrorCode.unsupported_version
        return self._check_commit_epoch(member, generation, partitions)

    def check_transactional_commit(
        self, member_id: str, instance_id: str | None, generation: int, partitions: Iterable[TopicPartition]
    ) -> ErrorCode:
        names_no_member = not member_id and instance_id is None
        if generation < 0 and (names_no_member or not self.members):
            return ErrorCode.none
        member = self.members.by_id.get(member_id)
        if member is None:
            return ErrorCode.unknown_member_id
        return self._check_commit_epoch(member, generation, partitions)

    def _check_commit_epoch(
        self, member: ConsumerMember, epoch: int, partitions: Iterable[TopicPartition]
    ) -> ErrorCode:
        """Accept the present epoch of a member, and one since which it has had all of the partitions (KIP-1251).

        The reply with the newer epoch may still be on its way. Since then the partitions have had no other owner, so
        that no offset of one can be overwritten (group rule 3).
        """
        if epoch >= member.epoch:
            return _check_epoch(member, epoch)
        by_name = self.context.topics().by_name
        for name, index in partitions:
            topic = by_name.get(name)
            since = None if topic is None else member.assignment_epoch(topic.id, index)
            if since is None or epoch < since:
                return _check_epoch(member, epoch)
        return ErrorCode.none

    def check_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        if member_id is None and member_epoch < 0:
            return ErrorCode.none
        member = self.members.by_id.get(member_id or "")
        return ErrorCode.unknown_member_id if member is None else _check_epoch(member, member_epoch)

    def check_offset_delete(self) -> ErrorCode:
        return ErrorCode.none

    def retained_from(self, topic: str, committed_ms: int) -> int | None:
        """Return the time of the commit, unless a member reads the topic."""
        return None if self.reads(topic) else committed_ms

    def _heartbeat(self, request: ConsumerHeartbeat, request_id: RequestId, member_id: str, now_ms: int) -> Steps[None]:
        before = yield from self._sender_of(request, member_id)
        self._may_describe = request.may_describe
        after = replace(
            before,
            instance_id=before.instance_id if request.instance_id is None else request.instance_id,
            rack_id=before.rack_id if request.rack_id is None else request.rack_id,
            rebalance_timeout_ms=(
                before.rebalance_timeout_ms
                if request.rebalance_timeout_ms == UNCHANGED
                else request.rebalance_timeout_ms
            ),
            topics=before.topics if request.topics is None else self.members.shared(request.topics),
            regex=before.regex if request.regex is None else request.regex,
            assignor=before.assignor if request.assignor is None else request.assignor,
            client_id=request.client_id,
            client_host=request.client_host,
            classic=None,
        )
        waits = (yield from self._subscribe(before, after, now_ms)) or before.epoch == JOIN_EPOCH
        self._restart_session(after, now_ms)
        for timer in (Timer.CLASSIC_JOIN, Timer.CLASSIC_SYNC):
            self._deadlines.remove(TimerKey(timer, member_id))
        is_full, owned = request.is_full, request.owned

        def reply(held: HeldRequest, member: ConsumerMember) -> HeartbeatAnswer:
            return HeartbeatAnswer(held.request_id, self._reply(member, held.before, owned, is_full=is_full))

        held = HeldRequest(request_id, self.group_epoch, before, request.owned, reply, _refusal)
        if waits:
            yield from self._hold(member_id, held, now_ms)
            return
        yield from self._advance()
        yield from self._release_held(now_ms)
        self._answers.append(reply(held, (yield from self._reconcile(member_id, request.owned, now_ms))))

    def _sender_of(self, request: ConsumerHeartbeat, member_id: str) -> Steps[ConsumerMember]:
        """Return the member that sent a heartbeat: known, new, or static and back under a new id. Raises Refused."""
        self._check_room(request, member_id)
        if request.instance_id is not None:
            return (yield from self._static_sender_of(request, request.instance_id, member_id))
        member = self.members.by_id.get(member_id)
        if member is None:
            if request.member_epoch != JOIN_EPOCH:
                raise self._unknown(member_id)
            return ConsumerMember(member_id)
        _check_heartbeat_epoch(member, request)
        return member

    def _static_sender_of(self, request: ConsumerHeartbeat, instance_id: str, member_id: str) -> Steps[ConsumerMember]:
        known = self.members.static(instance_id)
        if request.member_epoch != JOIN_EPOCH:
            if known is None:
                raise Refused(ErrorCode.unknown_member_id, f"Instance id {instance_id} is unknown.")
            _check_instance(known, instance_id, member_id)
            _check_heartbeat_epoch(known, request)
            return known
        if known is None:
            if member_id in self.members.by_id:
                _check_heartbeat_epoch(self.members.by_id[member_id], request)
            return self.members.by_id.get(member_id) or ConsumerMember(member_id, instance_id=instance_id)
        if known.classic is None and not has_left(known):
            message = (
                f"Static member {member_id} with instance id {instance_id} cannot join the group because the instance"
                f" id is owned by {known.id} member."
            )
            raise Refused(ErrorCode.unreleased_instance_id, message)
        if known.id != member_id and member_id in self.members.by_id:
            raise Refused(ErrorCode.invalid_request, f"Member {member_id} has another instance id.")
        return (yield from self._rename(known, member_id))

    def _check_room(self, request: ConsumerHeartbeat, member_id: str) -> None:
        """Refuse a new member of a full group, and an expression of a group that has too many. Raises Refused."""
        size_max = self.context.settings.consumer_size_max
        is_full = len(self.members) >= size_max or self.members.subscription_bytes >= SUBSCRIPTION_BYTES_MAX
        if is_full and member_id not in self.members.by_id:
            message = f"The consumer group has reached its maximum capacity of {size_max} members."
            raise Refused(ErrorCode.group_max_size_reached, message)
        is_new = request.regex and request.regex not in self.members.regexes
        if is_new and len(self.members.regexes) >= REGEXES_MAX:
            message = f"The group has {REGEXES_MAX} regular expressions, which is the most that it may have."
            raise Refused(ErrorCode.invalid_regular_expression, message)

    def _unknown(self, member_id: str) -> Refused:
        return Refused(ErrorCode.unknown_member_id, f"Member {member_id} is not a member of group {self.group_id}.")

    def _leave(self, request: ConsumerHeartbeat, request_id: RequestId, now_ms: int) -> Steps[None]:
        if request.instance_id is None:
            member = self.members.by_id.get(request.member_id)
            if member is None:
                raise self._unknown(request.member_id)
        else:
            member = self.members.static(request.instance_id)
            if member is None:
                raise Refused(ErrorCode.unknown_member_id, f"Instance id {request.instance_id} is unknown.")
            _check_instance(member, request.instance_id, request.member_id)
        reply = HeartbeatReply(ErrorCode.none, None, member.id, request.member_epoch)
        if request.member_epoch == STATIC_LEAVE_EPOCH:
            yield from self._leave_for_a_while(member)
        else:
            yield from self._fence(member.id, f"{member.id} left", now_ms)
        self._answers.append(HeartbeatAnswer(request_id, reply))

    def _leave_for_a_while(self, member: ConsumerMember) -> Steps[None]:
        """Keep the partitions of a static member until it returns, or its session ends."""
        self._refuse_held(member.id, ErrorCode.unknown_member_id, "The member has left.")
        self._deadlines.remove(TimerKey(Timer.REVOCATION, member.id))
        left = replace(
            member,
            epoch=STATIC_LEAVE_EPOCH,
            state=MemberState.STABLE,
            revoking=NO_PARTITIONS,
            # Any epoch of the next incarnation, which begins again with 0, is one in which it has had them.
            assignment_epochs=(yield from all_in(member.assigned, JOIN_EPOCH)),
        )
        yield from self._put(left)
        self._change(RecordType.CURRENT_ASSIGNMENT, member.id)

    def _reply(
        self, member: ConsumerMember, before: ConsumerMember, owned: Partitions | None, *, is_full: bool
    ) -> HeartbeatReply:
        """Return the reply to a member. The reply has the assignment until the member has confirmed it."""
        if is_full or (member.assigned is not before.assigned and member.assigned != before.assigned):
            self._unconfirmed.add(member.id)
        elif owned is not None:
            note = self._unconfirmed.discard if owned == member.assigned else self._unconfirmed.add
            note(member.id)
        assignment = member.assigned if member.id in self._unconfirmed else None
        interval_ms = self.context.config(self.group_id).consumer.heartbeat_interval_ms
        return HeartbeatReply(ErrorCode.none, None, member.id, member.epoch, interval_ms, assignment)


def _refusal(request_id: RequestId, code: ErrorCode, message: str) -> HeartbeatAnswer:
    return HeartbeatAnswer(request_id, HeartbeatReply(code, message))


def _check_instance(member: ConsumerMember, instance_id: str, member_id: str) -> None:
    if member.id != member_id:
        message = f"Static member {member_id} with instance id {instance_id} was fenced by member {member.id}."
        raise Refused(ErrorCode.fenced_instance_id, message)


def _check_heartbeat_epoch(member: ConsumerMember, request: ConsumerHeartbeat) -> None:
    """Refuse an epoch other than the member's, but for the previous one: the last reply may have been lost."""
    epoch = request.member_epoch
    if epoch == member.epoch:
        return
    is_subset = request.owned is not None and contains(member.assigned, request.owned)
    if epoch < member.epoch and epoch == member.previous_epoch and is_subset:
        return
    which = "greater" if epoch > member.epoch else "smaller"
    message = (
        f"The consumer group member has a {which} member epoch ({epoch}) than the one known by the group coordinator"
        f" ({member.epoch}). The member must abandon all its partitions and rejoin."
    )
    raise Refused(ErrorCode.fenced_member_epoch, message)


def _check_epoch(member: ConsumerMember, epoch: int) -> ErrorCode:
    if epoch == member.epoch:
        return ErrorCode.none
    return ErrorCode.stale_member_epoch if member.classic is None else ErrorCode.illegal_generation
