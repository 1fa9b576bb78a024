"""Transaction markers: the only record of the control batch that commits or aborts a transaction (KIP-98).

Key: version i16, type i16 (0 abort, 1 commit). Value: version i16, coordinator epoch i32.
"""

import struct
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from cordwood.storage.batch import CONTROL, NO_SEQUENCE, TRANSACTIONAL, BatchHeader
from cordwood.storage.disk import Bytes
from cordwood.storage.errors import CorruptBatch
from cordwood.storage.records import Record, RecordCursor, encode
from cordwood.storage.types import ProducerIdAndEpoch

_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hi")
_VERSION, _ABORT, _COMMIT = 0, 0, 1


class EndTransactionMarker(NamedTuple):
    """The decision about a transaction, and the epoch of the coordinator that made it."""

    is_commit: bool
    coordinator_epoch: int


Markers = Mapping[int, EndTransactionMarker]
"""Markers by offset."""
NO_MARKERS: Markers = MappingProxyType({})


def encode_marker(producer: ProducerIdAndEpoch, marker: EndTransactionMarker, now_ms: int) -> bytes:
    """Return the control batch of a marker."""
    key = _KEY.pack(_VERSION, _COMMIT if marker.is_commit else _ABORT)
    return encode(
        [Record(0, now_ms, key, _VALUE.pack(_VERSION, marker.coordinator_epoch))],
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        base_sequence=NO_SEQUENCE,
        attributes=TRANSACTIONAL | CONTROL,
    )


def decode_marker(batch: Bytes) -> EndTransactionMarker | None:
    """Return the marker of a control batch; None for a control record of another kind, and for a malformed one."""
    try:
        return read_marker(batch)
    except CorruptBatch:
        return None


def read_marker(batch: Bytes) -> EndTransactionMarker | None:
    """Return the marker of a control batch; None for a control record of another kind. Raises CorruptBatch."""
    record = next(RecordCursor(bytes(batch)).records(), None)
    if record is None or record.key is None or record.value is None:
        return None
    if len(record.key) < _KEY.size or len(record.value) < _VALUE.size:
        return None
    _, kind = _KEY.unpack_from(record.key)
    _, coordinator_epoch = _VALUE.unpack_from(record.value)
    return EndTransactionMarker(kind == _COMMIT, coordinator_epoch) if kind in (_ABORT, _COMMIT) else None


def markers_in(data: Bytes, batches: Sequence[BatchHeader]) -> Markers:
    """Return the markers among stamped batches, which are those of `data`."""
    found: dict[int, EndTransactionMarker] = {}
    position = 0
    for header in batches:
        end = position + header.size
        if header.is_control and (marker := decode_marker(memoryview(data)[position:end])) is not None:
            found[header.base_offset] = marker
        position = end
    return found
