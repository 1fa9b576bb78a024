"""Record formats of `__consumer_offsets`: Kafka's own, so that its tools can read the topic.

Keys and values begin with an int16 version. OffsetCommitKey 1, OffsetCommitValue 3, GroupMetadataKey 2 and
GroupMetadataValue 3 are written; all versions that Kafka has written are read.
"""

import struct
from typing import NamedTuple

from cordwood.cluster.coordination.fields import INT, LONG, SHORT, FieldReader, encode_string
from cordwood.cluster.groups.exchange import SavedGroup, SavedMember
from cordwood.storage.steps import Steps
from cordwood.storage.types import NO_EPOCH, TopicPartition

_OFFSET_AND_EPOCH = struct.Struct(">hqi")

OFFSET_KEYS = (0, 1)
GROUP_KEY = 2
"""The versions of the keys of committed offsets and of classic groups. Other kinds of groups have their own."""
_OFFSET_KEY_WRITTEN = 1
_VALUE_WRITTEN = 3
_FIRST_FLEXIBLE = 4


class OffsetKey(NamedTuple):
    """The key of a committed offset."""

    group_id: str
    topic: str
    partition: int

    @property
    def place(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class CommittedOffset(NamedTuple):
    """A committed offset with the metadata that its consumer gave. The time is in wall-clock milliseconds."""

    offset: int
    leader_epoch: int
    metadata: str
    committed_ms: int


def encode_offset_key(key: OffsetKey) -> bytes:
    return (
        SHORT.pack(_OFFSET_KEY_WRITTEN)
        + encode_string(key.group_id)
        + encode_string(key.topic)
        + INT.pack(key.partition)
    )


def encode_group_key(group_id: str) -> bytes:
    return SHORT.pack(GROUP_KEY) + encode_string(group_id)


def encode_offset(committed: CommittedOffset) -> bytes:
    head = _OFFSET_AND_EPOCH.pack(_VALUE_WRITTEN, committed.offset, committed.leader_epoch)
    return head + encode_string(committed.metadata) + LONG.pack(committed.committed_ms)


def encode_group(group: SavedGroup, since_ms: int) -> Steps[bytes]:
    """Encode a GroupMetadata value, a member a step. `since_ms` is the wall-clock time of the last change of state."""
    head = SHORT.pack(_VALUE_WRITTEN) + encode_string(group.protocol_type) + INT.pack(group.generation)
    chosen = encode_string(group.protocol) + encode_string(group.leader) + LONG.pack(since_ms)
    parts = [head, chosen, INT.pack(len(group.members))]
    for member in group.members:
        # A subscription or an assignment may have many megabytes: it is copied only once.
        parts += _member(member)
        yield
    return b"".join(parts)


def decode_offset_key(key: bytes) -> OffsetKey | None:
    """Decode the key of a committed offset. Return None for any other key. Raises CorruptBatch."""
    fields = FieldReader(key)
    return read_offset_key(fields) if fields.int16() in OFFSET_KEYS else None


def read_offset_key(fields: FieldReader) -> OffsetKey:
    """Read the key of a committed offset after its version."""
    return OffsetKey(fields.string(), fields.string(), fields.int32())


def decode_offset(value: bytes) -> CommittedOffset:
    """Decode an OffsetCommit value. Raises CorruptBatch."""
    fields = FieldReader(value)
    version = fields.version(_FIRST_FLEXIBLE, _FIRST_FLEXIBLE)
    offset = fields.int64()
    leader_epoch = fields.int32() if version >= 3 else NO_EPOCH
    return CommittedOffset(offset, leader_epoch, fields.string(), fields.int64())


def decode_group(value: bytes) -> Steps[SavedGroup]:
    """Decode a GroupMetadata value, a member a step. Raises CorruptBatch."""
    fields = FieldReader(value)
    version = fields.version(_FIRST_FLEXIBLE, _FIRST_FLEXIBLE)
    protocol_type, generation = fields.string(), fields.int32()
    protocol, leader = fields.nullable(), fields.nullable()
    since_ms = fields.int64() if version >= 2 else -1
    members = []
    for _ in range(fields.count()):
        members.append(_read_member(fields, version))
        yield
    return SavedGroup(protocol_type, generation, protocol, leader, tuple(members), since_ms)


def _member(member: SavedMember) -> tuple[bytes, ...]:
    """Return the encoded fields of a member."""
    names = (member.member_id, member.instance_id, member.client_id, member.client_host)
    return (
        b"".join(map(encode_string, names)),
        INT.pack(member.rebalance_timeout_ms),
        INT.pack(member.session_timeout_ms),
        INT.pack(len(member.subscription)),
        member.subscription,
        INT.pack(len(member.assignment)),
        member.assignment,
    )


def _read_member(fields: FieldReader, version: int) -> SavedMember:
    member = SavedMember(
        member_id=fields.string(),
        instance_id=fields.nullable() if version >= 3 else None,
        client_id=fields.string(),
        client_host=fields.string(),
        rebalance_timeout_ms=fields.int32() if version >= 1 else -1,
        session_timeout_ms=fields.int32(),
        subscription=fields.content(),
        assignment=fields.content(),
    )
    fields.tags()
    return member
