"""Simulated producers: idempotent or not, with retries, several batches in flight, and a record of each outcome."""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from kio.schema.errors import ErrorCode

from cordwood.chaos.history import ACKS_ALL, UNKNOWN, content_of
from cordwood.chaos.history_builder import HistoryBuilder
from cordwood.chaos.produce_errors import ProduceGuarantee, guarantee_of
from cordwood.chaos.sim.host import BEGAN_MS
from cordwood.chaos.sim.kafka import Address, NoAnswer, SimulatedClient, duration, message, part
from cordwood.chaos.workload import AppendWorkload
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.storage.records import Record, encode

BATCH_RECORDS_MAX = 8
HEADER, HEADER_BYTES = "begins with", 4
PRODUCE_TIMEOUT_S = 1.5
RETRIABLE = frozenset(
    {
        ErrorCode.not_leader_or_follower,
        ErrorCode.leader_not_available,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.not_enough_replicas,
        ErrorCode.not_enough_replicas_after_append,
        ErrorCode.request_timed_out,
        ErrorCode.kafka_storage_error,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.unknown_leader_epoch,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.coordinator_not_available,
    }
)

OUT_OF_SEQUENCE = frozenset({ErrorCode.out_of_order_sequence_number, ErrorCode.unknown_producer_id})
"""Errors of a batch whose predecessor has not been appended yet. The batch is sent again after its predecessor."""

Alarm = Callable[[str, str], None]
"""Called with the kind of an anomaly and a sentence."""

IsReplaced = Callable[[str], bool]
"""Returns whether another process has registered the broker id of the process on a host."""


class Retries(Enum):
    """The order of retries."""

    OLDEST_FIRST = "as Java's client"
    """The oldest batch alone, until it is answered."""
    ALL_IN_ORDER = "as librdkafka"
    """All batches in order, once none is in flight."""


@dataclass(frozen=True, slots=True)
class ProducerPlan:
    """The parameters of one producer."""

    is_idempotent: bool
    acks: int
    interval_s: float
    in_flight_max: int
    """The limit of unanswered records, over all partitions."""
    payload_bytes_max: int
    batches_in_flight: int = 1
    """The limit of batches in flight per partition."""
    retries: Retries = Retries.OLDEST_FIRST


class _Answer(NamedTuple):
    """The result of one Produce request."""

    code: ErrorCode | None
    """None if the leader did not answer, or no leader was known."""
    offset: int = UNKNOWN
    promise: ProduceGuarantee = ProduceGuarantee.NOTHING

    @property
    def is_final(self) -> bool:
        """Whether a retry of the same batch would get the same answer."""
        return self.code is not None and self.code not in RETRIABLE


@dataclass(slots=True)
class _Waiting:
    """A record that was sent and is not answered yet."""

    send: int
    key: bytes
    payload: bytes


@dataclass(slots=True, eq=False)
class _Batch:
    """Records of one batch, which is sent until it is answered."""

    records: list[_Waiting]
    data: bytes
    is_out: bool = False
    """Whether a request with the batch is in flight."""
    is_resting: bool = False
    """Whether the batch waits for the metadata refresh before its retry."""
    is_open: bool = False
    """Whether one of the batch's requests may have been appended."""
    address: Address | None = None


