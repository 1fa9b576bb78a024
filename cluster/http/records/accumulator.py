"""The record accumulator: requests for one partition that wait at the same time share one batch.

A `ProducerBatch` has the records of one request for one partition. While a batch of a partition is in flight, further
ones gather for the next; so under load the batches grow, and the disk is not flushed more often.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, NamedTuple

import structlog
from kio.schema.errors import ErrorCode
from kio.schema.produce.v11.request import PartitionProduceData, ProduceRequest, TopicProduceData

from cordwood.cluster.http.refusal import NOT_NOW, refusal_of, sentence_of, status_of
from cordwood.cluster.kafka.cluster_client import ClusterClient, OutOfReach, Unanswered
from cordwood.cluster.kafka.handlers.produce import ACKS_LEADER
from cordwood.cluster.metadata.leaders import leader_of
from cordwood.cluster.metadata.quorum import Quorum
from cordwood.cluster.security.principal import Identity
from cordwood.storage.batch import NO_SEQUENCE
from cordwood.storage.records import Record, encode
from cordwood.storage.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition

COMMIT_S = 30.0
ANSWER_S = COMMIT_S + 5
SHARED_BYTES_MAX = 512 << 10
SHARED_RECORDS_MAX = 10_000
WAITING_BYTES_MAX = 64 << 20
RECORD_OVERHEAD_BYTES = 32
RETRIED_FOR_S, RETRY_S = 5.0, 0.1

MAYBE_KEPT = (
    "It is unknown whether the records were appended: send them again with the same Idempotency-Key, or"
    " read the topic first."
)

FAILED = "The broker failed: see its log."

_events = structlog.get_logger("http")

_OF_ONE_RECORD = frozenset(
    {ErrorCode.message_too_large, ErrorCode.invalid_record, ErrorCode.invalid_timestamp, ErrorCode.corrupt_message}
)
"""Refusals of a whole batch before anything was appended; the records of a single request may be the cause."""
_NOT_APPENDED = frozenset(
    {ErrorCode.unknown_topic_or_partition, ErrorCode.leader_not_available, ErrorCode.broker_not_available}
)
"""Transient refusals before anything was appended: a new topic's metadata or a new leader is still unknown."""
_UNCERTAIN = frozenset({ErrorCode.request_timed_out, ErrorCode.not_leader_or_follower})


class Once(NamedTuple):
    """The producer id and sequence by which the leader recognizes a duplicate batch."""

    producer_id: int
    sequence: int


class Lane(NamedTuple):
    """What requests have in common that share a batch. Never a batch of two users: each has its own rights."""

    place: TopicPartition
    acks: int
    identity: Identity


class NotKept(Exception):
    """The reason why records were not acknowledged: Kafka error code and user message."""

    def __init__(self, code: ErrorCode, sentence: str) -> None:
        super().__init__(sentence)
        self.code, self.sentence = code, sentence


class ProducerBatch:
    """The records of one request for one partition. `kept` gets the offset of the first record."""

    __slots__ = ("kept", "once", "records", "size")

    def __init__(self, records: Sequence[Record], once: Once | None) -> None:
        self.records, self.once = records, once
        self.size = sum(
            len(record.key or b"") + len(record.value or b"") + RECORD_OVERHEAD_BYTES + _headers_bytes(record)
            for record in records
        )
        self.kept: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def refuse(self, reason: NotKept) -> None:
        """Fail the records, which are not appended, or not known to be."""
        if not self.kept.done():
            self.kept.set_exception(reason)
            # A request with acks=0 does not wait: mark the exception as retrieved.
            self.kept.exception()


class RecordAccumulator:
    """All records in flight from this broker's HTTP clients."""

    def __init__(self, cluster: ClusterClient, quorum: Quorum) -> None:
        """`cluster` is a client for produce requests alone, since they take until the records are committed."""
        self._cluster, self._quorum = cluster, quorum
        self._lanes: dict[Lane, PartitionQueue] = {}
        self._waiting_bytes = 0
        self.batch_count = 0
        """The number of batches sent so far."""

    @property
    def is_full(self) -> bool:
        """True if more is in flight than may be held in memory."""
        return self._waiting_bytes > WAITING_BYTES_MAX

    def send(self, place: TopicPartition, acks: int, batch: ProducerBatch, identity: Identity) -> None:
        """Queue a batch, to be committed (acks -1) or only flushed by the leader (1; or 0, without waiting)."""
        client = self._cluster.on_behalf_of(identity)
        lane = Lane(place, acks, client.identity)
        queue = self._lanes.get(lane)
        if queue is None:
            queue = self._lanes[lane] = PartitionQueue(self, lane, client)
        self._waiting_bytes += batch.size
        batch.kept.add_done_callback(lambda _: self._done(batch))
        queue.add(batch)

    async def produce(self, lane: Lane, batch: bytes, client: ClusterClient) -> Any:
        """Send a batch to the leader, and return the partition's response. Raises NotKept if there is no response."""
        self.batch_count += 1
        place, acks, _ = lane
        leader = leader_of(place, self._quorum.image)
        if leader is None:
            raise NotKept(ErrorCode.leader_not_available, sentence_of(ErrorCode.leader_not_available))
        data = PartitionProduceData(index=place.partition, records=batch)
        request = ProduceRequest(
            transactional_id=None,
            acks=acks or ACKS_LEADER,
            timeout=timedelta(seconds=COMMIT_S),
            topic_data=(TopicProduceData(name=place.topic, partition_data=(data,)),),
        )
        try:
            answer = await client.ask(leader, request, ANSWER_S)
        except OutOfReach as unreachable:
            raise NotKept(ErrorCode.broker_not_available, f"{unreachable} Nothing was written.") from unreachable
        except Unanswered as unanswered:
            raise NotKept(ErrorCode.request_timed_out, f"{unanswered} {MAYBE_KEPT}") from unanswered
        return answer.responses[0].partition_responses[0]

    async def close(self) -> None:
        """Close the connections. Records in flight may or may not be appended."""
        await self._cluster.close()

    def forget(self, queue: "PartitionQueue") -> None:
        """Remove an empty queue."""
        self._lanes.pop(queue.lane, None)

    def _done(self, batch: ProducerBatch) -> None:
        self._waiting_bytes -= batch.size


