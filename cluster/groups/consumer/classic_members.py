"""Classic members of a consumer group: JoinGroup, SyncGroup, Heartbeat and LeaveGroup of members that are not upgraded.

To such a member each target epoch is a generation. A heartbeat of the member gets REBALANCE_IN_PROGRESS when the member
has to revoke partitions or may get others. The member joins again with the partitions that it still owns, and SyncGroup
returns its new assignment. When the last member with the consumer protocol leaves, the group becomes a classic one.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from kio.schema.errors import ErrorCode

from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.groups.classic.group import ClassicGroup
from cordwood.cluster.groups.consumer.conversion import as_classic, ids_of_names, names_of_ids
from cordwood.cluster.groups.consumer.embedded import (
    EmbeddedSubscription,
    MalformedConsumer,
    encode_assignment,
    read_subscription,
    version_of,
)
from cordwood.cluster.groups.consumer.member import ClassicProtocols, ConsumerMember, MemberState
from cordwood.cluster.groups.consumer.reconciliation import places_in
from cordwood.cluster.groups.consumer.state import ConsumerGroupState, HeldRequest, Timer, TimerKey
from cordwood.cluster.groups.epoch_group import event
from cordwood.cluster.groups.exchange import (
    NO_MEMBER,
    Become,
    Join,
    JoinAnswer,
    JoinReply,
    Leaver,
    RequestId,
    Sync,
    SyncAnswer,
    SyncReply,
)
from cordwood.cluster.groups.subscription import CONSUMER
from cordwood.cluster.groups.target_assignment import NO_PARTITIONS
from cordwood.storage.steps import Steps, kept

METADATA_BYTES_MAX = 4 << 20
"""Largest size of the metadata of all protocols of a member."""


class ClassicMembers(ConsumerGroupState):
    """The requests of classic members, and what removes a member of either protocol."""

    __slots__ = ()

    @event
    def join(self, request: Join, request_id: RequestId, new_id: str, now_ms: int) -> Steps[None]:
        """Handle JoinGroup. A group without members becomes a classic group."""
        if not self.members:
            classic = ClassicGroup(self.group_id, self.context.settings)
            classic.join(request, request_id, new_id, now_ms)
            self._conversion = partial(self._replaced, classic)
            return
        try:
            yield from self._join(request, request_id, request.member_id or new_id, now_ms)
        except Refused as refusal:
            self._answers.append(JoinAnswer(request_id, JoinReply(refusal.code, NO_MEMBER)))

    @event
    def sync(self, request: Sync, request_id: RequestId, now_ms: int) -> Steps[None]:
        """Handle SyncGroup: the member gets the partitions that it holds in its generation."""
        code = self._check_sync(request)
        if code is not ErrorCode.none:
            self._answers.append(SyncAnswer(request_id, SyncReply(code)))
            return
        member = self.members.by_id[request.member_id]
        assert member.classic is not None, "it was checked"
        self._deadlines.remove(TimerKey(Timer.CLASSIC_SYNC, member.id))
        self._restart_session(member, now_ms)
        version = version_of(member.classic.protocols[0].metadata)
        names = yield from names_of_ids(member.assigned, self.context.topics())
        content = yield from encode_assignment(version, names)
        reply = SyncReply(ErrorCode.none, content, request.protocol_type, request.protocol)
        self._answers.append(SyncAnswer(request_id, reply))

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int, now_ms: int) -> ErrorCode:
        code = self._check_classic(member_id, instance_id, generation)
        if code is not ErrorCode.none:
            return code
        member = self.members.by_id[member_id]
        self._restart_session(member, now_ms)
        if not self._has_to_rejoin(member):
            return ErrorCode.none
        key = TimerKey(Timer.CLASSIC_JOIN, member_id)
        if key not in self._deadlines:
            self._deadlines.put(key, now_ms + member.rebalance_timeout_ms)
        return ErrorCode.rebalance_in_progress

    def leave(self, leavers: Sequence[Leaver], now_ms: int) -> list[ErrorCode]:
        """Handle LeaveGroup, which removes classic members only. One new assignment serves all of them."""
        codes: list[ErrorCode] = []
        gone: dict[str, None] = {}
        for leaver in leavers:
            code, member = self._leaving(leaver)
            if member is not None and member.id in gone:
                code = ErrorCode.unknown_member_id
            elif member is not None:
                gone[member.id] = None
            codes.append(code)
        if gone:
            self._left(list(gone), now_ms)
        return codes

    @event
    def _left(self, member_ids: Sequence[str], now_ms: int) -> Steps[None]:
        gone = []
        for member_id in member_ids:
            if member_id in self.members.by_id:
                gone.append((yield from self._remove(member_id, "The member has left.")))
            yield
        for member in gone:
            yield from self._unsubscribe(member)
            yield
        if gone:
            self._bump_after_departure(f"{', '.join(member.id for member in gone)} left")
            self._maybe_downgrade(now_ms)

    def _join(self, request: Join, request_id: RequestId, member_id: str, now_ms: int) -> Steps[None]:
        self._check_join(request, member_id)
        if request.must_know_id and request.member_id == NO_MEMBER and request.instance_id is None:
            self._answers.append(JoinAnswer(request_id, JoinReply(ErrorCode.member_id_required, member_id)))
            return
        subscription = yield from _subscription_of(request)
        before = yield from self._joining(request, member_id)
        topics = self.context.topics()
        after = replace(
            before,
            instance_id=before.instance_id if request.instance_id is None else request.instance_id,
            rack_id=subscription.rack_id or before.rack_id,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            assignor=None,
            topics=self.members.shared(subscription.topics),
            regex="",
            client_id=request.client_id,
            client_host=request.client_host,
            classic=ClassicProtocols(request.session_timeout_ms, request.protocols),
        )
        yield from self._subscribe(before, after, now_ms)
        self._deadlines.remove(TimerKey(Timer.CLASSIC_JOIN, member_id))
        self._restart_session(after, now_ms)
        if self._maybe_downgrade(now_ms):
            # The client joins the classic group, whose first rebalance has begun.
            self._answers.append(JoinAnswer(request_id, JoinReply(ErrorCode.rebalance_in_progress, member_id)))
            return
        self._deadlines.put(TimerKey(Timer.CLASSIC_SYNC, member_id), now_ms + request.rebalance_timeout_ms)
        owned = yield from ids_of_names(subscription.owned, topics)
        held = HeldRequest(request_id, self.group_epoch, before, owned, _joined, _join_refusal)
        yield from self._hold(member_id, held, now_ms)

    def _check_join(self, request: Join, member_id: str) -> None:
        """Raise Refused for a request that the group does not accept."""
        is_full = len(self.members) >= self.context.settings.consumer_size_max
        if is_full and member_id not in self.members.by_id:
            raise Refused(ErrorCode.group_max_size_reached)
        if sum(len(protocol.metadata) for protocol in request.protocols) > METADATA_BYTES_MAX:
            # Its record would not fit the log, so that nothing of the group could be written.
            raise Refused(ErrorCode.inconsistent_group_protocol)
        supported, count = self.members.classic_protocols, self.members.classic_count
        fits = any(supported[protocol.name] == count for protocol in request.protocols)
        if request.protocol_type != CONSUMER or not fits:
            raise Refused(ErrorCode.inconsistent_group_protocol)

    def _joining(self, request: Join, member_id: str) -> Steps[ConsumerMember]:
        """Return the member that joins: known, new, or static and back under a new id. Raises Refused."""
        if request.instance_id is None:
            return self.members.by_id.get(member_id) or ConsumerMember(member_id)
        known = self.members.static(request.instance_id)
        if request.member_id != NO_MEMBER:
            if known is None:
                raise Refused(ErrorCode.unknown_member_id)
            if known.id != member_id:
                raise Refused(ErrorCode.fenced_instance_id)
            return known
        if known is None:
            return ConsumerMember(member_id, instance_id=request.instance_id)
        return (yield from self._rename(known, member_id))

    def _check_sync(self, request: Sync) -> ErrorCode:
        code = self._check_classic(request.member_id, request.instance_id, request.generation)
        if code is not ErrorCode.none:
            return code
        member = self.members.by_id[request.member_id]
        assert member.classic is not None, "it was checked"
        if request.protocol_type not in (None, CONSUMER):
            return ErrorCode.inconsistent_group_protocol
        if request.protocol not in (None, member.classic.protocols[0].name):
            return ErrorCode.inconsistent_group_protocol
        # A member revokes the partitions that are missing in its new assignment.
        is_behind = member.epoch < self.group_epoch and member.state is not MemberState.UNREVOKED_PARTITIONS
        return ErrorCode.rebalance_in_progress if is_behind else ErrorCode.none

    def _check_classic(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        if instance_id is not None:
            known = self.members.static(instance_id)
            if known is None:
                return ErrorCode.unknown_member_id
            if known.id != member_id:
                return ErrorCode.fenced_instance_id
        member = self.members.by_id.get(member_id)
        if member is None or member.classic is None:
            return ErrorCode.unknown_member_id
        return ErrorCode.none if generation == member.epoch else ErrorCode.illegal_generation

    def _has_to_rejoin(self, member: ConsumerMember) -> bool:
        """Return whether a classic member has partitions to revoke, or may get those that it waits for."""
        if member.epoch < self.group_epoch or member.state is MemberState.UNREVOKED_PARTITIONS:
            return True
        return member.state is MemberState.UNRELEASED_PARTITIONS and not self._waits_for_others(member)

    def _waits_for_others(self, member: ConsumerMember) -> bool:
        """Return whether another member holds a partition of the member's target."""
        target = self.targets.get(member.id, NO_PARTITIONS)
        return any(self.members.owner_of(*place) not in (None, member.id) for place in places_in(target))

    def _leaving(self, leaver: Leaver) -> tuple[ErrorCode, ConsumerMember | None]:
        if leaver.instance_id is None:
            member = self.members.by_id.get(leaver.member_id)
        else:
            member = self.members.static(leaver.instance_id)
            if member is not None and leaver.member_id not in (NO_MEMBER, member.id):
                return ErrorCode.fenced_instance_id, None
        if member is None or member.classic is None:
            return ErrorCode.unknown_member_id, None
        return ErrorCode.none, member

    def _restart_session(self, member: ConsumerMember, now_ms: int) -> None:
        if member.classic is not None:
            timeout_ms = member.classic.session_timeout_ms
        else:
            timeout_ms = self.context.config(self.group_id).consumer.session_timeout_ms
        self._deadlines.put(TimerKey(Timer.SESSION, member.id), now_ms + timeout_ms)

    def _fence(self, member_id: str, reason: str, now_ms: int) -> Steps[None]:
        """Remove a member, and bump the group epoch: the others get its partitions with the next assignment."""
        yield from self._unsubscribe((yield from self._remove(member_id, reason)))
        self._bump_after_departure(reason)
        self._maybe_downgrade(now_ms)

    def _maybe_downgrade(self, now_ms: int) -> bool:
        """Become a classic group if only classic members are left, and if the broker allows it."""
        self._conversion = None
        settings, count = self.context.settings, len(self.members)
        is_classic = count > 0 and self.members.classic_count == count
        if not is_classic or not settings.consumer_migration.may_downgrade or count > settings.size_max:
            return False
        self._conversion = partial(self._downgraded, now_ms)
        return True

    def _replaced(self, classic: ClassicGroup) -> Steps[Become]:
        """Return what deletes this group, which has no members, for a new classic group."""
        contents = yield from kept((key, None) for key in self.records.encoded_keys())
        return Become(classic, tuple(contents))

    def _downgraded(self, now_ms: int) -> Steps[Become]:
        """Return the classic group of these members, whose first rebalance has begun. Nothing may change meanwhile."""
        saved = yield from as_classic(self, self.context.topics())
        successor = yield from ClassicGroup.restore(self.group_id, saved, self.context.settings)
        protocols = ((member.id, member.classic.protocols) for member in self.members if member.classic is not None)
        yield from successor.keep_protocols(protocols, now_ms)
        successor.rebalance("The group has become a classic group.", now_ms)
        contents = yield from kept((key, None) for key in self.records.encoded_keys())
        message = "The group becomes a classic group."
        answers = yield from kept(
            held.refuse(held.request_id, ErrorCode.rebalance_in_progress, message) for held in self._held.values()
        )
        self._held.clear()
        return Become(successor, tuple(contents), saved, tuple(answers))


def _subscription_of(request: Join) -> Steps[EmbeddedSubscription]:
    """Return the subscription in a request. Raises Refused."""
    try:
        return (yield from read_subscription(request.protocols[0].metadata))
    except MalformedConsumer as error:
        raise Refused(ErrorCode.inconsistent_group_protocol) from error


def _joined(held: HeldRequest, member: ConsumerMember) -> JoinAnswer:
    assert member.classic is not None, "a member that joined is a classic one"
    protocol = member.classic.protocols[0].name
    return JoinAnswer(held.request_id, JoinReply(ErrorCode.none, member.id, member.epoch, CONSUMER, protocol))


def _join_refusal(request_id: RequestId, code: ErrorCode, _message: str) -> JoinAnswer:
    return JoinAnswer(request_id, JoinReply(code, NO_MEMBER))
