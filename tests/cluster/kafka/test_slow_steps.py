"""Slow steps of clients: one at a time, the next one from the next address, and a bound for each address."""

import asyncio
from typing import Any

import pytest
from virtual_time import run

from cordwood.cluster.kafka.slow_steps import WAITING_MAX, SlowSteps, TooManyWait


class Thread:
    """A thread that the test completes step by step."""

    def __init__(self) -> None:
        self.order: list[str] = []
        self.most = self.running = 0
        self._steps: asyncio.Queue[None] = asyncio.Queue()

    async def run_blocking(self, function: Any, *arguments: Any) -> Any:
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await self._steps.get()
            return function(*arguments)
        finally:
            self.running -= 1

    def note(self, name: str) -> str:
        self.order.append(name)
        return name

    def complete(self, count: int) -> None:
        for _ in range(count):
            self._steps.put_nowait(None)


async def waiting(steps: SlowSteps, thread: Thread, *names: str) -> list[asyncio.Task[str]]:
    """Begin a step for each name, whose first letter is its address."""
    tasks = [asyncio.ensure_future(steps.run(name[0], thread.note, name)) for name in names]
    await asyncio.sleep(0)
    return tasks


def test_addresses_take_turns() -> None:
    async def story() -> None:
        thread = Thread()
        steps = SlowSteps(thread.run_blocking)
        tasks = await waiting(steps, thread, "a1", "a2", "a3", "a4", "b1", "b2", "c1")
        thread.complete(len(tasks))
        assert await asyncio.gather(*tasks) == ["a1", "a2", "a3", "a4", "b1", "b2", "c1"]
        assert thread.order == ["a1", "a2", "b1", "c1", "a3", "b2", "a4"]
        assert thread.most == 1

    run(story())


def test_one_address_cannot_fill_the_queue() -> None:
    async def story() -> None:
        thread = Thread()
        steps = SlowSteps(thread.run_blocking)
        flood = await waiting(steps, thread, *(f"a{number}" for number in range(WAITING_MAX + 1)))
        with pytest.raises(TooManyWait):
            await steps.run("a", thread.note, "one more")
        bystander = await waiting(steps, thread, "b")
        thread.complete(WAITING_MAX + 2)
        await asyncio.gather(*flood, *bystander)
        assert thread.order.index("b") <= 2

    run(story())


def test_a_cancelled_step_gives_its_turn_to_the_next() -> None:
    async def story() -> None:
        thread = Thread()
        steps = SlowSteps(thread.run_blocking)
        first, second, third = await waiting(steps, thread, "a1", "b1", "c1")
        second.cancel()
        first.cancel()
        await asyncio.wait([first, second])
        thread.complete(1)
        assert await third == "c1"
        assert await asyncio.gather(*await waiting(steps, thread, "d1"), _one_more(thread)) == ["d1", None]

    run(story())


async def _one_more(thread: Thread) -> None:
    thread.complete(1)


def test_a_failed_step_gives_its_turn_to_the_next() -> None:
    async def story() -> None:
        thread = Thread()
        steps = SlowSteps(thread.run_blocking)

        def fails() -> None:
            raise ValueError("a failure")

        failing = asyncio.ensure_future(steps.run("a", fails))
        await asyncio.sleep(0)
        (other,) = await waiting(steps, thread, "b1")
        thread.complete(2)
        with pytest.raises(ValueError, match="a failure"):
            await failing
        assert await other == "b1"

    run(story())
