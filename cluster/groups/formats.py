"""Record formats of `__consumer_offsets`: Kafka's own, so that its tools can read the topic.

Keys and values begin with an int16 version. OffsetCommitKey 1, OffsetCommitValue 3, GroupMetadataKey 2 and
GroupMetadataValue 3 are written; all versions that Kafka has written are read. Strings are UTF-8 with an int16 length,
byte arrays have an int32 length, -1 for null; flexible versions (4) have varint lengths plus one and tagged fields
(KIP-482).
"""

import struct
from typing import NamedTuple

from cordwood.cluster.groups.exchange import SavedGroup, SavedMember
from cordwood.storage.errors import CorruptBatch

_SHORT, _INT, _LONG = struct.Struct(">h"), struct.Struct(">i"), struct.Struct(">q")
_OFFSET_AND_EPOCH = struct.Struct(">hqi")

_OFFSET_KEYS = (0, 1)
_GROUP_KEY = 2
_OFFSET_KEY_WRITTEN = 1
_VALUE_WRITTEN = 3
_FIRST_FLEXIBLE = 4

NO_EPOCH = -1


class OffsetKey(NamedTuple):
    """The key of a committed offset."""

    group_id: str
    topic: str
    partition: int


class GroupKey(NamedTuple):
    """The key of a group's metadata."""

    group_id: str


class CommittedOffset(NamedTuple):
    """A committed offset with the metadata that its consumer gave. The time is in wall-clock milliseconds."""

    offset: int
    leader_epoch: int
    metadata: str
    committed_ms: int


def encode_offset_key(key: OffsetKey) -> bytes:
    return _SHORT.pack(_OFFSET_KEY_WRITTEN) + _string(key.group_id) + _string(key.topic) + _INT.pack(key.partition)


def encode_group_key(group_id: str) -> bytes:
    return _SHORT.pack(_GROUP_KEY) + _string(group_id)


def encode_offset(committed: CommittedOffset) -> bytes:
    head = _OFFSET_AND_EPOCH.pack(_VALUE_WRITTEN, committed.offset, committed.leader_epoch)
    return head + _string(committed.metadata) + _LONG.pack(committed.committed_ms)


def encode_group(group: SavedGroup, since_ms: int) -> bytes:
    """Encode a GroupMetadata value. `since_ms` is the wall-clock time of the group's last change of state."""
    head = _SHORT.pack(_VALUE_WRITTEN) + _string(group.protocol_type) + _INT.pack(group.generation)
    chosen = _string(group.protocol) + _string(group.leader) + _LONG.pack(since_ms)
    return b"".join((head, chosen, _INT.pack(len(group.members)), *map(_member, group.members)))


def decode_key(key: bytes) -> OffsetKey | GroupKey | None:
    """Decode a key. Return None for a kind of record that this broker does not know. Raises CorruptBatch."""
    fields = _Fields(key)
    version = fields.int16()
    if version in _OFFSET_KEYS:
        return OffsetKey(fields.string(), fields.string(), fields.int32())
    if version == _GROUP_KEY:
        return GroupKey(fields.string())
    return None


def decode_offset(value: bytes) -> CommittedOffset:
    """Decode an OffsetCommit value. Raises CorruptBatch."""
    fields = _Fields(value)
    version = fields.version()
    offset = fields.int64()
    leader_epoch = fields.int32() if version >= 3 else NO_EPOCH
    return CommittedOffset(offset, leader_epoch, fields.string(), fields.int64())


def decode_group(value: bytes) -> SavedGroup:
    """Decode a GroupMetadata value. Raises CorruptBatch."""
    fields = _Fields(value)
    version = fields.version()
    protocol_type, generation = fields.string(), fields.int32()
    protocol, leader = fields.nullable(), fields.nullable()
    since_ms = fields.int64() if version >= 2 else -1
    count = fields.count()
    members = tuple(_read_member(fields, version) for _ in range(count))
    return SavedGroup(protocol_type, generation, protocol, leader, members, since_ms)


def _member(member: SavedMember) -> bytes:
    return b"".join(
        (
            _string(member.member_id),
            _string(member.instance_id),
            _string(member.client_id),
            _string(member.client_host),
            _INT.pack(member.rebalance_timeout_ms),
            _INT.pack(member.session_timeout_ms),
            _bytes(member.subscription),
            _bytes(member.assignment),
        )
    )


def _read_member(fields: "_Fields", version: int) -> SavedMember:
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
    fields.skip_tags()
    return member


def _string(text: str | None) -> bytes:
    if text is None:
        return _SHORT.pack(-1)
    encoded = text.encode()
    return _SHORT.pack(len(encoded)) + encoded


def _bytes(content: bytes) -> bytes:
    return _INT.pack(len(content)) + content


class _Fields:
    """A reader of the fields of a key or a value, in order."""

    __slots__ = ("_content", "_is_flexible", "_position")

    def __init__(self, content: bytes) -> None:
        self._content, self._position, self._is_flexible = content, 0, False

    def version(self) -> int:
        """Read the version. Raises CorruptBatch for one of a newer broker: to guess its fields would lose offsets."""
        version = self.int16()
        if not 0 <= version <= _FIRST_FLEXIBLE:
            raise CorruptBatch(f"a value of version {version}, but only versions up to {_FIRST_FLEXIBLE} are known")
        self._is_flexible = version >= _FIRST_FLEXIBLE
        return version

    def int16(self) -> int:
        return self._number(_SHORT)

    def int32(self) -> int:
        return self._number(_INT)

    def int64(self) -> int:
        return self._number(_LONG)

    def count(self) -> int:
        return self._uvarint() - 1 if self._is_flexible else self.int32()

    def nullable(self) -> str | None:
        length = self._uvarint() - 1 if self._is_flexible else self.int16()
        return None if length < 0 else self._text(length)

    def string(self) -> str:
        return self.nullable() or ""

    def content(self) -> bytes:
        return self._take(max(self.count(), 0))

    def skip_tags(self) -> None:
        if self._is_flexible:
            for _ in range(self._uvarint()):
                self._uvarint()
                self._take(self._uvarint())

    def _number(self, layout: struct.Struct) -> int:
        number: int = layout.unpack(self._take(layout.size))[0]
        return number

    def _text(self, length: int) -> str:
        try:
            return self._take(length).decode()
        except UnicodeDecodeError as error:
            raise CorruptBatch(f"text that is not UTF-8: {error}") from error

    def _take(self, length: int) -> bytes:
        end = self._position + length
        if end > len(self._content):
            raise CorruptBatch(
                f"a field of {length} bytes, but only {len(self._content) - self._position} bytes remain"
            )
        taken = self._content[self._position : end]
        self._position = end
        return taken

    def _uvarint(self) -> int:
        number = shift = 0
        while True:
            byte = self._take(1)[0]
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
            shift += 7
            if shift > 28:
                raise CorruptBatch("a length of more than 32 bits")
