"""State of a consumer group: epochs, members, targets, topics, and the records and computations that follow from them.

`group.py` has the requests of members with the consumer protocol, `classic_members.py` those of members with the
classic protocol.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from typing import NamedTuple
from uuid import UUID

from kio.schema.errors import ErrorCode

from cordwood.cluster.groups.any_group import ClassicMembership, GroupKind
from cordwood.cluster.groups.changed_records import ChangedRecords
from cordwood.cluster.groups.consumer.assignment import AssignmentInput, assign
from cordwood.cluster.groups.consumer.formats import (
    GroupEpoch,
    RecordKey,
    RecordType,
    ResolvedRegex,
    encode_current,
    encode_group_epoch,
    encode_key,
    encode_member,
    encode_regex,
    place_of,
    read_key,
)
from cordwood.cluster.groups.consumer.member import ConsumerMember, MemberState
from cordwood.cluster.groups.consumer.members import ConsumerMembers
from cordwood.cluster.groups.consumer.reconciliation import reconcile
from cordwood.cluster.groups.consumer.topics import ReadTopics, ResolvedRegexes
from cordwood.cluster.groups.context import GroupContext
from cordwood.cluster.groups.deadlines import Deadlines
from cordwood.cluster.groups.epoch_group import EpochGroup, event
from cordwood.cluster.groups.exchange import (
    AnyAnswer,
    AppendRecords,
    Become,
    Compute,
    Convert,
    Effect,
    Rebalancing,
    RequestId,
)
from cordwood.cluster.groups.heartbeat import STATIC_LEAVE_EPOCH
from cordwood.cluster.groups.subscription import CONSUMER
from cordwood.cluster.groups.target_assignment import (
    COMPUTED_AT_ONCE_MAX,
    NO_PARTITIONS,
    Partitions,
    TargetAssignment,
    encode_target,
    encode_target_epoch,
)
from cordwood.cluster.resources.turns import FREE_STEPS
from cordwood.storage.steps import Steps

RELEASED_AT_ONCE_MAX = 200
"""Largest number of requests that one event reconciles and replies to. The others follow in the next iterations."""
WRITE_AGAIN_MS = 1_000
"""The pause after a write that failed. A request that needs a write does not wait for its end."""


class ConsumerState(Enum):
    """Group states, with the names that Kafka's tools show."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"
    """The state of a group that does not exist; no group is in it."""


class Timer(Enum):
    """The deadlines of a member."""

    SESSION = "the next heartbeat"
    REVOCATION = "the revocation of partitions"
    CLASSIC_JOIN = "JoinGroup, after a heartbeat that asks for it"
    CLASSIC_SYNC = "SyncGroup, after JoinGroup"
    RELEASE = "the rest of the requests whose assignment is computed"
    """Of the group: it has no member id."""
    WRITE = "the records of a write that failed"
    """Of the group, too."""


class TimerKey(NamedTuple):
    timer: Timer
    member_id: str


_WRITE_AGAIN = TimerKey(Timer.WRITE, "")


@dataclass(slots=True)
class HeldRequest:
    """A request that waits for an assignment of at least `epoch`."""

    request_id: RequestId
    epoch: int
    before: ConsumerMember
    owned: Partitions | None
    reply: Callable[["HeldRequest", ConsumerMember], AnyAnswer]
    """Returns the reply to the reconciled member."""
    refuse: Callable[[RequestId, ErrorCode, str], AnyAnswer]


