"""Produce and Fetch frames built in advance, and a client that takes almost no processor time itself."""

import functools
import socket
import struct
import time
from collections.abc import Iterable, Mapping
from datetime import timedelta

from kio.schema.api_versions.v0 import ApiVersionsRequest
from kio.schema.fetch.v11.request import FetchPartition, FetchRequest, FetchTopic
from kio.schema.list_offsets.v5.request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kio.schema.produce.v7.request import PartitionProduceData, ProduceRequest, TopicProduceData

from cordwood.chaos.history import ACKS_ALL
from cordwood.client.blocking import BlockingConnection
from cordwood.client.codec import ResponseFrames, encode_request
from cordwood.storage.disk import Bytes
from cordwood.storage.records import Record, encode

TIMEOUT_S = 60.0
BUFFER_BYTES = 64 << 10

LATEST = -1
"""Timestamp of ListOffsets that stands for the high watermark."""
PRODUCE_TIMEOUT = timedelta(seconds=30)
CORRELATION_ID = 1
"""The same for all frames built in advance: their answers are matched by their order alone."""
_SIZE = struct.Struct(">i")
_PARTITION_AND_SIZE = struct.Struct(">ii")
_OFFSET = struct.Struct(">q")
_CODE_AND_OFFSET = struct.Struct(">hq")
_CODE = struct.Struct(">h")
_OFFSET_ROW = struct.Struct(">ihqqi")
"""Index, error, timestamp, offset, leader epoch."""
_ROW = struct.Struct(">ihqqqiii")
"""Index, error, watermark, last stable offset, log start, aborted transactions, read replica, size of the batches."""


class RequestFailed(Exception):
    """The broker answered with an error code, which is in the message."""


def batch_of(value_bytes: int) -> bytes:
    """Return a batch of one record with a value of `value_bytes`, stamped now."""
    value = (bytes(range(256)) * (value_bytes // 256 + 1))[:value_bytes]
    return encode([Record(0, int(time.time() * 1000), None, value)])


class ProduceFrame:
    """A Produce frame (acks=all) with one batch for one partition."""

    def __init__(self, topic: str, partition: int, batch: bytes) -> None:
        before = _before_partition(topic)
        size = len(before) + _PARTITION_AND_SIZE.size + len(batch)
        self.frame = b"".join((_SIZE.pack(size), before, _PARTITION_AND_SIZE.pack(partition, len(batch)), batch))
        # Correlation id, one topic and its name, one partition and its index.
        self._code_at = 4 + 4 + 2 + len(topic.encode()) + 4 + 4

    def offset_in(self, answer: Bytes) -> int:
        """Return the base offset of the batch from an answer. Raises RequestFailed."""
        code, offset = _CODE_AND_OFFSET.unpack_from(answer, self._code_at)
        if code:
            raise RequestFailed(f"Produce: error {code}")
        return int(offset)


@functools.cache
def _before_partition(topic: str) -> bytes:
    """Return a Produce frame without its length, up to the index of its only partition."""
    rows = (PartitionProduceData(index=0, records=b""),)
    data = (TopicProduceData(name=topic, partition_data=rows),)
    request = ProduceRequest(transactional_id=None, acks=ACKS_ALL, timeout=PRODUCE_TIMEOUT, topic_data=data)
    return encode_request(request, CORRELATION_ID, None)[_SIZE.size : -_PARTITION_AND_SIZE.size]


class FetchFrame:
    """A Fetch frame for one partition, with its offset set before each use."""

    def __init__(self, topic: str, partition: int, *, wait_ms: int = 500, bytes_max: int = 1 << 20) -> None:
        wanted = FetchPartition(partition=partition, fetch_offset=0, partition_max_bytes=bytes_max)
        request = FetchRequest(
            replica_id=-1,
            max_wait=timedelta(milliseconds=wait_ms),
            min_bytes=1,
            max_bytes=bytes_max,
            topics=(FetchTopic(topic=topic, partitions=(wanted,)),),
            forgotten_topics_data=(),
            rack_id="",
        )
        self._frame = bytearray(encode_request(request, CORRELATION_ID, None))
        # The offset; then log start, size, nothing forgotten, no rack.
        self._offset_at = len(self._frame) - (_OFFSET.size + 8 + 4 + 4 + 2)
        # Correlation id, throttle time, error, session, one topic and its name, one partition.
        self._row_at = 4 + 4 + 2 + 4 + 4 + 2 + len(topic.encode()) + 4

    def at(self, offset: int) -> bytes:
        """Return the frame that fetches from `offset`."""
        _OFFSET.pack_into(self._frame, self._offset_at, offset)
        return bytes(self._frame)

    def batches_in(self, answer: Bytes) -> memoryview:
        """Return the batches of an answer, one after the other; none where the long poll timed out. Raises
        RequestFailed."""
        (whole,) = _CODE.unpack_from(answer, 8)
        if whole:
            raise RequestFailed(f"Fetch: error {whole}")
        _, code, _, _, _, _, _, size = _ROW.unpack_from(answer, self._row_at)
        if code:
            raise RequestFailed(f"Fetch: error {code}")
        begin = self._row_at + _ROW.size
        return memoryview(answer)[begin : begin + max(size, 0)]


class OffsetsFrame:
    """A ListOffsets frame for the high watermarks of many partitions of one leader."""

    def __init__(self, partitions: Mapping[str, Iterable[int]]) -> None:
        topics = tuple(
            ListOffsetsTopic(
                name=name,
                partitions=tuple(ListOffsetsPartition(partition_index=index, timestamp=LATEST) for index in indexes),
            )
            for name, indexes in partitions.items()
        )
        request = ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=topics)
        self.frame = encode_request(request, CORRELATION_ID, None)

    @staticmethod
    def refused_in(answer: Bytes) -> int:
        """Return the number of partitions that the broker refused to answer for."""
        refused, position = 0, 4 + 4
        (topics,) = _SIZE.unpack_from(answer, position)
        position += _SIZE.size
        for _ in range(topics):
            position += _CODE.size + _CODE.unpack_from(answer, position)[0]
            (rows,) = _SIZE.unpack_from(answer, position)
            position += _SIZE.size
            end = position + rows * _OFFSET_ROW.size
            refused += sum(row[1] != 0 for row in _OFFSET_ROW.iter_unpack(answer[position:end]))
            position = end
        return refused


class BlockingClient(BlockingConnection):
    """One blocking connection for frames built in advance. Methods raise OSError."""

    def __init__(self, address: str, timeout_s: float | None = TIMEOUT_S) -> None:
        """Connect. Without a timeout each call of the socket is one call of the system."""
        host, _, port = address.rpartition(":")
        connected = socket.create_connection((host, int(port)), timeout_s)
        super().__init__(connected, frames=ResponseFrames(kept_bytes=BUFFER_BYTES))

    def hello(self) -> None:
        """Send ApiVersions, as every client does first."""
        self.ask(ApiVersionsRequest())

    def exchange(self, frame: bytes) -> memoryview:
        """Return the answer to one request, without its size; valid until the next."""
        self.socket.sendall(frame)
        return self.receive_frame()

    def produce(self, request: ProduceFrame) -> int:
        """Send a request, and return the offset of its batch. Raises RequestFailed."""
        return request.offset_in(self.exchange(request.frame))
