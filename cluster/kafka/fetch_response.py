"""The Fetch response encoder, hand-written: protocol fields as bytes, record batches as slices of segments."""

import struct

from kio.schema.errors import ErrorCode

from cordwood.cluster.kafka.codec import RequestHead
from cordwood.cluster.kafka.fetch_request import FLEXIBLE_FROM
from cordwood.cluster.kafka.fetch_sessions import NO_SESSION, PartitionKey
from cordwood.cluster.kafka.leader_hints import NO_TAGS, Leader, current_leader, node_endpoints
from cordwood.cluster.kafka.wire import Topic, compact_string, legacy_string, uvarint
from cordwood.replication.channel import Chunk
from cordwood.storage.aborted_index import AbortedTransaction
from cordwood.storage.slices import Slice
from cordwood.storage.steps import Steps, at_once

_SESSIONS_FROM = 7
_LOG_START_FROM = 5
_READ_REPLICA_FROM = 11
NOTHING = -1
LEADERS_FROM = 16
"""From this version on, the response names the current leader where another broker leads (KIP-951)."""
_CURRENT_LEADER_TAG = 1
ROWS_PER_STEP = 8

_HEAD_V12 = struct.Struct(">ibihi").pack
_HEAD_V7 = struct.Struct(">iihi").pack
_HEAD_V4 = struct.Struct(">ii").pack
_PARTITION_V12 = struct.Struct(">ihqqqBi").pack
_PARTITION_V4 = struct.Struct(">ihqq").pack
_INT = struct.Struct(">i").pack
_LONG = struct.Struct(">q").pack
_ABORTED = struct.Struct(">qq").pack
_NULL_ARRAY = b"\xff\xff\xff\xff"


class Row:
    """One partition of the response."""

    __slots__ = (
        "aborted", "code", "high_watermark", "is_archived", "key", "last_stable", "leader", "log_start", "piece",
        "preferred_replica", "slice",
    )  # fmt: skip

    def __init__(self, key: PartitionKey) -> None:
        self.key = key
        self.code: int = ErrorCode.none
        self.high_watermark = self.log_start = NOTHING
        self.last_stable: int | None = None
        """None if it is the high watermark."""
        self.aborted: list[AbortedTransaction] | None = None
        self.preferred_replica = NOTHING
        self.slice: Slice | None = None
        self.piece: bytes | None = None
        """The bytes of `slice`, if they have been read."""
        self.is_archived = False
        """Whether `slice` is from the archive: then it is sent at once, however small."""
        self.leader: Leader | None = None
        """The current leader, for a client that has asked the wrong broker or with an old leader epoch."""


def encode_error(head: RequestHead, code: ErrorCode) -> bytes:
    """Encode a response without partitions, with an error for the request as a whole."""
    (whole,) = at_once(_Writer(head).write(NO_SESSION, [], int(code)))
    assert isinstance(whole, bytes)
    return whole


def encode(head: RequestHead, session_id: int, rows: list[Row], throttle_ms: int = 0) -> Steps[list[Chunk]]:
    """Encode a response frame as chunks: bytes, and slices of the log that are read while they are sent."""
    return _Writer(head, throttle_ms).write(session_id, rows, ErrorCode.none)


class _Writer:
    def __init__(self, head: RequestHead, throttle_ms: int = 0) -> None:
        self._head, self._throttle_ms = head, throttle_ms
        self._version = head.version
        self._is_flexible = head.version >= FLEXIBLE_FROM
        self._chunks: list[Chunk] = []
        self._texts: list[bytes] = []
        self._leaders: list[Leader] = []

    def write(self, session_id: int, rows: list[Row], code: int) -> Steps[list[Chunk]]:
        by_topic: dict[Topic, list[Row]] = {}
        for number, row in enumerate(rows, 1):
            by_topic.setdefault(row.key[0], []).append(row)
            if number % ROWS_PER_STEP == 0:
                yield
        self._write_head(session_id, code, len(by_topic))
        written = 0
        for topic, partitions in by_topic.items():
            self._write_topic(topic, len(partitions))
            for row in partitions:
                self._write_partition(row)
                written += 1
                if written % ROWS_PER_STEP == 0:
                    yield
            if self._is_flexible:
                self._texts.append(b"\x00")
        if self._is_flexible:
            self._texts.append(node_endpoints(self._leaders) if self._leaders else NO_TAGS)
        self._end_text()
        size = sum(chunk.size if isinstance(chunk, Slice) else len(chunk) for chunk in self._chunks)
        assert isinstance(self._chunks[0], bytes)
        self._chunks[0] = _INT(size) + self._chunks[0]
        return self._chunks

    def _write_head(self, session_id: int, code: int, topics: int) -> None:
        correlation_id = self._head.correlation_id
        if self._is_flexible:
            self._texts += (_HEAD_V12(correlation_id, 0, self._throttle_ms, code, session_id), uvarint(topics + 1))
        elif self._version >= _SESSIONS_FROM:
            self._texts += (_HEAD_V7(correlation_id, self._throttle_ms, code, session_id), _INT(topics))
        else:
            self._texts += (_HEAD_V4(correlation_id, self._throttle_ms), _INT(topics))

    def _write_topic(self, topic: Topic, partitions: int) -> None:
        if isinstance(topic, str):
            self._texts.append(compact_string(topic) if self._is_flexible else legacy_string(topic))
        else:
            self._texts.append(topic.bytes)
        self._texts.append(uvarint(partitions + 1) if self._is_flexible else _INT(partitions))

    def _write_partition(self, row: Row) -> None:
        size = row.slice.size if row.slice is not None else 0
        index, watermark, texts = row.key[1], row.high_watermark, self._texts
        stable = watermark if row.last_stable is None else row.last_stable
        if self._is_flexible and not row.aborted:
            texts.append(_PARTITION_V12(index, row.code, watermark, stable, row.log_start, 0, row.preferred_replica))
            texts.append(uvarint(size + 1))
        elif self._is_flexible and row.aborted:
            texts += (_PARTITION_V4(index, row.code, watermark, stable), _LONG(row.log_start))
            self._write_aborted(row.aborted)
            texts += (_INT(row.preferred_replica), uvarint(size + 1))
        else:
            texts.append(_PARTITION_V4(index, row.code, watermark, stable))
            if self._version >= _LOG_START_FROM:
                texts.append(_LONG(row.log_start))
            if row.aborted:
                self._write_aborted(row.aborted)
            else:
                texts.append(_NULL_ARRAY)
            if self._version >= _READ_REPLICA_FROM:
                texts.append(_INT(row.preferred_replica))
            texts.append(_INT(size))
        if row.piece is not None:
            texts.append(row.piece)
        elif row.slice is not None:
            self._end_text()
            self._chunks.append(row.slice)
        if row.leader is not None:
            self._leaders.append(row.leader)
            self._texts.append(current_leader(row.leader, _CURRENT_LEADER_TAG))
        elif self._is_flexible:
            self._texts.append(NO_TAGS)

    def _write_aborted(self, aborted: list[AbortedTransaction]) -> None:
        tags = b"\x00" if self._is_flexible else b""
        self._texts.append(uvarint(len(aborted) + 1) if self._is_flexible else _INT(len(aborted)))
        self._texts += [_ABORTED(*transaction) + tags for transaction in aborted]

    def _end_text(self) -> None:
        if self._texts:
            self._chunks.append(b"".join(self._texts))
            self._texts = []
