"""The memory pool of large responses: they wait for room, and the oldest always proceeds (ADR 26)."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn

import pytest

from cordwood.chaos.sim.loop import run as simulate
from cordwood.cluster.kafka.answer_memory import LARGEST_BYTES, AnswerMemory
from cordwood.cluster.kafka.answer_queue import Slot
from cordwood.cluster.kafka.connection import Connection
from cordwood.cluster.kafka.in_process import InProcess
from cordwood.cluster.kafka.message_writer import CHUNK_BYTES, Answer
from cordwood.cluster.resources.memory import MemoryPool
from cordwood.cluster.resources.turns import FREE_STEPS, SLICE_STEPS, Turns
from cordwood.replication.waiters import EndOfTickScheduler
from cordwood.storage.steps import Steps

PIECE = b"x" * CHUNK_BYTES


class Story:
    """A broker with a pool of `pieces` response pieces. `pressed` counts the requests to other pools for room."""

    def __init__(self, pieces: int) -> None:
        self.pool, self.pressed = MemoryPool("answers", pieces * CHUNK_BYTES), 0
        self.most = 0
        self._memory, self._turns = AnswerMemory(self.pool, self._press), Turns(lambda: 0.0)

    async def write(self, pieces: int) -> int:
        """Write a response of `pieces` pieces on a connection of its own. Return its size."""
        slot = self._slot()

        def encoding(answer: Answer) -> Steps[list[bytes]]:
            for step in range(FREE_STEPS + pieces * SLICE_STEPS):
                if step < FREE_STEPS or step % SLICE_STEPS:
                    yield
                    continue
                answer.buffer.write(PIECE)
                answer.item_written()
                assert answer.size <= self.pool.used, "what is there is counted"
                self.most = max(self.most, self.pool.used)
                yield
            return answer.chunks

        return sum(map(len, await self._memory.write(slot, encoding, self._turns)))

    def _press(self, _pool: MemoryPool) -> None:
        self.pressed += 1

    def _slot(self) -> Slot:
        async def run_blocking(*_: Any) -> NoReturn:
            raise AssertionError

        slots: list[Slot] = []

        def handle(_connection: Connection, _frame: memoryview, slot: Slot) -> None:
            slots.append(slot)

        here = InProcess(EndOfTickScheduler(asyncio.get_running_loop()), run_blocking, lambda _: None, 1000)
        self.channel = here.open("test", handle, lambda _: None)
        self.channel.push([(8).to_bytes(4, "big") + bytes(8)])
        return slots[0]


def tell(story: Story, reported: Callable[[], Awaitable[None]]) -> None:
    async def run() -> None:
        await asyncio.wait_for(reported(), 60)
        assert story.pool.used == 0, "all is given back"
        assert story.most <= story.pool.limit

    simulate(run())


LARGEST = LARGEST_BYTES // CHUNK_BYTES


def test_answers_that_fit_are_written_beside_each_other() -> None:
    story = Story(pieces=LARGEST + 8)

    async def reported() -> None:
        assert await asyncio.gather(*(story.write(3) for _ in range(2))) == [3 * CHUNK_BYTES] * 2
        assert not story.pool.waits

    tell(story, reported)


def test_many_answers_that_do_not_fit_together_are_all_written() -> None:
    story = Story(pieces=LARGEST + 8)

    async def reported() -> None:
        assert await asyncio.gather(*(story.write(3) for _ in range(30))) == [3 * CHUNK_BYTES] * 30
        assert story.pool.waits
        assert not story.pool.closes

    tell(story, reported)


def test_with_little_room_answers_are_written_one_after_the_other() -> None:
    story = Story(pieces=4)

    async def reported() -> None:
        assert await asyncio.gather(*(story.write(3) for _ in range(5))) == [3 * CHUNK_BYTES] * 5
        assert not story.pool.closes

    tell(story, reported)


@pytest.mark.parametrize("too_large", [0, 1, 2])
def test_where_the_oldest_lacks_room_the_one_that_has_most_is_given_up(too_large: int) -> None:
    story = Story(pieces=4)
    sizes = [8 if number == too_large else 2 for number in range(3)]

    async def reported() -> None:
        outcomes = await asyncio.gather(*map(story.write, sizes), return_exceptions=True)
        assert isinstance(outcomes.pop(too_large), asyncio.CancelledError)
        assert outcomes == [2 * CHUNK_BYTES] * 2
        assert story.pool.closes == 1
        assert story.pressed, "others are asked to make room first"

    tell(story, reported)


def test_the_answer_of_a_client_that_has_gone_is_not_written_on() -> None:
    story = Story(pieces=4)

    async def reported() -> None:
        writing = asyncio.ensure_future(story.write(1000))
        await asyncio.sleep(0)
        story.channel.close()
        await asyncio.wait([writing])
        assert writing.cancelled()

    tell(story, reported)