class ConsumerGroupState(EpochGroup[RecordKey], ClassicMembership):
    """The state of one group, and its transitions."""

    kind = GroupKind.CONSUMER
    __slots__ = (
        "_answers",
        "_computing",
        "_conversion",
        "_deadlines",
        "_held",
        "_may_describe",
        "_may_release",
        "_reconciled",
        "_renamed",
        "_unconfirmed",
        "members",
        "metadata_hash",
        "topics",
    )

    def __init__(self, group_id: str, context: GroupContext) -> None:
        records = ChangedRecords(
            group_id, encode_key, read_key, place_of, is_deleted_last=lambda key: key.type is RecordType.CLASSIC_GROUP
        )
        super().__init__(group_id, context, records)
        self.metadata_hash = 0
        self.members = ConsumerMembers()
        self.topics = ReadTopics(context)
        self._reconciled: set[str] = set()
        """Members that hold their target assignment of `assignment_epoch`."""
        self._deadlines: Deadlines[TimerKey] = Deadlines()
        self._held: dict[str, HeldRequest] = {}
        """By member id."""
        self._may_release = False
        """Whether there may be something to release: a computation has ended since the last look, or none is needed."""
        self._computing: Compute | None = None
        self._renamed: dict[str, str] = {}
        """New ids of static members that came back while an assignment is computed."""
        self._unconfirmed: set[str] = set()
        """Members that were sent their assignment, and have not confirmed it."""
        self._may_describe: Callable[[str], bool] = lambda _: True
        self._conversion: Callable[[], Steps[Become]] | None = None
        self._answers: list[AnyAnswer] = []

    @property
    def state(self) -> ConsumerState:
        if not self.members:
            return ConsumerState.EMPTY
        if self.group_epoch > self.assignment_epoch:
            return ConsumerState.ASSIGNING
        is_stable = len(self._reconciled) == len(self.members)
        return ConsumerState.STABLE if is_stable else ConsumerState.RECONCILING

    @property
    def assignor(self) -> str:
        """The assignor that most members prefer; otherwise the broker's first."""
        known = self.context.settings.consumer_assignors
        wanted = [(votes, name) for name, votes in self.members.assignors.items() if name in known]
        return max(wanted, default=(0, known[0]))[1]

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def protocol_type(self) -> str:
        return CONSUMER

    @property
    def member_count(self) -> int:
        return len(self.members)

    @property
    def subscribed_topics(self) -> frozenset[str]:
        return self.topics.names

    def take_effects(self) -> Steps[list[Effect]]:
        effects = yield from super().take_effects()
        answers = tuple(self._answers)
        self._answers.clear()
        if self._conversion is not None:
            # The records stay noted: if the change of kind cannot be written, this group continues.
            effects.append(Convert(self._conversion, answers, is_large=len(self.members) > FREE_STEPS))
            self._conversion = None
        elif answers or _WRITE_AGAIN not in self._deadlines:
            self._deadlines.remove(_WRITE_AGAIN)
            contents = yield from self.records.take(self._value_of)
            if contents or answers:
                effects.append(AppendRecords(contents, answers))
        self._encoded_targets.clear()
        return effects

    def waiting(self) -> Iterator[RequestId]:
        return (held.request_id for held in self._held.values())

    def next_deadline(self) -> int | None:
        return self._deadlines.next()

    def not_appended(self, append: AppendRecords, code: ErrorCode, now_ms: int) -> None:  # noqa: ARG002
        """Note the records again. They go with the next reply, or after a pause: the log may refuse them at once."""
        if append.contents:
            self.records.change_again(append.contents)
            self._deadlines.put(_WRITE_AGAIN, now_ms + WRITE_AGAIN_MS)

    def not_converted(self) -> None:
        """Go on: compute again what may have ended while the group's successor was in its place."""
        self._computing = None
        self.events.append(self._advance())

    def topics_changed(self, names: frozenset[str]) -> None:
        self.topics.note_changed(names)

    def reads(self, topic: str) -> bool:
        return self.topics.reads(topic)

    @event
    def computed(self, compute: Compute, result: object, now_ms: int) -> Steps[None]:
        """Take a result, start the next computation, and reply to the requests that waited for the result."""
        if self._computing is not compute:
            # A conversion that failed has begun another one.
            return
        self._computing = None
        yield from self._take(result)
        yield from self._advance()
        yield from self._release_held(now_ms)

    def restore_member(self, member: ConsumerMember, target: Partitions | None) -> Steps[None]:
        """Add a member of the log. Call `restore_regexes` after all members."""
        topics = self.members.shared(member.topics)
        yield from self._put(member if topics is member.topics else replace(member, topics=topics))
        yield from self.topics.add(topics)
        if target is not None:
            self.targets[member.id] = target

    def restore_regexes(self, regexes: Mapping[str, ResolvedRegex]) -> Steps[None]:
        """Add the resolved expressions of the log that a member subscribes with."""
        for regex, resolved in regexes.items():
            if regex in self.members.regexes:
                yield from self.topics.resolve(regex, resolved)

    def adopt(self, members: Iterable[ConsumerMember], epoch: int) -> Steps[None]:
        """Begin with the members of a classic group, their assignments as targets, in its generation."""
        self.group_epoch = self.assignment_epoch = epoch
        for member in members:
            yield from self.restore_member(member, member.assigned)
            for kind in (RecordType.MEMBER_METADATA, RecordType.TARGET_MEMBER, RecordType.CURRENT_ASSIGNMENT):
                self._change(kind, member.id)
            yield
        self.metadata_hash = self.topics.hash
        self._change(RecordType.GROUP_METADATA)
        self._change(RecordType.TARGET_METADATA)

    def append_adopted(self) -> Steps[None]:
        """Have the records of the adopted members appended before those of any request."""
        contents = yield from self.records.take(self._value_of)
        self._effects.append(AppendRecords(contents))

    def replace_classic(self) -> None:
        """Delete the record of the classic group that this one was."""
        self.records.in_log[RecordKey(RecordType.CLASSIC_GROUP)] = None
        self._change(RecordType.CLASSIC_GROUP)

    def _change(self, kind: RecordType, of: str = "") -> None:
        self.records.change(RecordKey(kind, of))

    def _advance(self) -> Steps[None]:
        """Compute missing results: the topics of regular expressions first, and then the target assignment."""
        while self._computing is None:
            if self.topics.unresolved:
                is_large = self.topics.resolution_is_large
                yield from self._compute(self.topics.resolution(self._may_describe), is_large)
            elif self.members and self.assignment_epoch < self.group_epoch:
                yield from self._compute(self._assignment(), self._assignment_is_large())
            else:
                break

    def _compute(self, steps: Steps[object], is_large: bool) -> Steps[None]:
        if is_large:
            self._computing = Compute(lambda: steps)
            self._effects.append(self._computing)
        else:
            yield from self._take((yield from steps))

    def _take(self, result: object) -> Steps[None]:
        self._may_release = True
        match result:
            case ResolvedRegexes():
                yield from self._take_regexes(result)
            case TargetAssignment():
                self._take_assignment(result)

    def _take_regexes(self, regexes: ResolvedRegexes) -> Steps[None]:
        has_changed = False
        for regex, names in regexes.found.items():
            if regex in self.members.regexes:
                resolved = ResolvedRegex(names, regexes.version, self.context.wall_clock())
                has_changed |= yield from self.topics.resolve(regex, resolved)
                self._change(RecordType.REGULAR_EXPRESSION, regex)
        if has_changed:
            self.metadata_hash = self.topics.hash
            self._bump("the topics of a regular expression have changed")
        for member_id, held in self._held.items():
            if self.members.by_id[member_id].regex in regexes.found:
                held.epoch = self.group_epoch

    def _assignment_is_large(self) -> bool:
        if len(self.members) > COMPUTED_AT_ONCE_MAX:
            return True
        by_name, size = self.context.topics().by_name, len(self.members)
        for name in self.topics.each():
            topic = by_name.get(name)
            size += 1 if topic is None else len(topic.partitions)
            if size > COMPUTED_AT_ONCE_MAX:
                return True
        return False

    def _assignment(self) -> Steps[object]:
        self._renamed.clear()
        group = AssignmentInput(
            self.group_epoch,
            self.assignor,
            list(self.members),
            dict(self.topics.resolved),
            dict(self.targets),
            self.context.topics(),
        )
        return (yield from assign(group))

    def _take_assignment(self, computed: TargetAssignment) -> None:
        for member_id, (partitions, encoded) in computed.changed.items():
            current_id = self._renamed.get(member_id, member_id)
            if current_id in self.members.by_id:
                self.targets[current_id] = partitions
                self._encoded_targets[current_id] = encoded
                self._change(RecordType.TARGET_MEMBER, current_id)
        self._renamed.clear()
        self.assignment_epoch = max(self.assignment_epoch, computed.epoch)
        self._change(RecordType.TARGET_METADATA)
        self._reconciled.clear()

    def _release_held(self, now_ms: int) -> Steps[None]:
        """Reply to the requests whose assignment is computed. Of many, leave some for the next `tick`, which is due."""
        if not self._may_release:
            return
        due = [member_id for member_id, held in self._held.items() if self._is_due(member_id, held)]
        for member_id in due[:RELEASED_AT_ONCE_MAX]:
            held = self._held.pop(member_id)
            self._answers.append(held.reply(held, (yield from self._reconcile(member_id, held.owned, now_ms))))
            yield
        self._may_release = len(due) > RELEASED_AT_ONCE_MAX
        if self._may_release:
            self._deadlines.put(TimerKey(Timer.RELEASE, ""), now_ms)

    def _is_due(self, member_id: str, held: HeldRequest) -> bool:
        regex = self.members.by_id[member_id].regex
        is_resolved = not regex or regex in self.topics.resolved
        return held.epoch <= self.assignment_epoch and is_resolved

    def _hold(self, member_id: str, held: HeldRequest, now_ms: int) -> Steps[None]:
        """Reply to a request once its member can be reconciled, which may be at once."""
        self._refuse_held(member_id, ErrorCode.coordinator_not_available, "There is a newer request of the member.")
        self._held[member_id] = held
        self._may_release |= held.epoch <= self.assignment_epoch
        yield from self._advance()
        yield from self._release_held(now_ms)

    def _refuse_held(self, member_id: str, code: ErrorCode, message: str) -> None:
        held = self._held.pop(member_id, None)
        if held is not None:
            self._answers.append(held.refuse(held.request_id, code, message))

    def _reconcile(self, member_id: str, owned: Partitions | None, now_ms: int) -> Steps[ConsumerMember]:
        """Bring a member as near to its target as it can go now."""
        member = self.members.by_id[member_id]
        if self.group_epoch == self.assignment_epoch and member.is_reconciled_to(self.group_epoch):
            # It has its target. A change of its subscription would have begun a new group epoch.
            return member
        target = self.targets.get(member_id, NO_PARTITIONS)
        is_subscribed = partial(self._is_subscribed, member)
        owner_of = self.members.owner_of
        updated = yield from reconcile(member, self.assignment_epoch, target, owned, owner_of, is_subscribed)
        if updated is not member and not (yield from updated.has_same_assignment(member)):
            yield from self._put(updated)
            self._change(RecordType.CURRENT_ASSIGNMENT, member_id)
            self._time_revocation(updated, now_ms)
            return updated
        return member

    def _time_revocation(self, member: ConsumerMember, now_ms: int) -> None:
        key = TimerKey(Timer.REVOCATION, member.id)
        if member.classic is not None or member.state is not MemberState.UNREVOKED_PARTITIONS:
            self._deadlines.remove(key)
        else:
            self._deadlines.put(key, now_ms + member.rebalance_timeout_ms)

    def _is_subscribed(self, member: ConsumerMember, topic_id: UUID) -> bool:
        topic = self.context.topics().by_id.get(topic_id)
        return topic is not None and self.topics.subscribes(member, topic.name)

    def _put(self, member: ConsumerMember) -> Steps[None]:
        """Add or replace a member, and note whether it holds its target."""
        yield from self.members.put(member)
        if member.is_reconciled_to(self.assignment_epoch):
            self._reconciled.add(member.id)
        else:
            self._reconciled.discard(member.id)

    def _subscribe(self, before: ConsumerMember, after: ConsumerMember, now_ms: int) -> Steps[bool]:
        """Put a member whose metadata may have changed. Return whether it needs a new assignment.

        The group epoch is bumped if the member reads other topics, or if the group's topics have changed.
        """
        is_new = before.id not in self.members.by_id
        yield from self._put(after)
        if is_new or not before.has_same_metadata(after):
            self._change(RecordType.MEMBER_METADATA, after.id)
        if is_new:
            self._change(RecordType.CURRENT_ASSIGNMENT, after.id)
        if after.topics is not before.topics:
            yield from self.topics.add(after.topics - before.topics)
            yield from self.topics.remove(before.topics - after.topics)
        if before.regex != after.regex:
            if after.regex:
                self.topics.add_regex(after.regex)
            yield from self._drop_unread_regex(before.regex)
        reads_others = before.topics != after.topics or before.regex != after.regex or self.group_epoch == 0
        has_changed = yield from self._refresh_topics(now_ms)
        if has_changed or reads_others:
            self._bump(f"{after.id} has subscribed" if reads_others else "topics have changed")
        return reads_others

    def _drop_unread_regex(self, regex: str) -> Steps[None]:
        """Forget an expression that no member subscribes with any more."""
        if regex and regex not in self.members.regexes:
            yield from self.topics.remove_regex(regex)
            self._change(RecordType.REGULAR_EXPRESSION, regex)

    def _refresh_topics(self, now_ms: int) -> Steps[bool]:
        """Follow the changes of topics. Return whether the topics that the group reads have changed."""
        yield from self.topics.refresh(self.members.regexes, now_ms)
        if self.topics.hash == self.metadata_hash:
            return False
        self.metadata_hash = self.topics.hash
        self._change(RecordType.GROUP_METADATA)
        return True

    def _bump(self, reason: str) -> None:
        self.group_epoch += 1
        self._change(RecordType.GROUP_METADATA)
        self._effects.append(Rebalancing(reason))

    def _bump_after_departure(self, reason: str) -> None:
        """Bump the group epoch. As in Kafka, the empty assignment of a group without members needs no computation."""
        self._bump(reason)
        if not self.members:
            self.assignment_epoch = self.group_epoch
            self._change(RecordType.TARGET_METADATA)

    def _remove(self, member_id: str, message: str) -> Steps[ConsumerMember]:
        """Remove a member and its partitions."""
        self._refuse_held(member_id, ErrorCode.unknown_member_id, message)
        member = yield from self.members.remove(member_id)
        self._reconciled.discard(member_id)
        self._unconfirmed.discard(member_id)
        self.targets.pop(member_id, None)
        for timer in Timer:
            self._deadlines.remove(TimerKey(timer, member_id))
        for kind in (RecordType.MEMBER_METADATA, RecordType.TARGET_MEMBER, RecordType.CURRENT_ASSIGNMENT):
            self._change(kind, member_id)
        return member

    def _unsubscribe(self, member: ConsumerMember) -> Steps[None]:
        """Follow the removal of a member, which may have been the last to read its topics."""
        yield from self.topics.remove(member.topics)
        yield from self._drop_unread_regex(member.regex)
        self.metadata_hash = self.topics.hash

    def _rename(self, old: ConsumerMember, new_id: str) -> Steps[ConsumerMember]:
        """Replace a static member by itself under a new id, with its partitions and its target."""
        target = self.targets.get(old.id)
        yield from self._remove(old.id, f"Static member {old.instance_id} came back as {new_id}.")
        new = replace(old, id=new_id, epoch=0, previous_epoch=0)
        yield from self._put(new)
        if target is not None:
            self.targets[new_id] = target
        if self._computing is not None:
            original = next((was for was, now in self._renamed.items() if now == old.id), old.id)
            self._renamed[original] = new_id
        for kind in (RecordType.MEMBER_METADATA, RecordType.TARGET_MEMBER, RecordType.CURRENT_ASSIGNMENT):
            self._change(kind, new_id)
        return new

    def _value_of(self, key: RecordKey) -> Steps[bytes | None]:
        """Return the present value of a record; None if there is none."""
        member = self.members.by_id.get(key.of)
        match key.type:
            case RecordType.GROUP_METADATA:
                return encode_group_epoch(GroupEpoch(self.group_epoch, self.metadata_hash))
            case RecordType.TARGET_METADATA:
                return encode_target_epoch(self.assignment_epoch)
            case RecordType.MEMBER_METADATA:
                return None if member is None else encode_member(member)
            case RecordType.CURRENT_ASSIGNMENT:
                return None if member is None else (yield from encode_current(member))
            case RecordType.TARGET_MEMBER:
                if (target := self.targets.get(key.of)) is None:
                    return None
                return self._encoded_targets.get(key.of) or (yield from encode_target(target))
            case RecordType.REGULAR_EXPRESSION:
                resolved = self.topics.resolved.get(key.of)
                return None if resolved is None else encode_regex(resolved)
            case RecordType.CLASSIC_GROUP | RecordType.PARTITION_METADATA:
                return None


def has_left(member: ConsumerMember) -> bool:
    """Return whether a static member has left and may come back."""
    return member.epoch == STATIC_LEAVE_EPOCH
