"""Record formats of share groups in `__consumer_offsets`: Kafka's own (KIP-932).

The key of a record begins with an int16 that says which record it is, and names the group and, of records of members,
the member. A value begins with its int16 version, 0, and has compact fields.
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
    encode_tags,
)
from cordwood.cluster.groups.share.member import PartitionsById, ShareMember

_VERSION = SHORT.pack(0)
_NO_TAGS = encode_tags({})
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


class ShareCurrent(NamedTuple):
    """The value of a member's current assignment."""

    epoch: int
    previous_epoch: int
    assigned: PartitionsById


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
            _VERSION,
            encode_compact_nullable(member.rack_id),
            encode_compact_string(member.client_id),
            encode_compact_string(member.client_host),
            encode_compact_array([encode_compact_string(topic) for topic in sorted(member.topics)]),
            _NO_TAGS,
        )
    )


def decode_member(member_id: str, value: bytes) -> ShareMember:
    """Raises CorruptBatch."""
    fields = _value(value)
    rack_id, client_id, client_host = fields.nullable(), fields.string(), fields.string()
    topics = frozenset(fields.string() for _ in range(fields.count()))
    return ShareMember(member_id, rack_id, client_id, client_host, topics)


def encode_epoch(value: ShareEpoch) -> bytes:
    return _VERSION + INT.pack(value.epoch) + LONG.pack(value.metadata_hash) + _NO_TAGS


def decode_epoch(value: bytes) -> ShareEpoch:
    """Raises CorruptBatch."""
    fields = _value(value)
    return ShareEpoch(fields.int32(), fields.int64())


def encode_target_epoch(epoch: int) -> bytes:
    return _VERSION + INT.pack(epoch) + _NO_TAGS


def decode_target_epoch(value: bytes) -> int:
    """Raises CorruptBatch."""
    return _value(value).int32()


def encode_target(target: PartitionsById) -> bytes:
    return _VERSION + _encode_partitions(target) + _NO_TAGS


def decode_target(value: bytes) -> PartitionsById:
    """Raises CorruptBatch."""
    return _read_partitions(_value(value))


def encode_current(member: ShareMember) -> bytes:
    """Encode a member's epochs and partitions."""
    epochs = INT.pack(member.epoch) + INT.pack(member.previous_epoch)
    return _VERSION + epochs + _STABLE + _encode_partitions(member.assigned) + _NO_TAGS


def decode_current(value: bytes) -> ShareCurrent:
    """Raises CorruptBatch."""
    fields = _value(value)
    epoch, previous_epoch, _ = fields.int32(), fields.int32(), fields.int8()
    return ShareCurrent(epoch, previous_epoch, _read_partitions(fields))


def encode_state_partitions(value: StatePartitions) -> bytes:
    deleting = [
        topic_id.bytes + encode_compact_string(name) + _NO_TAGS for topic_id, name in sorted(value.deleting.items())
    ]
    return b"".join(
        (
            _VERSION,
            _encode_named(value.initializing),
            _encode_named(value.initialized),
            encode_compact_array(deleting),
            _NO_TAGS,
        )
    )


def decode_state_partitions(value: bytes) -> StatePartitions:
    """Raises CorruptBatch."""
    fields = _value(value)
    initializing, initialized = _read_named(fields), _read_named(fields)
    deleting = {}
    for _ in range(fields.count()):
        topic_id = fields.uuid()
        deleting[topic_id] = fields.string()
        fields.tags()
    return StatePartitions(initializing, initialized, deleting)


def _encode_indexes(partitions: frozenset[int]) -> bytes:
    return encode_compact_array([INT.pack(index) for index in sorted(partitions)])


def _encode_partitions(partitions: PartitionsById) -> bytes:
    return encode_compact_array(
        [topic_id.bytes + _encode_indexes(partitions[topic_id]) + _NO_TAGS for topic_id in sorted(partitions)]
    )


def _read_partitions(fields: FieldReader) -> PartitionsById:
    partitions = {}
    for _ in range(fields.count()):
        topic_id, indexes = fields.uuid(), frozenset(fields.int32s())
        fields.tags()
        if indexes:
            partitions[topic_id] = indexes
    return partitions


def _encode_named(topics: Mapping[UUID, NamedPartitions]) -> bytes:
    return encode_compact_array(
        [
            topic_id.bytes + encode_compact_string(topic.name) + _encode_indexes(topic.partitions) + _NO_TAGS
            for topic_id, topic in sorted(topics.items())
        ]
    )


def _read_named(fields: FieldReader) -> dict[UUID, NamedPartitions]:
    topics = {}
    for _ in range(fields.count()):
        topic_id, name = fields.uuid(), fields.string()
        topics[topic_id] = NamedPartitions(name, frozenset(fields.int32s()))
        fields.tags()
    return topics


def _value(value: bytes) -> FieldReader:
    fields = FieldReader(value)
    fields.version(0, 0)
    return fields
