"""The decode queue: one task at a time, and a large task waits for room in its memory pool."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from cordwood.chaos.sim.loop import run
from cordwood.cluster.resources.decode_queue import WAIT_S_MAX, DecodeQueue
from cordwood.cluster.resources.memory import MemoryPool
from cordwood.storage.errors import OutOfResources

LIMIT, OWN = 100, 10


class Story:
    """A decode queue; `others` is the share of other pools in the common limit."""

    def __init__(self, others: int = 0) -> None:
        self.others = MemoryPool("others", LIMIT, used=others)
        self.pool = MemoryPool("decoding", LIMIT, OWN, (self.others,), LIMIT + OWN)
        self.decoding = DecodeQueue(self._beside, self.pool)
        self.done: list[str] = []
        self._at_once = 0

    async def decode(self, name: str, size: int) -> None:
        await self.decoding.run(self.done.append, name, size=size)

    async def _beside(self, function: Callable[..., Any], *arguments: Any) -> Any:
        self._at_once += 1
        assert self._at_once == 1, "one at a time"
        await asyncio.sleep(0.1)
        self._at_once -= 1
        return function(*arguments)


def test_work_is_done_in_the_order_in_which_it_came() -> None:
    story = Story()

    async def told() -> None:
        await asyncio.gather(*(story.decode(str(number), 90) for number in range(5)))
        assert story.done == ["0", "1", "2", "3", "4"]
        assert story.pool.used == story.pool.waits == 0

    run(told())


def test_what_needs_little_goes_on_while_what_needs_much_waits_for_room() -> None:
    story = Story(others=50)

    async def told() -> None:
        large = asyncio.ensure_future(story.decode("large", 90))
        await asyncio.sleep(1)
        await story.decode("small", OWN)
        assert story.done == ["small"]
        story.others.used = 0
        await large
        assert story.done == ["small", "large"]

    run(told())


def test_what_gets_no_room_is_refused_in_the_end() -> None:
    story = Story(others=50)

    async def told() -> None:
        with pytest.raises(OutOfResources):
            await asyncio.wait_for(story.decode("large", 90), 2 * WAIT_S_MAX)
        assert story.pool.used == 0

    run(told())
