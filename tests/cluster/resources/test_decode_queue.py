"""The decode queue: one step of the work at a time, and large work waits for room in its memory pool."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from log_fixture import LogFixture
from raw_batches import NOW_MS

from cordwood.chaos.sim.loop import run
from cordwood.cluster.resources.decode_queue import SEARCH_BYTES, SMALL_BYTES, WAIT_S_MAX, DecodeQueue
from cordwood.cluster.resources.memory import MIB, Memory, MemoryPool
from cordwood.storage.admission import admit_records_in_steps
from cordwood.storage.batch import check
from cordwood.storage.budget import RECORDS_PER_STEP, UNPACKED_BYTES_MAX, Budget
from cordwood.storage.config import LogConfig
from cordwood.storage.contents import examine_in_python_in_steps
from cordwood.storage.errors import OutOfResources
from cordwood.storage.records import Record, encode
from cordwood.storage.steps import Steps
from cordwood.storage.timestamps import RECORDS_PER_STEP as SEARCHED_PER_STEP
from cordwood.storage.timestamps import first_at_or_after, latest_by_time

LIMIT, OWN = 40 * MIB, SEARCH_BYTES
LARGE = 12 * MIB
STEP_S = 0.1
LONG_STEPS = 8


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

    async def decode_steps(self, name: str, size: int, steps: int) -> None:
        def work() -> Steps[None]:
            for number in range(steps):
                self.done.append(f"{name} {number}")
                yield

        await self.decoding.run_steps(work(), size)

    async def _beside(self, function: Callable[..., Any], *arguments: Any) -> Any:
        self._at_once += 1
        assert self._at_once == 1, "one at a time"
        await asyncio.sleep(STEP_S)
        self._at_once -= 1
        return function(*arguments)


def test_work_is_done_in_the_order_in_which_it_came() -> None:
    story = Story()

    async def reported() -> None:
        await asyncio.gather(*(story.decode(str(number), LARGE) for number in range(5)))
        assert story.done == ["0", "1", "2", "3", "4"]
        assert story.pool.used == story.pool.waits == 0

    run(reported())


def test_what_needs_little_goes_on_while_what_needs_much_waits_for_room() -> None:
    story = Story(others=LIMIT)
    story.pool.used = story.pool.own - SMALL_BYTES

    async def reported() -> None:
        large = asyncio.ensure_future(story.decode("large", LARGE))
        await asyncio.sleep(1)
        await story.decode("small", SMALL_BYTES)
        assert story.done == ["small"]
        story.others.used = 0
        await large
        assert story.done == ["small", "large"]

    run(reported())


def test_what_gets_no_room_is_refused_in_the_end() -> None:
    story = Story(others=LIMIT)

    async def reported() -> None:
        with pytest.raises(OutOfResources):
            await asyncio.wait_for(story.decode("large", OWN + 1), 2 * WAIT_S_MAX)
        assert story.pool.used == 0

    run(reported())


@pytest.mark.parametrize("is_in_steps", [False, True])
def test_large_work_waits_in_order_though_the_pool_has_so_much_room_of_its_own(is_in_steps: bool) -> None:
    story = Story(others=LIMIT)
    story.pool.used = story.pool.own - SMALL_BYTES - 1

    async def scenario() -> None:
        first = asyncio.ensure_future(story.decode("first", LARGE))
        await asyncio.sleep(1)
        size = SMALL_BYTES + 1
        second = asyncio.ensure_future(
            story.decode_steps("second", size, 1) if is_in_steps else story.decode("second", size)
        )
        await asyncio.sleep(1)
        assert story.done == []
        story.pool.used = 0
        await asyncio.gather(first, second)
        assert story.done[0] == "first"

    run(scenario())


@pytest.mark.parametrize("size", [SMALL_BYTES, LARGE])
def test_work_of_many_parts_lets_other_work_run_after_each(size: int) -> None:
    story = Story()

    async def scenario() -> None:
        await asyncio.gather(story.decode_steps("long", size, 50), story.decode_steps("short", size, 2))
        assert story.done[:5] == ["long 0", "short 0", "long 1", "short 1", "long 2"]
        assert story.pool.used == 0

    run(scenario())


def test_of_the_largest_work_one_runs_and_leaves_room_for_other_work() -> None:
    story = Story()
    story.pool.limit = story.pool.total = 5 * SEARCH_BYTES
    huge = 4 * SEARCH_BYTES

    async def scenario() -> None:
        await asyncio.gather(
            story.decode_steps("huge", huge, 9),
            story.decode_steps("huge too", huge, 9),
            story.decode_steps("search", SEARCH_BYTES, 2),
        )
        assert story.done[:3] == ["huge 0", "search 0", "huge 1"]
        assert story.done.index("huge too 0") > story.done.index("huge 8")

    run(scenario())


def test_work_that_fails_gives_its_room_back() -> None:
    story = Story()

    def broken() -> Steps[None]:
        yield
        raise OutOfResources("broken")

    async def scenario() -> None:
        with pytest.raises(OutOfResources, match="broken"):
            await story.decoding.run_steps(broken(), LARGE)
        assert story.pool.used == 0
        await story.decode("after", LARGE)

    run(scenario())


def irregular(count: int) -> bytes:
    """Return a batch in which no two consecutive records have the same length, and only the last one is late."""
    records = [Record(0, NOW_MS, b"k", b"v" * (number % 50)) for number in range(count - 1)]
    return encode([*records, Record(0, NOW_MS + 1, b"k", b"v")])


def check_in_python() -> Steps[None]:
    batch = irregular(LONG_STEPS * RECORDS_PER_STEP)
    return admit_records_in_steps(batch, check(batch), LogConfig(), Budget(), examine_in_python_in_steps)


def search(looks_up_latest: bool) -> Steps[Any]:
    log = LogFixture(LogConfig(batch_bytes_max=64 * MIB)).log
    batch = irregular(LONG_STEPS * SEARCHED_PER_STEP)
    end = log.append(batch, check(batch), 0, NOW_MS).end_offset
    return latest_by_time(log, end) if looks_up_latest else first_at_or_after(log, NOW_MS + 1, end)


@pytest.mark.parametrize(
    ("work", "size"),
    [
        (check_in_python, UNPACKED_BYTES_MAX),
        (lambda: search(looks_up_latest=False), SEARCH_BYTES),
        (lambda: search(looks_up_latest=True), SEARCH_BYTES),
    ],
    ids=["check", "first", "latest"],
)
def test_a_bystander_of_a_batch_that_takes_long_waits_for_one_step(work: Callable[[], Steps[Any]], size: int) -> None:
    story = Story()
    story.pool = Memory.of(100 * MIB, 1000).decoding
    story.decoding = DecodeQueue(story._beside, story.pool)

    async def scenario() -> None:
        now = asyncio.get_running_loop().time
        begin, long = now(), asyncio.ensure_future(story.decoding.run_steps(work(), size))
        waits = []
        for bystander in (MIB, 8 * MIB, SEARCH_BYTES):
            await asyncio.sleep(STEP_S)
            asked = now()
            await story.decode("bystander", bystander)
            waits.append(now() - asked)
        assert not long.done()
        await long
        assert max(waits) < 3 * STEP_S
        assert now() - begin > LONG_STEPS * STEP_S

    run(scenario())
