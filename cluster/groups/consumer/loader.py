"""Loader of consumer groups: from the records of members, targets and epochs to the state of each group."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from uuid import UUID

from cordwood.cluster.coordination.fields import FieldReader
from cordwood.cluster.groups.consumer.formats import (
    CurrentAssignment,
    GroupEpoch,
    RecordKey,
    RecordType,
    ResolvedRegex,
    decode_current,
    decode_group_epoch,
    decode_member,
    decode_regex,
    read_key,
)
from cordwood.cluster.groups.consumer.group import ConsumerGroup
from cordwood.cluster.groups.consumer.member import ConsumerMember, MemberState
from cordwood.cluster.groups.consumer.reconciliation import kept_epochs, not_taken, united
from cordwood.cluster.groups.context import GroupContext
from cordwood.cluster.groups.group_loader import GroupLoader
from cordwood.cluster.groups.target_assignment import Partitions, decode_target, decode_target_epoch
from cordwood.storage.steps import Steps

_STATES = frozenset(MemberState)
_NO_EPOCH = GroupEpoch(0, 0)


@dataclass(slots=True)
class _Found:
    """The records of one group."""

    keys: dict[RecordKey, None] = field(default_factory=dict)
    epoch: GroupEpoch = _NO_EPOCH
    target_epoch: int = 0
    members: dict[str, ConsumerMember] = field(default_factory=dict)
    targets: dict[str, Partitions] = field(default_factory=dict)
    currents: dict[str, CurrentAssignment] = field(default_factory=dict)
    regexes: dict[str, ResolvedRegex] = field(default_factory=dict)


class ConsumerLoader(GroupLoader):
    """The loader of all consumer groups of a shard."""

    key_versions = tuple(kind for kind in RecordType if kind is not RecordType.CLASSIC_GROUP)

    def __init__(self, context: GroupContext) -> None:
        self._context = context
        self._found: dict[str, _Found] = {}

    def take(self, version: int, key: FieldReader, value: bytes) -> Steps[None]:
        group_id, record = read_key(version, key)
        found = self._found.setdefault(group_id, _Found())
        found.keys[record] = None
        match record.type:
            case RecordType.GROUP_METADATA:
                found.epoch = decode_group_epoch(value)
            case RecordType.TARGET_METADATA:
                found.target_epoch = decode_target_epoch(value)
            case RecordType.MEMBER_METADATA:
                found.members[record.of] = decode_member(record.of, value)
            case RecordType.TARGET_MEMBER:
                found.targets[record.of] = yield from decode_target(value)
            case RecordType.CURRENT_ASSIGNMENT:
                found.currents[record.of] = yield from decode_current(value)
            case RecordType.REGULAR_EXPRESSION:
                found.regexes[record.of] = decode_regex(value)
            case _:
                # What Kafka wrote before 4.1, and does not need any more.
                pass

    def groups(self) -> Iterator[ConsumerGroup | None]:
        for group_id, found in self._found.items():
            yield (yield from _restored(group_id, found, self._context))


def _restored(group_id: str, found: _Found, context: GroupContext) -> Steps[ConsumerGroup]:
    group = ConsumerGroup(group_id, context)
    group.records.in_log |= found.keys
    group.group_epoch, group.metadata_hash = found.epoch
    group.assignment_epoch = found.target_epoch
    taken: dict[UUID, set[int]] = {}
    for member_id, member in found.members.items():
        place = found.currents.get(member_id)
        restored = member if place is None else (yield from _placed(member, place, taken))
        if restored.classic is not None and not restored.classic.protocols:
            restored = replace(restored, classic=None)
        yield from group.restore_member(restored, found.targets.get(member_id))
    yield from group.restore_regexes(found.regexes)
    if RecordKey(RecordType.PARTITION_METADATA) in found.keys:
        group.records.change(RecordKey(RecordType.PARTITION_METADATA))
    return group


def _placed(member: ConsumerMember, place: CurrentAssignment, taken: dict[UUID, set[int]]) -> Steps[ConsumerMember]:
    """Return the member with its epochs and partitions. One that another member has too is left to that one."""
    assigned = yield from not_taken(place.assigned, taken)
    revoking = yield from not_taken(place.revoking, taken)
    epochs = yield from kept_epochs(place.assignment_epochs, (yield from united(assigned, revoking)))
    return replace(
        member,
        epoch=place.epoch,
        previous_epoch=place.previous_epoch,
        state=MemberState(place.state) if place.state in _STATES else MemberState.UNREVOKED_PARTITIONS,
        assigned=assigned,
        revoking=revoking,
        assignment_epochs=epochs,
    )
