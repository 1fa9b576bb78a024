"""Record formats of share groups in `__consumer_offsets`: Kafka's own (KIP-932).

The key of a record begins with an int16, the type of the record, and names the group and, in records of members, the
member. A value begins with its int16 version, 0, and has compact fields.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple
from uuid import UUID

from cordwood.cluster.coordination.fields import (
    BYTE,
    INT,
    LONG,
    SHORT,
    FieldReader,
    encode_compact_array,
    encode_compact_nullable,
    encode_compact_string,
    encode_string,
)
from cordwood.cluster.groups.share.member import ShareMember
from cordwood.cluster.groups.target_assignment import (
    NO_TAGS,
    VALUE_VERSION,
    Partitions,
    encode_indexes,
    encode_partitions,
    read_partitions,
    value_fields,
)
from cordwood.storage.steps import ITEMS_PER_STEP, Steps, in_order, portions

_STABLE = BYTE.pack(0)
"""The state of a member in its record. Share groups have only this one."""


class ShareRecordType(IntEnum):
    """The records of a share group, by the version of their key."""

    MEMBER_METADATA = 10
    GROUP_METADATA = 11
    TARGET_METADATA = 12
    TARGET_MEMBER = 13
    CURRENT_ASSIGNMENT = 14
    STATE_PARTITIONS = 15


OF_MEMBERS = frozenset(
    {ShareRecordType.MEMBER_METADATA, ShareRecordType.TARGET_MEMBER, ShareRecordType.CURRENT_ASSIGNMENT}
)
"""The records of which a group has one for each member."""
_ORDER = (
    ShareRecordType.MEMBER_METADATA,
    ShareRecordType.GROUP_METADATA,
    ShareRecordType.STATE_PARTITIONS,
    ShareRecordType.TARGET_MEMBER,
    ShareRecordType.TARGET_METADATA,
    ShareRecordType.CURRENT_ASSIGNMENT,
)
"""The order in which Kafka replays a change: a member before its partitions, a target before its epoch."""


class ShareRecordKey(NamedTuple):
    """The key of a record of one group. `member_id` is empty for a record of the group."""

    type: ShareRecordType
    member_id: str = ""


@dataclass(frozen=True, slots=True)
class NamedPartitions:
    """Partitions of a topic, with the name that it has or had."""

    name: str
    partitions: frozenset[int]


@dataclass(frozen=True, slots=True)
class StatePartitions:
    """The partitions of which a share group has share state, by topic id."""

    initializing: Mapping[UUID, NamedPartitions] = field(default_factory=dict)
    """States that are being initialized: they may exist already."""
    initialized: Mapping[UUID, NamedPartitions] = field(default_factory=dict)
    deleting: Mapping[UUID, str] = field(default_factory=dict)
    """Names of the topics whose states are being deleted."""


class ShareEpoch(NamedTuple):
    """The value of the group's metadata: its epoch, and the hash of the topics that it reads."""

    epoch: int
    metadata_hash: int


_NO_EPOCH = ShareEpoch(0, 0)


class ShareCurrentAssignment(NamedTuple):
    """The value of a member's current assignment."""

    epoch: int
    previous_epoch: int
    assigned: Partitions


@dataclass(slots=True)
class SavedShareGroup:
    """The records of one share group."""

    epoch: ShareEpoch = _NO_EPOCH
    assignment_epoch: int = 0
    states: StatePartitions | None = None
    members: dict[str, ShareMember] = field(default_factory=dict)
    targets: dict[str, Partitions] = field(default_factory=dict)
    currents: dict[str, ShareCurrentAssignment] = field(default_factory=dict)
    keys: list[ShareRecordKey] = field(default_factory=list)
    """The keys of all these records."""


def place_of(key: ShareRecordKey) -> int:
    """Return the place of a record among those of one write."""
    return _ORDER.index(key.type)


def encode_key(group_id: str, key: ShareRecordKey) -> bytes:
    encoded = SHORT.pack(key.type) + encode_string(group_id)
    return encoded + encode_string(key.member_id) if key.type in OF_MEMBERS else encoded


