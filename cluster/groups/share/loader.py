"""Loader of share groups from the records of `__consumer_offsets`."""

from collections.abc import Iterator

from cordwood.cluster.coordination.fields import FieldReader
from cordwood.cluster.groups.context import GroupContext
from cordwood.cluster.groups.group_loader import GroupLoader
from cordwood.cluster.groups.share.formats import (
    SavedShareGroup,
    ShareRecordType,
    decode_current,
    decode_epoch,
    decode_member,
    decode_state_partitions,
    read_key,
)
from cordwood.cluster.groups.share.group import ShareGroup
from cordwood.cluster.groups.target_assignment import decode_target, decode_target_epoch
from cordwood.storage.steps import Steps


class ShareLoader(GroupLoader):
    """The loader of share groups: some records of each, and some of each member."""

    key_versions = tuple(ShareRecordType)

    def __init__(self, context: GroupContext) -> None:
        self._context = context
        self._saved: dict[str, SavedShareGroup] = {}

    def take(self, version: int, key: FieldReader, value: bytes) -> Steps[None]:
        group_id, record = read_key(version, key)
        saved = self._saved.setdefault(group_id, SavedShareGroup())
        saved.keys.append(record)
        match record.type:
            case ShareRecordType.GROUP_METADATA:
                saved.epoch = decode_epoch(value)
            case ShareRecordType.TARGET_METADATA:
                saved.assignment_epoch = decode_target_epoch(value)
            case ShareRecordType.STATE_PARTITIONS:
                saved.states = yield from decode_state_partitions(value)
            case ShareRecordType.MEMBER_METADATA:
                saved.members[record.member_id] = decode_member(record.member_id, value)
            case ShareRecordType.TARGET_MEMBER:
                saved.targets[record.member_id] = yield from decode_target(value)
            case ShareRecordType.CURRENT_ASSIGNMENT:
                saved.currents[record.member_id] = yield from decode_current(value)

    def groups(self) -> Iterator[ShareGroup | None]:
        for group_id, saved in self._saved.items():
            yield (yield from ShareGroup.restore(group_id, saved, self._context))