class SimulatedProducer:
    """One producer program with a lane per partition. `stop` ends the program once everything is answered."""

    def __init__(
        self,
        client: SimulatedClient,
        plan: ProducerPlan,
        number: int,
        workload: AppendWorkload,
        history: HistoryBuilder,
        partitions: int,
        alarm: Alarm,
        is_replaced: IsReplaced,
    ) -> None:
        self.client, self.plan, self.history, self.alarm = client, plan, history, alarm
        self.is_replaced = is_replaced
        self._number, self._workload = number, workload
        self._queues = [SendQueue(self, partition) for partition in range(partitions)]
        self.in_flight = self.acknowledged = 0
        self.is_stopping = False

    async def run(self) -> None:
        """Send at random intervals until `stop`, within the plan's limit of unanswered records."""
        plan, rng = self.plan, self.client.rng
        while True:
            await asyncio.sleep(rng.uniform(0.2, 1.8) * plan.interval_s)
            if self.is_stopping:
                return
            for _ in range(rng.choice((1, 1, 1, 3))):
                if self.in_flight < plan.in_flight_max:
                    self._send_next()

    def stop(self) -> None:
        self.is_stopping = True

    def _send_next(self) -> None:
        append = self._workload.next()
        send = self.history.invoke(self._number, append.sequence, append.partition, self.client.now_ns, self.plan.acks)
        self.in_flight += 1
        self._queues[append.partition].put(_Waiting(send, append.key, append.payload))


