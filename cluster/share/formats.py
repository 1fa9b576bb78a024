"""Record formats of `__share_group_state`: Kafka's own, so that its tools can read the topic.

A ShareSnapshot (key 0) has the whole state of a share partition, a ShareUpdate (key 1) the changes since. An update of
Cordwood has all changes since the snapshot: so the newest record of each key is enough, and the log cleaner keeps the
topic small. Where Kafka's updates have only the last change, it must keep them all until the next snapshot.
"""

import struct
from collections.abc import Iterable
from typing import NamedTuple
from uuid import UUID

from cordwood.cluster.coordination.fields import INT, SHORT, FieldReader, encode_string, encode_tags, encode_uvarint
from cordwood.cluster.share.state import UNKNOWN_COUNT, SharePartitionState
from cordwood.cluster.share.states import STORED, SharePartitionKey, StateBatch
from cordwood.storage.errors import CorruptBatch

SNAPSHOT, UPDATE = 0, 1
"""The versions of keys, which are the types of the records."""
VALUE_VERSION = 0
_FIRST_FLEXIBLE = 0
_COMPLETE_COUNT = 0
"""The number of a tagged field."""
_NO_TAGS = encode_tags({})

_SNAPSHOT_HEAD, _UPDATE_HEAD = struct.Struct(">hiiiqqq"), struct.Struct(">hiiq")
_BATCH = struct.Struct(">qqbh")
_STATES = {int(state): state for state in STORED}


class StateRecordKey(NamedTuple):
    """The key of a record: its kind, and its share partition."""

    kind: int
    share_partition: SharePartitionKey


def encode_key(kind: int, key: SharePartitionKey) -> bytes:
    return b"".join((SHORT.pack(kind), encode_string(key.group_id), key.topic_id.bytes, INT.pack(key.partition)))


def decode_key(key: bytes) -> StateRecordKey | None:
    """Decode a key. Return None for a kind of record that this broker does not know. Raises CorruptBatch."""
    fields = FieldReader(key)
    kind = fields.int16()
    if kind not in (SNAPSHOT, UPDATE):
        return None
    return StateRecordKey(kind, SharePartitionKey(fields.string(), UUID(bytes=fields.raw(16)), fields.int32()))


def encode_snapshot(state: SharePartitionState, now_ms: int) -> bytes:
    head = _SNAPSHOT_HEAD.pack(
        VALUE_VERSION,
        state.snapshot_epoch,
        state.state_epoch,
        state.leader_epoch,
        state.start_offset,
        state.created_ms,
        now_ms,
    )
    return head + _rest(state.batches, state.delivery_complete_count)


def encode_update(state: SharePartitionState) -> bytes:
    head = _UPDATE_HEAD.pack(VALUE_VERSION, state.snapshot_epoch, state.leader_epoch, state.start_offset)
    return head + _rest(state.changed, state.delivery_complete_count)


def decode_snapshot(value: bytes) -> SharePartitionState:
    """Decode a ShareSnapshot. Raises CorruptBatch."""
    fields = _value(value)
    snapshot_epoch, state_epoch, leader_epoch = fields.int32(), fields.int32(), fields.int32()
    start_offset, created_ms, _ = fields.int64(), fields.int64(), fields.int64()
    batches = _read_batches(fields)
    count = _read_count(fields)
    return SharePartitionState(snapshot_epoch, state_epoch, leader_epoch, start_offset, count, created_ms, batches)


def decode_update(value: bytes) -> SharePartitionState:
    """Decode a ShareUpdate, for `SharePartitionState.restored`. Raises CorruptBatch."""
    fields = _value(value)
    snapshot_epoch, leader_epoch, start_offset = fields.int32(), fields.int32(), fields.int64()
    batches = _read_batches(fields)
    count = _read_count(fields)
    return SharePartitionState(snapshot_epoch, 0, leader_epoch, start_offset, count, changed=batches)


def _value(value: bytes) -> FieldReader:
    fields = FieldReader(value)
    fields.version(VALUE_VERSION, _FIRST_FLEXIBLE)
    return fields


def _rest(batches: tuple[StateBatch, ...], complete_count: int) -> bytes:
    tags = {} if complete_count == UNKNOWN_COUNT else {_COMPLETE_COUNT: INT.pack(complete_count)}
    return b"".join((encode_uvarint(len(batches) + 1), *_encoded(batches), encode_tags(tags)))


def _encoded(batches: Iterable[StateBatch]) -> Iterable[bytes]:
    return (_BATCH.pack(start, end - 1, state, count) + _NO_TAGS for start, end, state, count in batches)


def _read_batches(fields: FieldReader) -> tuple[StateBatch, ...]:
    batches = []
    for _ in range(max(fields.count(), 0)):
        first, last, number, count = _BATCH.unpack(fields.raw(_BATCH.size))
        fields.tags()
        state = _STATES.get(number)
        if state is None:
            raise CorruptBatch(f"the delivery state {number} of records, which is never stored")
        batches.append(StateBatch(first, last + 1, state, count))
    return tuple(batches)


def _read_count(fields: FieldReader) -> int:
    content = fields.tags().get(_COMPLETE_COUNT)
    if content is None:
        return UNKNOWN_COUNT
    if len(content) != INT.size:
        raise CorruptBatch(f"a delivery complete count of {len(content)} bytes")
    count: int = INT.unpack(content)[0]
    return count
