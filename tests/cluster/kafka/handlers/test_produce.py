"""Produce through its handler alone: batches checked outside the event loop keep their order."""

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.produce.v11 import ProduceRequest
from kio.schema.produce.v11.request import PartitionProduceData, TopicProduceData
from raw_batches import NOW_MS, bomb, raw_batch, zero_deltas
from replica_fixture import ME, ReplicaFixture
from scripted_transactions import ScriptedTransactions

from cordwood.client.codec import decode_response, encode_request
from cordwood.cluster.kafka.answer_queue import Slot
from cordwood.cluster.kafka.codec import is_flexible, read_head
from cordwood.cluster.kafka.connection import Connection
from cordwood.cluster.kafka.handlers.produce import ProduceHandler
from cordwood.cluster.kafka.in_process import InProcess
from cordwood.cluster.kafka.transaction_verifier import TransactionVerifier
from cordwood.cluster.resources.decode_queue import DecodeQueue
from cordwood.cluster.resources.memory import Memory
from cordwood.cluster.resources.turns import Turns
from cordwood.replication.assignment import Assignment
from cordwood.storage.batch import CODEC_MASK, Compression, check
from cordwood.storage.config import LogConfig
from cordwood.storage.contents import IS_NATIVE
from cordwood.storage.records import Record, RecordCursor, encode

MB = 1 << 20
BOMB_RECORDS = 200_000
ANSWERED_TURNS = 10


class ProduceStory(ReplicaFixture):
    """A broker with a client. Work outside the event loop runs when the test calls `work`."""

    def __init__(self, config: LogConfig | None = None) -> None:
        super().__init__(config or LogConfig(segment_bytes=64 * MB, batch_bytes_max=64 * MB))
        self.beside: list[tuple[Callable[..., Any], tuple[Any, ...], asyncio.Future[Any]]] = []
        decoding = DecodeQueue(self._beside, Memory.unlimited().decoding)
        transactions = ScriptedTransactions()
        verifier = TransactionVerifier(ME, transactions, lambda: transactions.image, transactions.ask)
        turns = Turns(lambda: 0.0)
        producing = ProduceHandler(self.replicas, decoding, lambda: NOW_MS, lambda *_: None, turns, verifier)

        def handle(_connection: Connection, frame: memoryview, slot: Slot) -> None:
            producing.handle(read_head(frame, is_flexible), frame, slot)

        here = InProcess(self.end_of_tick, self.replicas.read_piece, lambda _: None, 128 * MB)
        self.channel = here.open("PLAINTEXT", handle, self._answered)
        self.answers: list[Any] = []
        self._next_id = 0

    def send(self, *batches: bytes, acks: int = -1) -> None:
        """Send one request for each batch, all together."""
        self.channel.push([b"".join(self._frame((batch,), acks) for batch in batches)])

    def send_together(self, *batches: bytes) -> None:
        """Send one request with all these batches for the same partition."""
        self.channel.push([self._frame(batches, -1)])

    def _frame(self, batches: Sequence[bytes], acks: int) -> bytes:
        self.partition()
        self._next_id += 1
        data = tuple(PartitionProduceData(index=0, records=batch) for batch in batches)
        request = ProduceRequest(
            transactional_id=None,
            acks=acks,
            timeout=timedelta(seconds=30),
            topic_data=(TopicProduceData(name="t", partition_data=data),),
        )
        return encode_request(request, self._next_id, b"client")

    async def work(self) -> int:
        """Run the pending work outside the event loop, in order. Return the number of tasks."""
        done = 0
        while True:
            await self.settle()
            if not self.beside:
                return done
            function, arguments, future = self.beside.pop(0)
            done += 1
            try:
                future.set_result(function(*arguments))
            except Exception as error:
                future.set_exception(error)

    async def settle(self) -> None:
        """Run everything that the event loop can do now, group commits included."""
        for _ in range(ANSWERED_TURNS):
            await self.turn()
            while self.syncer.groups:
                self.syncer.let_go()

    @property
    def outcomes(self) -> list[tuple[ErrorCode, int]]:
        """Code and base offset of every response so far."""
        rows = [answer.responses[0].partition_responses[0] for answer in self.answers]
        return [(row.error_code, row.base_offset) for row in rows]

    def _answered(self, frame: memoryview) -> None:
        self.answers.append(decode_response(ProduceRequest, frame))

    async def _beside(self, function: Callable[..., Any], *arguments: Any) -> Any:
        future = asyncio.get_running_loop().create_future()
        self.beside.append((function, arguments, future))
        return await future


def small(key: bytes | None = b"k", **producer: int) -> bytes:
    return encode([Record(0, NOW_MS, key, b"v")], **producer)


def irregular(count: int, compression: Compression = Compression.NONE) -> bytes:
    """Return a batch in which no two consecutive records have the same length."""
    records = [Record(0, NOW_MS, b"k", b"v" * (number % 50)) for number in range(count)]
    return encode(records, compression=compression)


def packed() -> bytes:
    """Return a batch of 20,000 records that decompresses to more than the event loop may decompress."""
    return irregular(20_000, Compression.ZSTD)


