"""Simulated producers: each keeps a few records in flight, sends again what was not answered, and writes all down."""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from kio.schema.errors import ErrorCode

from cordwood.chaos.history import UNKNOWN, HistoryBuilder, content_of
from cordwood.chaos.produce_errors import Promise, promise_of
from cordwood.chaos.sim.host import BEGAN_MS
from cordwood.chaos.sim.kafka import Client, NoAnswer, duration, message, part
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

Alarm = Callable[[str, str], None]
"""Told the kind of an anomaly, and a sentence."""


@dataclass(frozen=True, slots=True)
class ProducerPlan:
    """What one producer is like."""

    is_idempotent: bool
    acks: int
    interval_s: float
    in_flight_max: int
    payload_bytes_max: int


class _Answer(NamedTuple):
    """What came of one Produce request."""

    code: ErrorCode | None
    """None where the leader did not answer, or was not asked."""
    offset: int = UNKNOWN
    promise: Promise = Promise.NOTHING

    @property
    def is_final(self) -> bool:
        """Whether the same batch would be answered so again."""
        return self.code is not None and self.code not in RETRIABLE


@dataclass(slots=True)
class _Waiting:
    """A record that was handed over and is not answered yet."""

    send: int
    key: bytes
    payload: bytes


class Producer:
    """One program with a lane for each partition. `stop` ends it once everything has been answered."""

    def __init__(
        self,
        client: Client,
        plan: ProducerPlan,
        number: int,
        workload: AppendWorkload,
        history: HistoryBuilder,
        partitions: int,
        alarm: Alarm,
    ) -> None:
        self.client, self.plan, self.history, self.alarm = client, plan, history, alarm
        self._number, self._workload = number, workload
        self._lanes = [Lane(self, partition) for partition in range(partitions)]
        self.in_flight = self.acknowledged = 0
        self.is_stopping = False

    async def run(self) -> None:
        """Send for as long as nobody says `stop`, and never more at once than the plan allows."""
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
        self._lanes[append.partition].put(_Waiting(send, append.key, append.payload))


class Lane:
    """One partition's records of one producer, a batch at a time, in order."""

    def __init__(self, producer: Producer, partition: int) -> None:
        self._producer, self._client, self._partition = producer, producer.client, partition
        self._queue: deque[_Waiting] = deque()
        self._is_busy = False
        self._identity: tuple[int, int] | None = None
        self._sequence = 0

    def put(self, record: _Waiting) -> None:
        self._queue.append(record)
        if not self._is_busy:
            self._is_busy = True
            self._client.loop.create_task(self._work())

    async def _work(self) -> None:
        while self._queue:
            count = min(len(self._queue), self._client.rng.randint(1, BATCH_RECORDS_MAX))
            await self._see_through([self._queue.popleft() for _ in range(count)])
        self._is_busy = False

    async def _see_through(self, records: list[_Waiting]) -> None:
        """Send one batch until its fate is known, or, without idempotence, only once."""
        if self._producer.plan.is_idempotent and self._identity is None:
            self._identity = await self._introduce()
        batch = self._encode(records)
        answer = await self._send(batch)
        is_open = answer.promise is Promise.NOTHING
        while not answer.is_final and self._producer.plan.is_idempotent:
            await self._client.refresh_patiently()
            answer = await self._send(batch)
            is_open |= answer.promise is Promise.NOTHING
        self._end(records, answer, is_open=is_open)

    def _end(self, records: list[_Waiting], answer: _Answer, *, is_open: bool) -> None:
        """Write down the fate of a batch. `is_open` tells that one of its requests may have been appended."""
        producer, now_ns = self._producer, self._client.now_ns
        producer.in_flight -= len(records)
        for place, record in enumerate(records):
            if answer.code is ErrorCode.none:
                producer.history.ok(record.send, UNKNOWN if answer.offset < 0 else answer.offset + place, now_ns)
                producer.acknowledged += 1
            elif is_open:
                producer.history.info(record.send, now_ns)
            else:
                producer.history.fail(record.send, now_ns)
        if answer.is_final and answer.code is not None and answer.code is not ErrorCode.none:
            sentence = f"{self._client.name} was told {answer.code.name} for partition {self._partition}"
            producer.alarm("refused-send", sentence)
            self._identity = None
        self._sequence += len(records)

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

    async def _send(self, batch: bytes) -> _Answer:
        """What the leader says."""
        address = self._client.leader(self._partition)
        if address is None:
            await self._client.refresh_patiently()
            return _Answer(None, promise=Promise.NOT_BY_THIS_REQUEST)
        data = part(ApiKey.PRODUCE, "PartitionProduceData", index=self._partition, records=batch)
        topic = part(ApiKey.PRODUCE, "TopicProduceData", name=self._client.topic, partition_data=(data,))
        request = message(
            ApiKey.PRODUCE,
            transactional_id=None,
            acks=self._producer.plan.acks,
            timeout=duration(PRODUCE_TIMEOUT_S),
            topic_data=(topic,),
        )
        try:
            answer = await self._client.ask(address, request)
        except NoAnswer:
            return _Answer(None)
        except OSError:
            # Nobody took the call: nothing was sent.
            return _Answer(None, promise=Promise.NOT_BY_THIS_REQUEST)
        told = answer.responses[0].partition_responses[0]
        if told.error_code is ErrorCode.duplicate_sequence_number:
            return _Answer(ErrorCode.none)
        return _Answer(told.error_code, int(told.base_offset), promise_of(told.error_code))