class PartitionQueue:
    """The batches of one lane, sent one after another to preserve the order."""

    def __init__(self, accumulator: RecordAccumulator, lane: Lane, client: ClusterClient) -> None:
        self._accumulator, self.lane, self._client = accumulator, lane, client
        self._waiting: deque[ProducerBatch] = deque()
        self._sending: asyncio.Task[None] | None = None

    def add(self, batch: ProducerBatch) -> None:
        """Queue a batch. The task starts after this event-loop iteration, so that its batches go together."""
        self._waiting.append(batch)
        if self._sending is None:
            self._sending = asyncio.get_running_loop().create_task(self._send_all(), name="produce over HTTP")

    async def _send_all(self) -> None:
        try:
            while self._waiting:
                parcels = self._next()
                try:
                    await self._keep(parcels)
                except Exception as error:
                    _events.error("produce.failed", topic=self.lane.place.topic, exc_info=error)
                    _refuse(parcels, NotKept(ErrorCode.unknown_server_error, f"{FAILED} {MAYBE_KEPT}"))
        finally:
            self._sending = None
            self._accumulator.forget(self)

    def _next(self) -> list[ProducerBatch]:
        """Take the producer batches that fit in the next batch. A batch with its own sequence is sent alone."""
        parcels = [self._waiting.popleft()]
        size, count = parcels[0].size, len(parcels[0].records)
        while parcels[0].once is None and self._waiting and self._waiting[0].once is None:
            size, count = size + self._waiting[0].size, count + len(self._waiting[0].records)
            if size > SHARED_BYTES_MAX or count > SHARED_RECORDS_MAX:
                break
            parcels.append(self._waiting.popleft())
        return parcels

    async def _keep(self, parcels: list[ProducerBatch]) -> None:
        """Send producer batches. Retry each alone if one may be the cause of a refusal of all."""
        try:
            base_offset = await self._produce_in_time(parcels)
        except NotKept as refused:
            if len(parcels) > 1 and refused.code in _OF_ONE_RECORD:
                for batch in parcels:
                    await self._keep([batch])
                return
            _refuse(parcels, refused)
            return
        for batch in parcels:
            if not batch.kept.done():
                batch.kept.set_result(base_offset)
            base_offset += len(batch.records)

    async def _produce_in_time(self, parcels: list[ProducerBatch]) -> int:
        """As `_produce`, with retries for RETRIED_FOR_S, as long as a retry cannot append a duplicate."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + RETRIED_FOR_S
        while True:
            try:
                return await self._produce(parcels)
            except NotKept as refused:
                is_known_once = parcels[0].once is not None and status_of(refused.code) == NOT_NOW
                if loop.time() > deadline or not (is_known_once or refused.code in _NOT_APPENDED):
                    raise
            await asyncio.sleep(RETRY_S)

    async def _produce(self, parcels: list[ProducerBatch]) -> int:
        """Produce one batch. Return the offset of the first record. Raises NotKept."""
        records = [record for batch in parcels for record in batch.records]
        once = parcels[0].once
        batch = encode(
            records,
            producer_id=NO_PRODUCER_ID if once is None else once.producer_id,
            producer_epoch=NO_PRODUCER_EPOCH if once is None else 0,
            base_sequence=NO_SEQUENCE if once is None else once.sequence,
        )
        answer = await self._accumulator.produce(self.lane, batch, self._client)
        code = answer.error_code
        if code is not ErrorCode.none:
            sentence = refusal_of(code, answer.error_message).sentence
            raise NotKept(code, f"{sentence} {MAYBE_KEPT}" if code in _UNCERTAIN else sentence)
        return int(answer.base_offset)


def _refuse(parcels: Sequence[ProducerBatch], reason: NotKept) -> None:
    for batch in parcels:
        # A new exception: the traceback of `reason` refers to the batches, which only a garbage collection would free.
        batch.refuse(NotKept(reason.code, reason.sentence))


def _headers_bytes(record: Record) -> int:
    return sum(len(name) + len(content or b"") for name, content in record.headers) if record.headers else 0
