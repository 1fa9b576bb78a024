"""Fetch from several log directories: a hanging disk delays its own partitions and no others (ADR 28)."""

import asyncio
import random
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from kio.schema.fetch.v11 import FetchRequest
from kio.schema.fetch.v11.request import FetchPartition, FetchTopic
from replica_fixture import NOW_MS, ReplicaFixture
from virtual_time import run

from cordwood.client.codec import decode_response, encode_request
from cordwood.cluster.kafka.answer_queue import Slot
from cordwood.cluster.kafka.codec import is_flexible, read_head
from cordwood.cluster.kafka.connection import Connection
from cordwood.cluster.kafka.fetch_sessions import FetchSessions
from cordwood.cluster.kafka.handlers.fetch import READS_AHEAD_MAX, SLOW_DISK_S, FetchHandler
from cordwood.cluster.kafka.in_process import InProcess
from cordwood.cluster.resources.memory import Memory
from cordwood.cluster.resources.turns import Turns
from cordwood.replication.log_directory import LogDirectory

WAIT_S = 5.0


class FetchStory(ReplicaFixture):
    """A broker with one record in each of two log directories, nothing cached, and a client."""

    def __init__(self) -> None:
        super().__init__(directories=2)
        memory = Memory.unlimited()
        sessions = FetchSessions(10, memory.sessions, random.Random(1))
        turns = Turns(asyncio.get_running_loop().time)
        fetching = FetchHandler(
            self.replicas, sessions, lambda: NOW_MS, 1 << 20, lambda *_: None, lambda *_: None, turns
        )
        self.fetching = fetching

        def handle(_connection: Connection, frame: memoryview, slot: Slot) -> None:
            fetching.handle(read_head(frame, is_flexible), frame, slot)

        self._here, self._handle = (
            InProcess(self.end_of_tick, self.replicas.read_piece, lambda _: None, 1 << 20),
            handle,
        )

    async def begin(self) -> None:
        for index in (0, 1):
            self.produce("a", index=index)
        await self.turn()
        self.let_go()
        assert self.partition(0).directory is not self.partition(1).directory
        self.disk.cool()

    def hang(self, directory: LogDirectory) -> asyncio.Event:
        """Block all reads of a log directory until the returned event is set."""
        answers = asyncio.Event()

        async def beside(function: Callable[..., object], *arguments: object) -> object:
            await answers.wait()
            return function(*arguments)

        directory.run_blocking = beside
        return answers

    def break_down(self, directory: LogDirectory) -> None:
        """Let no thread of a log directory start."""

        async def beside(*_: object) -> object:
            raise RuntimeError("can't start new thread")

        directory.run_blocking = beside

    def fetch(self, *indexes: int) -> "asyncio.Future[dict[int, int]]":
        """Return the number of bytes received for each partition."""
        answer: asyncio.Future[dict[int, int]] = asyncio.get_running_loop().create_future()

        def received(frame: memoryview) -> None:
            rows = decode_response(FetchRequest, frame).responses[0].partitions
            answer.set_result({row.partition_index: len(row.records or b"") for row in rows})

        self.channel = self._here.open("PLAINTEXT", self._handle, received)
        self.channel.push([self._frame(indexes)])
        return answer

    def _frame(self, indexes: Sequence[int]) -> bytes:
        wanted: Any = tuple(
            FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20) for index in indexes
        )
        request = FetchRequest(
            max_wait=timedelta(seconds=WAIT_S),
            min_bytes=1,
            topics=(FetchTopic(topic="t", partitions=wanted),),
            forgotten_topics_data=(),
        )
        return encode_request(request, 1, b"client")


def test_what_another_disk_has_is_answered_without_the_one_that_hangs() -> None:
    async def story() -> None:
        broker, now = FetchStory(), asyncio.get_running_loop().time
        await broker.begin()
        answers = broker.hang(broker.partition(0).directory)
        began = now()
        found = await broker.fetch(0, 1)
        assert (found[0], found[1] > 0) == (0, True)
        assert now() - began <= SLOW_DISK_S + 0.01
        both = broker.fetch(0)
        await asyncio.sleep(1)
        assert not both.done()
        answers.set()
        assert (await both)[0] > 0

    run(story())


def test_a_fetch_that_waits_for_more_is_answered_as_the_slow_disk_answers() -> None:
    async def story() -> None:
        broker, now = FetchStory(), asyncio.get_running_loop().time
        await broker.begin()
        answers = broker.hang(broker.partition(0).directory)
        # Partition 1 has nothing past the fetched end.
        broker.disk.cool()
        asyncio.get_running_loop().call_later(1.0, answers.set)
        began = now()
        assert (await broker.fetch(0))[0] > 0
        assert 1.0 <= now() - began < WAIT_S

    run(story())


def test_fetches_do_not_pile_up_before_a_disk_that_hangs() -> None:
    async def story() -> None:
        broker = FetchStory()
        await broker.begin()
        hanging = broker.partition(0).directory
        answers = broker.hang(hanging)
        for _ in range(READS_AHEAD_MAX + 20):
            assert (await broker.fetch(0, 1))[1] > 0
            broker.disk.cool()
        assert broker.fetching.reads_ahead[hanging] == READS_AHEAD_MAX
        answers.set()
        await asyncio.sleep(1)
        assert broker.fetching.reads_ahead[hanging] == 0

    run(story())


def test_a_read_ahead_that_fails_closes_its_connection_and_holds_up_no_later_fetch() -> None:
    async def story() -> None:
        reported: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context.get("exception")))
        broker = FetchStory()
        await broker.begin()
        broken = broker.partition(0).directory
        sound = broken.run_blocking
        broker.break_down(broken)
        for _ in range(2 * READS_AHEAD_MAX):
            answer, channel = broker.fetch(0), broker.channel
            await asyncio.sleep(WAIT_S + 1)
            assert not channel.is_open
            assert not answer.done()
            assert broker.fetching.reads_ahead[broken] == 0
        assert {type(error) for error in reported} == {RuntimeError}
        broken.run_blocking = sound
        assert (await broker.fetch(0))[0] > 0

    run(story())