@pytest.mark.parametrize("batch", [zero_deltas(40), zero_deltas(40, Compression.NONE), raw_batch(b"\x00" * 9, 1)])
def test_records_that_are_not_what_the_header_says_are_refused_at_once(batch: bytes) -> None:
    async def reported() -> None:
        story = ProduceStory()
        story.send(batch, small())
        assert await story.work() == 0
        assert story.outcomes == [(ErrorCode.invalid_record, -1), (ErrorCode.none, 0)]

    asyncio.run(reported())


def test_a_claim_of_three_million_records_is_refused_at_once() -> None:
    async def reported() -> None:
        story = ProduceStory()
        story.send(raw_batch(small()[61:], 3_000_000))
        assert await story.work() == 0
        assert story.outcomes == [(ErrorCode.message_too_large, -1)]

    asyncio.run(reported())


# Made by the test: every process that collects this file would take seconds for them.
@pytest.mark.parametrize(
    "make", [lambda: zero_deltas(3_000_000 // 4), lambda: bomb(BOMB_RECORDS, key=None)], ids=["deltas", "keys"]
)
def test_what_takes_long_to_refuse_is_refused_beside_the_loop(make: Callable[[], bytes]) -> None:
    async def reported() -> None:
        story = ProduceStory(LogConfig(compacted=True))
        story.send(make())
        await story.settle()
        assert story.outcomes == []
        assert await story.work(), "once more where it unpacks to more than most"
        assert story.outcomes == [(ErrorCode.invalid_record, -1)]
        assert story.partition().log.log_end == 0

    asyncio.run(reported())


@pytest.mark.parametrize("make", [lambda: bomb(BOMB_RECORDS), lambda: irregular(140_000)], ids=["bomb", "irregular"])
def test_what_a_client_sends_stays_in_order(make: Callable[[], bytes]) -> None:
    large = make()

    async def reported() -> None:
        story = ProduceStory()
        count = RecordCursor(large).left
        story.send(small(), large, small(), large, small())
        await story.settle()
        assert story.outcomes == [(ErrorCode.none, 0)], "a batch after one that is checked waits for it"
        assert await story.work() >= 2
        assert [offset for _, offset in story.outcomes] == [0, 1, 1 + count, 2 + count, 2 + 2 * count]

    asyncio.run(reported())


def test_an_idempotent_producer_finds_its_numbers_in_order() -> None:
    def numbered(batch: bytes, sequence: int) -> bytes:
        body = RecordCursor(batch)
        records, compression = list(body.records()), Compression(check(batch).attributes & CODEC_MASK)
        return encode(records, compression=compression, producer_id=7, producer_epoch=0, base_sequence=sequence)

    async def reported() -> None:
        story = ProduceStory()
        large = numbered(packed(), 0)
        after = numbered(small(), 20_000)
        story.send(large, after, large, after)
        assert await story.work() == 2
        assert story.outcomes == [(ErrorCode.none, 0), (ErrorCode.none, 20_000)] * 2

    asyncio.run(reported())


def test_what_is_one_request_stays_in_order() -> None:
    """A request may name a partition twice, first with a batch that is checked outside the event loop."""

    async def reported() -> None:
        story = ProduceStory()
        story.send_together(packed(), small())
        assert await story.work() == 2
        rows = story.answers[0].responses[0].partition_responses
        assert [row.base_offset for row in rows] == [0, 20_000]

    asyncio.run(reported())


def test_many_batches_in_one_request_share_one_budget() -> None:
    async def reported() -> None:
        story = ProduceStory()
        story.send_together(*[irregular(1_000)] * 150)
        await story.settle()
        assert story.partition().log.log_end <= (128_000 if IS_NATIVE else 4_000)
        await story.work()
        assert story.partition().log.log_end == 150_000

    asyncio.run(reported())


def test_a_leader_that_was_deposed_meanwhile_appends_nothing() -> None:
    async def reported() -> None:
        story = ProduceStory()
        story.send(bomb(BOMB_RECORDS), small())
        await story.settle()
        story.partition().assigned(Assignment(ME + 1, 1, 1, (ME, ME + 1), frozenset({ME, ME + 1}), 1))
        await story.work()
        assert story.outcomes == [(ErrorCode.not_leader_or_follower, -1)] * 2
        assert story.partition().log.log_end == 0

    asyncio.run(reported())


def test_a_client_without_acknowledgements_loses_its_connection() -> None:
    async def reported() -> None:
        story = ProduceStory(LogConfig(compacted=True))
        story.send(bomb(BOMB_RECORDS, key=None), acks=0)
        await story.work()
        await story.settle()
        assert not story.channel.is_open

    asyncio.run(reported())


def test_a_client_that_has_gone_troubles_no_other() -> None:
    async def reported() -> None:
        story = ProduceStory()
        story.send(bomb(BOMB_RECORDS), small())
        await story.settle()
        story.channel.close()
        assert await story.work()
        assert story.partition().log.log_end == BOMB_RECORDS

    asyncio.run(reported())