class SendQueue:
    """The records of one producer for one partition: up to five batches in flight, each retried until it is answered.

    As in librdkafka and Java's client, no new batch is sent while an older one waits for a retry, nor to another leader
    than that of the batches in flight.
    """

    def __init__(self, producer: SimulatedProducer, partition: int) -> None:
        self._producer, self._client, self._partition = producer, producer.client, partition
        self._queue: deque[_Waiting] = deque()
        self._window: list[_Batch] = []
        """Unanswered batches, in the order of their sequence numbers."""
        self._identity: tuple[int, int] | None = None
        self._is_introducing = False
        self._sequence = 0

    def put(self, record: _Waiting) -> None:
        self._queue.append(record)
        self._go_on()

    def _go_on(self) -> None:
        """Send all batches that may be sent now."""
        waiting = [batch for batch in self._window if not batch.is_out]
        for batch in self._due_again(waiting):
            self._begin(batch)
        if not waiting:
            self._send_new()

    def _due_again(self, waiting: "list[_Batch]") -> "list[_Batch]":
        """Return the batches to retry.

        Java's client retries the oldest batch alone; librdkafka retries all in order, once none is in flight.
        """
        if self._producer.plan.retries is Retries.OLDEST_FIRST:
            return [batch for batch in self._window[:1] if not (batch.is_out or batch.is_resting)]
        is_quiet = not any(batch.is_out or batch.is_resting for batch in self._window)
        return waiting if is_quiet else []

    def _send_new(self) -> None:
        plan = self._producer.plan
        if plan.is_idempotent and self._identity is None:
            if self._queue and not self._window and not self._is_introducing:
                self._is_introducing = True
                self._client.loop.create_task(self._introduce_and_go_on())
            return
        while self._queue and len(self._window) < plan.batches_in_flight and self._goes_the_same_way():
            count = min(len(self._queue), self._client.rng.randint(1, BATCH_RECORDS_MAX))
            records = [self._queue.popleft() for _ in range(count)]
            batch = _Batch(records, self._encode(records))
            self._sequence += count
            self._window.append(batch)
            self._begin(batch)
            if len(self._window) > 1:
                self._client.did(f"{len(self._window)}-batches-in-flight")

    def _goes_the_same_way(self) -> bool:
        """Return whether the current leader is that of all unanswered batches, so that no new batch overtakes them."""
        address = self._client.leader(self._partition)
        return all(batch.address == address for batch in self._window)

    def _begin(self, batch: "_Batch") -> None:
        batch.is_out, batch.address = True, self._client.leader(self._partition)
        self._client.loop.create_task(self._attempt(batch))

    async def _attempt(self, batch: "_Batch") -> None:
        """Send one request, then pause and retry. A producer without idempotence does not retry."""
        producer = self._producer
        answer = await self._send(batch)
        batch.is_open |= answer.promise is ProduceGuarantee.NOTHING
        is_out_of_sequence = answer.code in OUT_OF_SEQUENCE and batch is not self._window[0]
        if producer.plan.is_idempotent and (is_out_of_sequence or not answer.is_final):
            self._client.did("batch-sent-again")
            batch.is_out, batch.is_resting = False, True
            await self._client.refresh_patiently()
            batch.is_resting = False
        else:
            self._window.remove(batch)
            self._end(batch, answer)
        self._go_on()

    def _end(self, batch: "_Batch", answer: _Answer) -> None:
        """Record the outcome of a batch."""
        producer, now_ns = self._producer, self._client.now_ns
        producer.in_flight -= len(batch.records)
        for place, record in enumerate(batch.records):
            if answer.code is ErrorCode.none:
                producer.history.ok(record.send, UNKNOWN if answer.offset < 0 else answer.offset + place, now_ns)
                producer.acknowledged += 1
            elif batch.is_open:
                producer.history.info(record.send, now_ns)
            else:
                producer.history.fail(record.send, now_ns)
        if answer.is_final and answer.code is not None and answer.code is not ErrorCode.none:
            # A process that was replaced may lead by its own metadata, and lacks the batches that its successor got.
            if batch.address is None or not producer.is_replaced(batch.address[0]):
                sentence = f"{self._client.name} received {answer.code.name} for partition {self._partition}"
                producer.alarm("refused-send", sentence)
            self._identity = None

    async def _introduce_and_go_on(self) -> None:
        self._identity = await self._introduce()
        self._is_introducing = False
        self._go_on()

    async def _introduce(self) -> tuple[int, int]:
        request = message(
            ApiKey.INIT_PRODUCER_ID,
            transactional_id=None,
            transaction_timeout=duration(60),
            producer_id=-1,
            producer_epoch=-1,
        )
        self._sequence = 0
        while True:
            try:
                answer = await self._client.ask(self._client.anybody(), request)
            except OSError:
                answer = None
            if answer is not None and answer.error_code is ErrorCode.none:
                return int(answer.producer_id), int(answer.producer_epoch)
            await self._client.refresh_patiently()

    def _encode(self, records: list[_Waiting]) -> bytes:
        now_ms = BEGAN_MS + self._client.now_ns // 1_000_000
        rows = [
            Record(place, now_ms, record.key, record.payload, ((HEADER, record.payload[:HEADER_BYTES]),) * (place % 3))
            for place, record in enumerate(records)
        ]
        for record, row in zip(records, rows, strict=True):
            self._producer.history.sealed(record.send, now_ms, content_of(row.key, row.headers, now_ms))
        if self._identity is None:
            return encode(rows)
        producer_id, producer_epoch = self._identity
        return encode(rows, producer_id=producer_id, producer_epoch=producer_epoch, base_sequence=self._sequence)

    async def _send(self, batch: "_Batch") -> _Answer:
        """Send a batch and return the leader's answer. With acks=0 there is no answer, and the batch counts as sent."""
        if batch.address is None:
            await self._client.refresh_patiently()
            return _Answer(None, promise=ProduceGuarantee.NOT_BY_THIS_REQUEST)
        acks = self._producer.plan.acks
        data = part(ApiKey.PRODUCE, "PartitionProduceData", index=self._partition, records=batch.data)
        topic = part(ApiKey.PRODUCE, "TopicProduceData", name=self._client.topic, partition_data=(data,))
        request = message(
            ApiKey.PRODUCE,
            transactional_id=None,
            acks=acks,
            timeout=duration(PRODUCE_TIMEOUT_S),
            topic_data=(topic,),
        )
        if acks != ACKS_ALL:
            self._client.did(f"acks-{acks}")
        try:
            if acks == 0:
                await self._client.tell(batch.address, request)
                return _Answer(ErrorCode.none)
            answer = await self._client.ask(batch.address, request)
        except NoAnswer:
            return _Answer(None)
        except OSError:
            # The connection was refused: nothing was sent.
            return _Answer(None, promise=ProduceGuarantee.NOT_BY_THIS_REQUEST)
        reported = answer.responses[0].partition_responses[0]
        if reported.error_code is ErrorCode.duplicate_sequence_number:
            return _Answer(ErrorCode.none)
        return _Answer(reported.error_code, int(reported.base_offset), guarantee_of(reported.error_code))