def read_key(version: int, fields: FieldReader) -> tuple[str, ShareRecordKey]:
    """Read a key after its version: the group id, and which record it is. Raises CorruptBatch."""
    kind, group_id = ShareRecordType(version), fields.string()
    return group_id, ShareRecordKey(kind, fields.string() if kind in OF_MEMBERS else "")


def encode_member(member: ShareMember) -> bytes:
    """Encode a member's metadata, without its epochs and partitions."""
    return b"".join(
        (
            VALUE_VERSION,
            encode_compact_nullable(member.rack_id),
            encode_compact_string(member.client_id),
            encode_compact_string(member.client_host),
            encode_compact_array([encode_compact_string(topic) for topic in sorted(member.topics)]),
            NO_TAGS,
        )
    )


def decode_member(member_id: str, value: bytes) -> ShareMember:
    """Raises CorruptBatch."""
    fields = value_fields(value)
    rack_id, client_id, client_host = fields.nullable(), fields.string(), fields.string()
    topics = frozenset(fields.string() for _ in range(fields.count()))
    return ShareMember(member_id, rack_id, client_id, client_host, topics)


def encode_epoch(value: ShareEpoch) -> bytes:
    return VALUE_VERSION + INT.pack(value.epoch) + LONG.pack(value.metadata_hash) + NO_TAGS


def decode_epoch(value: bytes) -> ShareEpoch:
    """Raises CorruptBatch."""
    fields = value_fields(value)
    return ShareEpoch(fields.int32(), fields.int64())


def encode_current(member: ShareMember) -> Steps[bytes]:
    """Encode a member's epochs and partitions."""
    epochs = INT.pack(member.epoch) + INT.pack(member.previous_epoch)
    return VALUE_VERSION + epochs + _STABLE + (yield from encode_partitions(member.assigned)) + NO_TAGS


def decode_current(value: bytes) -> Steps[ShareCurrentAssignment]:
    """Raises CorruptBatch."""
    fields = value_fields(value)
    epoch, previous_epoch, _ = fields.int32(), fields.int32(), fields.int8()
    return ShareCurrentAssignment(epoch, previous_epoch, (yield from read_partitions(fields)))


def encode_state_partitions(value: StatePartitions) -> Steps[bytes]:
    deleting = [
        topic_id.bytes + encode_compact_string(name) + NO_TAGS
        for topic_id, name in sorted(value.deleting.items(), key=lambda item: item[0].int)
    ]
    return b"".join(
        (
            VALUE_VERSION,
            (yield from _encode_named(value.initializing)),
            (yield from _encode_named(value.initialized)),
            encode_compact_array(deleting),
            NO_TAGS,
        )
    )


def decode_state_partitions(value: bytes) -> Steps[StatePartitions]:
    """Raises CorruptBatch."""
    fields = value_fields(value)
    initializing = yield from _read_named(fields)
    initialized = yield from _read_named(fields)
    deleting = {}
    for _ in range(fields.count()):
        topic_id = fields.uuid()
        deleting[topic_id] = fields.string()
        fields.tags()
    return StatePartitions(initializing, initialized, deleting)


def _encode_named(topics: Mapping[UUID, NamedPartitions]) -> Steps[bytes]:
    encoded: list[bytes] = []
    for portion in portions((yield from in_order(topics, lambda topic_id: topic_id.int))):
        for topic_id in portion:
            topic = topics[topic_id]
            name, indexes = encode_compact_string(topic.name), encode_indexes(topic.partitions)
            encoded.append(topic_id.bytes + name + indexes + NO_TAGS)
        yield
    return encode_compact_array(encoded)


def _read_named(fields: FieldReader) -> Steps[dict[UUID, NamedPartitions]]:
    topics = {}
    for number in range(fields.count()):
        if number % ITEMS_PER_STEP == 0:
            yield
        topic_id, name = fields.uuid(), fields.string()
        topics[topic_id] = NamedPartitions(name, frozenset(fields.int32s()))
        fields.tags()
    return topics
