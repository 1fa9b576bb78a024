"""Share group: a state machine without clock and network (KIP-932).

Members subscribe to topics by name, and each gets partitions at its next heartbeat once an assignment is computed.
A change of members, subscriptions, topics or initialized share states begins a new group epoch, for which a new
assignment is computed. A partition need not be revoked before another member gets it: members may share partitions, and
the partition's leader locks single records.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import NamedTuple
from uuid import UUID

from kio.schema.errors import ErrorCode

from cordwood.cluster.groups.any_group import GroupKind, OffsetlessGroup
from cordwood.cluster.groups.changed_records import ChangedRecords
from cordwood.cluster.groups.context import GroupContext
from cordwood.cluster.groups.deadlines import Deadlines
from cordwood.cluster.groups.epoch_group import EpochGroup, event
from cordwood.cluster.groups.exchange import AppendRecords, Compute, HeartbeatAnswer, RequestId
from cordwood.cluster.groups.heartbeat import JOIN_EPOCH, LEAVE_EPOCH, HeartbeatReply
from cordwood.cluster.groups.share.assignment import ShareAssignmentInput, compute
from cordwood.cluster.groups.share.exchange import Discard, Initialize, ShareHeartbeat, SharePartitionId, StateStart
from cordwood.cluster.groups.share.formats import (
    SavedShareGroup,
    ShareEpoch,
    ShareRecordKey,
    ShareRecordType,
    encode_current,
    encode_epoch,
    encode_key,
    encode_member,
    encode_state_partitions,
    place_of,
    read_key,
)
from cordwood.cluster.groups.share.member import ShareMember
from cordwood.cluster.groups.share.states import ShareStates
from cordwood.cluster.groups.share.topics import SubscribedTopics
from cordwood.cluster.groups.target_assignment import (
    COMPUTED_AT_ONCE_MAX,
    NO_PARTITIONS,
    TargetAssignment,
    encode_target,
    encode_target_epoch,
)
from cordwood.cluster.metadata.image import TopicImage
from cordwood.storage.steps import Steps, portions, same_items

PROTOCOL = "share"
JOIN_WAIT_MS = 1_000
"""How long a join waits for the share states of new topics, so that its reply has partitions already."""


class _Waiting(NamedTuple):
    """A heartbeat whose reply waits for an assignment, and a join also for share states, until `until_ms`."""

    request_id: RequestId
    request: ShareHeartbeat
    until_ms: int


class ShareGroup(EpochGroup[ShareRecordKey], OffsetlessGroup):
    """One share group. After each call that may change it, the caller executes its effects."""

    __slots__ = ("_computing", "_is_large", "_members", "_sessions", "_topics", "_waiting", "states")

    kind = GroupKind.SHARE

    def __init__(self, group_id: str, context: GroupContext, in_log: Iterable[ShareRecordKey] = ()) -> None:
        super().__init__(group_id, context, ChangedRecords(group_id, encode_key, read_key, place_of, in_log))
        self.states = ShareStates()
        self._members: dict[str, ShareMember] = {}
        self._topics = SubscribedTopics(context)
        self._computing = self._is_large = False
        self._sessions: Deadlines[str] = Deadlines()
        self._waiting: list[_Waiting] = []

    @property
    def state_name(self) -> str:
        return "Stable" if self._members else "Empty"

    @property
    def protocol_type(self) -> str:
        return PROTOCOL

    @property
    def member_count(self) -> int:
        return len(self._members)

    @property
    def members(self) -> Iterable[ShareMember]:
        return self._members.values()

    @property
    def subscribed_topics(self) -> frozenset[str]:
        return self._topics.names

    def next_deadline(self) -> int | None:
        deadlines = [one.until_ms for one in self._waiting] if not self._computing else []
        session = self._sessions.next()
        return min(deadlines if session is None else [session, *deadlines], default=None)

    @event
    def tick(self, now_ms: int) -> Steps[None]:
        """Remove members whose sessions have timed out, and answer joins that have waited long enough."""
        for member_id in list(self._sessions.take_due(now_ms)):
            yield from self._remove(self._members[member_id])
            yield
        yield from self._answer_waiting(now_ms)
        yield from self._append()

    def begin_sessions(self, now_ms: int) -> None:
        timeout_ms = self.context.config(self.group_id).share.session_timeout_ms
        for member_id in self._members:
            self._sessions.put(member_id, now_ms + timeout_ms)

    def waiting(self) -> Iterable[RequestId]:
        return [one.request_id for one in self._waiting]

    def reads(self, topic: str) -> bool:
        return topic in self._topics

    def topics_changed(self, names: frozenset[str]) -> None:
        self._topics.note_changed(names)

    def not_appended(self, append: AppendRecords, code: ErrorCode, now_ms: int) -> None:  # noqa: ARG002
        self.records.change_again(append.contents)

    @event
    def heartbeat(self, request: ShareHeartbeat, request_id: RequestId, now_ms: int) -> Steps[None]:
        """Handle ShareGroupHeartbeat. The reply is an effect, possibly later."""
        refusal = self._refusal(request)
        if refusal is not None:
            self._effects.append(HeartbeatAnswer(request_id, refusal))
            return
        if request.member_epoch == LEAVE_EPOCH:
            yield from self._remove(self._members[request.member_id])
            reply = HeartbeatReply(ErrorCode.none, member_id=request.member_id, member_epoch=LEAVE_EPOCH)
            yield from self._append(HeartbeatAnswer(request_id, reply))
            return
        yield from self._subscribe(request)
        yield from self._follow_topics(now_ms)
        config = self.context.config(self.group_id).share
        self._sessions.put(request.member_id, now_ms + config.session_timeout_ms)
        yield from self._compute()
        is_join = request.member_epoch == JOIN_EPOCH
        self._waiting.append(_Waiting(request_id, request, now_ms + JOIN_WAIT_MS if is_join else now_ms))
        yield from self._answer_waiting(now_ms)

    @event
    def computed(self, compute: Compute, result: object, now_ms: int) -> Steps[None]:  # noqa: ARG002
        assert isinstance(result, TargetAssignment), "the group's computations are assignments"
        self._computing = False
        self.assignment_epoch = max(self.assignment_epoch, result.epoch)
        self._change(ShareRecordType.TARGET_METADATA)
        for member_id, (target, encoded) in result.changed.items():
            if member_id in self._members:
                self.targets[member_id] = target
                self._encoded_targets[member_id] = encoded
                self._change(ShareRecordType.TARGET_MEMBER, member_id)
        if self._waiting:
            yield from self._compute()
        yield from self._answer_waiting(now_ms)
        yield from self._append()

    @event
    def initialized(
        self, succeeded: Sequence[SharePartitionId], failed: Sequence[SharePartitionId], now_ms: int
    ) -> Steps[None]:
        """Note which share states have been initialized. Failed ones are initialized again by a later heartbeat."""
        if (yield from self.states.end(succeeded, failed, now_ms)):
            self._bump()
            self._change(ShareRecordType.STATE_PARTITIONS)
        if failed:
            self._topics.is_stale = True
        if self._waiting:
            yield from self._compute()
        yield from self._answer_waiting(now_ms)
        yield from self._append()

    @event
    def discarded(self, topic_ids: Collection[UUID], failed: Collection[UUID], now_ms: int) -> Steps[None]:
        """Note that topics have no share states any more, but for those in `failed`.

        A later heartbeat deletes the states of these again. The share coordinators do it for a topic that is deleted.
        """
        by_id = self.context.topics().by_id
        for portion in portions(topic_ids):
            for topic_id in portion:
                if topic_id in failed and topic_id in by_id:
                    self.states.not_deleted(topic_id, now_ms)
                else:
                    self.states.deleted(topic_id)
            yield
        # Members may read these topics by now.
        self._topics.is_stale = True
        self._change(ShareRecordType.STATE_PARTITIONS)
        yield from self._append()

    def forget_topics(self, topic_ids: Iterable[UUID] | None = None) -> None:
        """Delete the share states of topics that were deleted: of these, or of all that do not exist any more."""
        if topic_ids is None or any(map(self.states.has, topic_ids)):
            self.events.append(self._forget_topics())

    def _forget_topics(self) -> Steps[None]:
        by_id = self.context.topics().by_id
        gone, partitions = [], []
        for portion in portions(self.states.topic_ids()):
            for topic_id in portion:
                if topic_id not in by_id:
                    gone.append(topic_id)
                    partitions += self.states.delete(topic_id)
            yield
        if gone:
            self._topics.is_stale = True
            self._change(ShareRecordType.STATE_PARTITIONS)
            yield from self._append()
            self._effects.append(Discard(tuple(partitions), frozenset(gone)))

    def begin_reset(self, partitions: Iterable[SharePartitionId], names: Mapping[UUID, str]) -> int:
        """Begin to set start offsets, in a new epoch that fences what partition leaders still write. Return it."""
        self._bump()
        self._begin_reset(partitions, names)
        return self.group_epoch

    @event
    def _begin_reset(self, partitions: Iterable[SharePartitionId], names: Mapping[UUID, str]) -> Steps[None]:
        yield from self.states.begin_again(partitions, names)
        self._change(ShareRecordType.STATE_PARTITIONS)
        yield from self._append()

    def begin_discard(self, topics: Iterable[TopicImage]) -> Steps[list[SharePartitionId]]:
        """Begin to delete the share states of topics. Return their partitions. Nothing may change between the steps."""
        partitions = []
        for topic in topics:
            partitions += self.states.delete(topic.id, len(topic.partitions))
            yield
        self._change(ShareRecordType.STATE_PARTITIONS)
        self.events.append(self._append())
        return partitions

    def _refusal(self, request: ShareHeartbeat) -> HeartbeatReply | None:
        """Return the reply to a request that the group refuses, or None."""
        member, limit = self._members.get(request.member_id), self.context.settings.share_size_max
        if member is None:
            if request.member_epoch != LEAVE_EPOCH and len(self._members) >= limit:
                message = f"The share group has reached its maximum capacity of {limit} members."
                return HeartbeatReply(ErrorCode.group_max_size_reached, message)
            if request.member_epoch != JOIN_EPOCH:
                message = f"Member {request.member_id} is not a member of group {self.group_id}."
                return HeartbeatReply(ErrorCode.unknown_member_id, message)
        elif request.member_epoch > 0 and request.member_epoch not in (member.epoch, member.previous_epoch):
            than = "greater" if request.member_epoch > member.epoch else "smaller"
            message = (
                f"The share group member has a {than} member epoch ({request.member_epoch}) than the one known by the"
                f" group coordinator ({member.epoch}). The member must abandon all its partitions and rejoin."
            )
            return HeartbeatReply(ErrorCode.fenced_member_epoch, message)
        return None

    def _subscribe(self, request: ShareHeartbeat) -> Steps[None]:
        before = self._members.get(request.member_id)
        member = before or ShareMember(request.member_id)
        after = replace(
            member,
            rack_id=member.rack_id if request.rack_id is None else request.rack_id,
            client_id=request.client_id,
            client_host=request.client_host,
            topics=member.topics if request.topics is None else request.topics,
        )
        if after == before:
            return
        self._members[member.id] = after
        self._change(ShareRecordType.MEMBER_METADATA, member.id)
        if before is None or before.topics != after.topics:
            yield from self._topics.change(after.topics, member.topics)
            self._bump()

    def _remove(self, member: ShareMember) -> Steps[None]:
        del self._members[member.id]
        self.targets.pop(member.id, None)
        self._encoded_targets.pop(member.id, None)
        self._sessions.remove(member.id)
        yield from self._topics.change(frozenset(), member.topics)
        for kind in (
            ShareRecordType.MEMBER_METADATA,
            ShareRecordType.TARGET_MEMBER,
            ShareRecordType.CURRENT_ASSIGNMENT,
        ):
            self._change(kind, member.id)
        self._bump()
        if not self._members:
            # As in Kafka, the assignment of no member is computed at once.
            self.assignment_epoch = self.group_epoch
            self._change(ShareRecordType.TARGET_METADATA)

    def _follow_topics(self, now_ms: int) -> Steps[None]:
        """Compare the topics that the group reads, and initialize the share states that are lacking."""
        if not self._topics.is_stale or now_ms < self.states.retry_at_ms:
            return
        known = self._topics.hash
        topics = yield from self._topics.refresh()
        if self._topics.hash != known:
            self._bump()
        if unfinished := (yield from self.states.delete_again(topics)):
            self._effects.append(Discard(tuple(chain.from_iterable(unfinished.values())), frozenset(unfinished)))
        begun = yield from self.states.begin(topics)
        if begun:
            self._change(ShareRecordType.STATE_PARTITIONS)
            yield from self._append()
            starts, start = {}, StateStart(self.group_epoch)
            for portion in portions(begun):
                starts.update(dict.fromkeys(portion, start))
                yield
            self._effects.append(Initialize(starts))

    def _bump(self) -> None:
        self.group_epoch += 1
        self._change(ShareRecordType.GROUP_METADATA)

    def _compute(self) -> Steps[None]:
        """Have the assignment of the group's epoch computed, unless it is known or another one is being computed."""
        if self._computing or self.assignment_epoch == self.group_epoch:
            return
        self._computing = True
        topics = yield from self._topics.existing()
        initialized = yield from self.states.initialized()
        ids = {topic.name: topic.id for topic in topics}
        group = ShareAssignmentInput(
            self.group_epoch, list(self._members.values()), ids, initialized, dict(self.targets)
        )
        size = len(group.members) + sum(map(len, group.initialized.values()))
        self._is_large = size > COMPUTED_AT_ONCE_MAX
        # A small computation is done at once: what it changes must not be written before what has changed until now.
        yield from self._append()
        self._effects.append(Compute(lambda: compute(group), is_large=self._is_large))

    def _answer_waiting(self, now_ms: int) -> Steps[None]:
        """Answer the heartbeats that need not wait any longer."""
        ready, self._waiting = self._waiting, []
        for one in ready:
            if self._must_wait(one, now_ms):
                self._waiting.append(one)
            else:
                yield from self._reply(one)
                yield

    def _must_wait(self, one: _Waiting, now_ms: int) -> bool:
        is_join = one.request.member_epoch == JOIN_EPOCH
        if self._computing:
            return is_join or not self._is_large or not self.assignment_epoch
        return is_join and self.states.is_busy and now_ms < one.until_ms

    def _reply(self, waiting: _Waiting) -> Steps[None]:
        """Bring the member to the epoch of the assignment, and answer."""
        request = waiting.request
        before = self._members.get(request.member_id)
        if before is None:
            message = f"Member {request.member_id} is not a member of group {self.group_id}."
            reply = HeartbeatReply(ErrorCode.unknown_member_id, message)
            yield from self._append(HeartbeatAnswer(waiting.request_id, reply))
            return
        member = before
        if before.epoch != self.assignment_epoch:
            target = self.targets.get(before.id, NO_PARTITIONS)
            member = replace(before, epoch=self.assignment_epoch, previous_epoch=before.epoch, assigned=target)
            self._members[member.id] = member
            self._change(ShareRecordType.CURRENT_ASSIGNMENT, member.id)
        is_same = yield from same_items(member.assigned, before.assigned)
        knows = request.topics is None and request.member_epoch == before.epoch and is_same
        reply = HeartbeatReply(
            ErrorCode.none,
            member_id=member.id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=self.context.config(self.group_id).share.heartbeat_interval_ms,
            assignment=None if knows else member.assigned,
        )
        yield from self._append(HeartbeatAnswer(waiting.request_id, reply))

    def _change(self, kind: ShareRecordType, member_id: str = "") -> None:
        self.records.change(ShareRecordKey(kind, member_id))

    def _append(self, *answers: HeartbeatAnswer) -> Steps[None]:
        contents = yield from self.records.take(self._value_of)
        if contents or answers:
            self._effects.append(AppendRecords(contents, answers))

    def _value_of(self, key: ShareRecordKey) -> Steps[bytes | None]:
        member = self._members.get(key.member_id)
        match key.type:
            case ShareRecordType.GROUP_METADATA:
                return encode_epoch(ShareEpoch(self.group_epoch, self._topics.hash))
            case ShareRecordType.TARGET_METADATA:
                return encode_target_epoch(self.assignment_epoch)
            case ShareRecordType.STATE_PARTITIONS:
                saved = yield from self.states.saved()
                return None if saved is None else (yield from encode_state_partitions(saved))
            case ShareRecordType.MEMBER_METADATA:
                return None if member is None else encode_member(member)
            case ShareRecordType.TARGET_MEMBER:
                target, encoded = self.targets.get(key.member_id), self._encoded_targets.pop(key.member_id, None)
                return encoded if target is None or encoded is not None else (yield from encode_target(target))
            case ShareRecordType.CURRENT_ASSIGNMENT:
                return None if member is None else (yield from encode_current(member))

    @classmethod
    def restore(cls, group_id: str, saved: SavedShareGroup, context: GroupContext) -> Steps["ShareGroup"]:
        """Return a group from its records."""
        group = cls(group_id, context, saved.keys)
        group.group_epoch, group._topics.hash = saved.epoch
        group.assignment_epoch = saved.assignment_epoch
        group.states = ShareStates(saved.states)
        group.targets = {member: target for member, target in saved.targets.items() if member in saved.members}
        for member_id, member in saved.members.items():
            current = saved.currents.get(member_id)
            if current is not None:
                member = replace(
                    member,
                    epoch=current.epoch,
                    previous_epoch=current.previous_epoch,
                    assigned=current.assigned,
                )
            group._members[member_id] = member
            yield from group._topics.change(member.topics, frozenset())
        return group
