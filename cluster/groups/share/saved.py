"""Records of one share group as they are loaded, and the order in which they are written."""

from dataclasses import dataclass, field

from cordwood.cluster.coordination.fields import FieldReader
from cordwood.cluster.groups.share.formats import (
    ShareCurrent,
    ShareEpoch,
    ShareRecordKey,
    ShareRecordType,
    StatePartitions,
    read_key,
)
from cordwood.cluster.groups.share.member import PartitionsById, ShareMember

_NEW = ShareEpoch(0, 0)


@dataclass(slots=True)
class SavedShareGroup:
    """The records of one share group."""

    epoch: ShareEpoch = _NEW
    assignment_epoch: int = 0
    states: StatePartitions | None = None
    members: dict[str, ShareMember] = field(default_factory=dict)
    targets: dict[str, PartitionsById] = field(default_factory=dict)
    currents: dict[str, ShareCurrent] = field(default_factory=dict)
    keys: list[ShareRecordKey] = field(default_factory=list)
    """The keys of all of them."""


ORDER = {
    kind: place
    for place, kind in enumerate(
        (
            ShareRecordType.MEMBER_METADATA,
            ShareRecordType.GROUP_METADATA,
            ShareRecordType.STATE_PARTITIONS,
            ShareRecordType.TARGET_MEMBER,
            ShareRecordType.TARGET_METADATA,
            ShareRecordType.CURRENT_ASSIGNMENT,
        )
    )
}
"""The order in which Kafka replays a change: a member before its partitions, a target before its epoch."""


def decoded_key(encoded: bytes) -> ShareRecordKey:
    fields = FieldReader(encoded)
    return read_key(fields.int16(), fields)[1]
