"""The ShareFetch response encoder, hand-written: protocol fields as bytes, record batches as slices of segments."""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kio.schema.errors import ErrorCode

from cordwood.cluster.kafka.codec import RequestHead
from cordwood.cluster.kafka.leader_hints import Leader
from cordwood.cluster.kafka.wire import compact_string, uvarint
from cordwood.cluster.metadata.image import NO_LEADER
from cordwood.cluster.share.share_sessions import PartitionId
from cordwood.cluster.share.states import AcquiredBatch
from cordwood.replication.channel import Chunk
from cordwood.storage.slices import Slice
from cordwood.storage.steps import Steps
from cordwood.storage.types import NO_EPOCH

_NO_TAGS = b"\x00"
_NULL = b"\x00"
_INT = struct.Struct(">i").pack
_SHORT = struct.Struct(">h").pack
_HEAD = struct.Struct(">ibih").pack
_PARTITION = struct.Struct(">ih").pack
_LEADER = struct.Struct(">iib").pack
_ACQUIRED = struct.Struct(">qqhb").pack


@dataclass(slots=True)
class ShareFetchRow:
    """One partition of the response."""

    place: PartitionId
    code: int = 0
    message: str | None = None
    acknowledge_code: int = 0
    acknowledge_message: str | None = None
    leader: Leader | None = None
    records: Slice | bytes | None = None
    acquired: Sequence[AcquiredBatch] = ()

    @property
    def size(self) -> int:
        if self.records is None:
            return 0
        return self.records.size if isinstance(self.records, Slice) else len(self.records)


def encode(
    head: RequestHead,
    rows: list[ShareFetchRow],
    lock_ms: int,
    throttle_ms: int = 0,
    code: ErrorCode = ErrorCode.none,
    message: str | None = None,
) -> Steps[list[Chunk]]:
    """Encode a response frame as chunks: bytes, and slices of the log that are read while they are sent.

    The rows are removed from `rows` one by one: to free tens of thousands at the end would take one long step.
    """
    by_topic: dict[bytes, list[ShareFetchRow]] = {}
    nodes: dict[int, Leader] = {}
    while rows:
        row = rows.pop()
        by_topic.setdefault(row.place[0].bytes, []).append(row)
        if row.leader is not None:
            nodes[row.leader.broker_id] = row.leader
        yield
    chunks: list[Chunk] = []
    text = bytearray().join((_HEAD(head.correlation_id, 0, throttle_ms, code), _text(message), _INT(lock_ms)))
    text += uvarint(len(by_topic) + 1)
    while by_topic:
        # The last one is that of the first row.
        topic_id, of_topic = by_topic.popitem()
        text += topic_id + uvarint(len(of_topic) + 1)
        while of_topic:
            _write(of_topic.pop(), text, chunks)
            yield
        text += _NO_TAGS
    text += _nodes(nodes) + _NO_TAGS
    chunks.append(bytes(text))
    size = sum(chunk.size if isinstance(chunk, Slice) else len(chunk) for chunk in chunks)
    assert isinstance(chunks[0], bytes)
    chunks[0] = _INT(size) + chunks[0]
    return chunks


def _write(row: ShareFetchRow, text: bytearray, chunks: list[Chunk]) -> None:
    leader = row.leader
    text += b"".join(
        (
            _PARTITION(row.place[1], row.code),
            _text(row.message),
            _SHORT(row.acknowledge_code),
            _text(row.acknowledge_message),
            _LEADER(NO_LEADER, NO_EPOCH, 0) if leader is None else _LEADER(leader.broker_id, leader.epoch, 0),
            uvarint(row.size + 1),
        )
    )
    if isinstance(row.records, Slice):
        chunks.append(bytes(text))
        text.clear()
        chunks.append(row.records)
    elif row.records is not None:
        text += row.records
    text += uvarint(len(row.acquired) + 1)
    text += b"".join([_ACQUIRED(start, end - 1, count, 0) for start, end, count in row.acquired])
    text += _NO_TAGS


def _nodes(nodes: Mapping[int, Leader]) -> bytes:
    return uvarint(len(nodes) + 1) + b"".join(map(_node, nodes.values()))


def _node(leader: Leader) -> bytes:
    endpoint = leader.endpoint
    return b"".join(
        (_INT(leader.broker_id), compact_string(endpoint.host), _INT(endpoint.port), _text(leader.rack), _NO_TAGS)
    )


def _text(text: str | None) -> bytes:
    return _NULL if text is None else compact_string(text)
