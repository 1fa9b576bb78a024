"""The ShareFetch response encoder, hand-written: protocol fields as bytes, record batches as slices of segments."""

import struct
from collections.abc import Sequence
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
    rows: Sequence[ShareFetchRow],
    lock_ms: int,
    throttle_ms: int = 0,
    code: ErrorCode = ErrorCode.none,
    message: str | None = None,
) -> Steps[list[Chunk]]:
    """Encode a response frame as chunks: bytes, and slices of the log that are read while they are sent."""
    by_topic: dict[bytes, list[ShareFetchRow]] = {}
    for row in rows:
        by_topic.setdefault(row.place[0].bytes, []).append(row)
        yield
    chunks: list[Chunk] = []
    texts: list[bytes] = [_HEAD(head.correlation_id, 0, throttle_ms, code), _text(message), _INT(lock_ms)]
    texts.append(uvarint(len(by_topic) + 1))
    for topic_id, of_topic in by_topic.items():
        texts += (topic_id, uvarint(len(of_topic) + 1))
        for row in of_topic:
            _write(row, texts, chunks)
            yield
        texts.append(_NO_TAGS)
    texts += (_nodes(rows), _NO_TAGS)
    chunks.append(b"".join(texts))
    size = sum(chunk.size if isinstance(chunk, Slice) else len(chunk) for chunk in chunks)
    assert isinstance(chunks[0], bytes)
    chunks[0] = _INT(size) + chunks[0]
    return chunks


def _write(row: ShareFetchRow, texts: list[bytes], chunks: list[Chunk]) -> None:
    leader = row.leader
    texts += (
        _PARTITION(row.place[1], row.code),
        _text(row.message),
        _SHORT(row.acknowledge_code),
        _text(row.acknowledge_message),
        _LEADER(NO_LEADER, NO_EPOCH, 0) if leader is None else _LEADER(leader.broker_id, leader.epoch, 0),
        uvarint(row.size + 1),
    )
    if isinstance(row.records, Slice):
        chunks.append(b"".join(texts))
        texts.clear()
        chunks.append(row.records)
    elif row.records is not None:
        texts.append(row.records)
    texts.append(uvarint(len(row.acquired) + 1))
    texts += [_ACQUIRED(start, end - 1, count, 0) for start, end, count in row.acquired]
    texts.append(_NO_TAGS)


def _nodes(rows: Sequence[ShareFetchRow]) -> bytes:
    nodes = {row.leader.broker_id: row.leader for row in rows if row.leader is not None}
    return uvarint(len(nodes) + 1) + b"".join(map(_node, nodes.values()))


def _node(leader: Leader) -> bytes:
    endpoint = leader.endpoint
    return b"".join(
        (_INT(leader.broker_id), compact_string(endpoint.host), _INT(endpoint.port), _text(leader.rack), _NO_TAGS)
    )


def _text(text: str | None) -> bytes:
    return _NULL if text is None else compact_string(text)
