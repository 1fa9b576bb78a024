"""A broker of one topic with one partition whose answers the test scripts: records, error codes, disconnects."""

import io
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable
from datetime import timedelta
from types import TracebackType
from typing import Any

from kio.schema.api_versions.v0 import ApiVersionsResponse
from kio.schema.api_versions.v0.response import ApiVersion
from kio.schema.errors import ErrorCode
from kio.schema.fetch.v11 import FetchRequest, FetchResponse
from kio.schema.fetch.v11.response import AbortedTransaction, FetchableTopicResponse, PartitionData
from kio.schema.list_offsets.v5 import ListOffsetsRequest, ListOffsetsResponse
from kio.schema.list_offsets.v5.response import ListOffsetsPartitionResponse, ListOffsetsTopicResponse
from kio.schema.metadata.v8 import MetadataRequest, MetadataResponse
from kio.schema.metadata.v8.response import (
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kio.serial import entity_reader, entity_writer

from cordwood.columnar.ranges import EARLIEST
from cordwood.spark.client.settings import Address, ClientSettings
from cordwood.storage.batch import peek
from cordwood.storage.types import TopicPartition

API_VERSIONS = 18
NOT_THROTTLED = timedelta(0)
ME, NEAR = 1, 2

Mishap = Callable[["ScriptedBroker"], ErrorCode]


class BreaksOff(Exception):
    """The end of the connection, without an answer."""


class ScriptedBroker:
    """A broker that serves `batches`. Every Fetch first takes the next of `mishaps`, if there is one."""

    place = TopicPartition("flights", 0)

    def __init__(self, *batches: bytes) -> None:
        self.batches = list(batches)
        self.log_start = 0
        self.epoch = 5
        self.batches_per_answer = 1
        self.aborted: list[tuple[int, int]] = []
        self.served = {1: (4, 11), 2: (1, 5), 3: (0, 8)}
        self.near: ScriptedBroker | None = None
        """The preferred read replica of clients with a rack, which has this broker's epoch."""
        self.mishaps: deque[Mishap] = deque()
        self.fetches: list[Any] = []
        self.arrived = threading.Condition()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._connections: list[socket.socket] = []
        self._answers = {1: (FetchRequest, self._fetch), 2: (ListOffsetsRequest, self._list_offsets)}
        self._answers[3] = (MetadataRequest, self._metadata)
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> "ScriptedBroker":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for each in (self._listener, *self._connections):
            each.close()

    @property
    def address(self) -> Address:
        return Address("127.0.0.1", self._listener.getsockname()[1])

    def settings(self, **others: Any) -> ClientSettings:
        """Return the settings of a client that knows this broker. Tests of the client's timeouts shorten them."""
        return ClientSettings((self.address,), **{"request_timeout_ms": 20_000, "retry_timeout_ms": 30_000, **others})

    @property
    def end(self) -> int:
        return peek(self.batches[-1]).end if self.batches else self.log_start

    def fails_with(self, *codes: ErrorCode) -> None:
        """Answer the next fetches with these codes, one each."""
        self.mishaps += [lambda _, code=code: code for code in codes]

    def breaks_off(self) -> None:
        """Close the connection of the next fetch, without an answer."""
        self.mishaps.append(_break_off)

    def wait_for_fetches(self, count: int) -> None:
        """Wait until this many fetches have arrived."""
        with self.arrived:
            assert self.arrived.wait_for(lambda: len(self.fetches) >= count, 10), f"{len(self.fetches)} fetches"

    @property
    def fetched_offsets(self) -> list[int]:
        return [fetch.topics[0].partitions[0].fetch_offset for fetch in self.fetches]

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._connections.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as requests:
            try:
                while size := requests.read(4):
                    frame = requests.read(*struct.unpack(">i", size))
                    connection.sendall(self._answer(frame))
            except (BreaksOff, OSError, struct.error):
                return

    def _answer(self, frame: bytes) -> bytes:
        key, _, correlation_id, length = struct.unpack_from(">hhih", frame)
        if key == API_VERSIONS:
            apis = [
                ApiVersion(api_key=api, min_version=low, max_version=high) for api, (low, high) in self.served.items()
            ]
            answer: Any = ApiVersionsResponse(error_code=ErrorCode.none, api_keys=tuple(apis))
        else:
            kind, make = self._answers[key]
            request, _ = entity_reader(kind)(frame, 10 + length)
            answer = make(request)
        body = io.BytesIO()
        entity_writer(type(answer))(body, answer)
        return struct.pack(">ii", 4 + len(body.getvalue()), correlation_id) + body.getvalue()

    def _metadata(self, request: Any) -> MetadataResponse:
        known = {ME: self.address} | ({} if self.near is None else {NEAR: self.near.address})
        brokers = [MetadataResponseBroker(node_id=number, host=at.host, port=at.port) for number, at in known.items()]
        partition = MetadataResponsePartition(
            error_code=ErrorCode.none, partition_index=0, leader_id=ME, leader_epoch=self.epoch
        )
        topics = [
            MetadataResponseTopic(error_code=ErrorCode.none, name=self.place.topic, partitions=(partition,))
            if name == self.place.topic
            else MetadataResponseTopic(error_code=ErrorCode.unknown_topic_or_partition, name=name, partitions=())
            for name in ([self.place.topic] if request.topics is None else [topic.name for topic in request.topics])
        ]
        return MetadataResponse(throttle_time=NOT_THROTTLED, brokers=tuple(brokers), topics=tuple(topics))

    def _list_offsets(self, request: Any) -> ListOffsetsResponse:
        [topic] = request.topics
        [wanted] = topic.partitions
        offset = self.log_start if wanted.timestamp == EARLIEST else self.end
        found = ListOffsetsPartitionResponse(partition_index=0, error_code=ErrorCode.none, offset=offset)
        answered = ListOffsetsTopicResponse(name=topic.name, partitions=(found,))
        return ListOffsetsResponse(throttle_time=NOT_THROTTLED, topics=(answered,))

    def _fetch(self, request: Any) -> FetchResponse:
        with self.arrived:
            self.fetches.append(request)
            self.arrived.notify_all()
        [wanted] = request.topics[0].partitions
        code = self.mishaps.popleft()(self) if self.mishaps else self._where(wanted)
        found = [batch for batch in self.batches if peek(batch).end > wanted.fetch_offset][: self.batches_per_answer]
        is_elsewhere = self.near is not None and bool(request.rack_id) and not code
        partition = PartitionData(
            partition_index=0,
            error_code=code,
            high_watermark=self.end,
            last_stable_offset=self.end,
            aborted_transactions=tuple(AbortedTransaction(producer_id=a, first_offset=b) for a, b in self.aborted),
            preferred_read_replica=NEAR if is_elsewhere else -1,
            records=b"" if code or is_elsewhere else b"".join(found),
        )
        topic = FetchableTopicResponse(topic=self.place.topic, partitions=(partition,))
        return FetchResponse(throttle_time=NOT_THROTTLED, error_code=ErrorCode.none, responses=(topic,))

    def _where(self, wanted: Any) -> ErrorCode:
        if wanted.current_leader_epoch != self.epoch:
            is_old = wanted.current_leader_epoch < self.epoch
            return ErrorCode.fenced_leader_epoch if is_old else ErrorCode.unknown_leader_epoch
        if not self.log_start <= wanted.fetch_offset <= self.end:
            return ErrorCode.offset_out_of_range
        return ErrorCode.none


def _break_off(_: ScriptedBroker) -> ErrorCode:
    raise BreaksOff
