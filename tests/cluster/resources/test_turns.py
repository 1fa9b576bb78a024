"""Turns of large requests: they share one slice of each event-loop iteration, in order of arrival (ADR 25)."""

import asyncio

from cordwood.cluster.resources.turns import AT_ONCE_MAX, FREE_STEPS, SLICE_S, SLICE_STEPS, Turns
from cordwood.storage.steps import Steps

STEP_S = SLICE_S / 10


class Clock:
    """A clock that only work advances."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Story:
    """Requests with steps of a tenth of a slice each, and a bystander that counts event-loop iterations."""

    def __init__(self, step_s: float = STEP_S) -> None:
        self.clock, self.step_s = Clock(), step_s
        self.turns = Turns(self.clock)
        self.done: list[tuple[str, int]] = []
        """Each step taken, with its event-loop iteration."""
        self.turn = 0

    def steps(self, name: str, count: int) -> Steps[str]:
        for _ in range(count):
            self.clock.now += self.step_s
            self.done.append((name, self.turn))
            yield
        return name

    async def run(self, **requests: int) -> list[str]:
        bystander = asyncio.ensure_future(self._count_turns())
        found = await asyncio.gather(*(self.turns.run(self.steps(name, count)) for name, count in requests.items()))
        bystander.cancel()
        return found

    def steps_by_turn(self) -> list[int]:
        return [sum(turn == at for _, at in self.done) for turn in range(1, self.turn + 1)]

    async def _count_turns(self) -> None:
        while True:
            self.turn += 1
            await asyncio.sleep(0)


def test_a_large_request_takes_one_slice_of_each_turn() -> None:
    story = Story()
    assert asyncio.run(story.run(large=300)) == ["large"]
    assert len(story.done) == 300
    later = [count for count in story.steps_by_turn()[1:] if count]
    assert max(later) <= 11, "ten steps are a slice, and the one that ends it"
    assert len(later) >= (300 - FREE_STEPS) // 11


def test_many_large_requests_share_the_same_slice() -> None:
    story = Story()
    asyncio.run(story.run(one=200, two=200, three=200))
    assert max(story.steps_by_turn()[1:]) <= 11
    last = {name: max(turn for known, turn in story.done if known == name) for name in ("one", "two", "three")}
    assert max(last.values()) - min(last.values()) <= 6, "none is served at the cost of the others"


def test_a_small_request_does_not_wait_for_large_ones() -> None:
    story = Story()
    asyncio.run(story.run(one=200, two=200, small=FREE_STEPS))
    assert {turn for name, turn in story.done if name == "small"} == {1}


def test_a_slice_ends_after_so_many_steps_where_no_time_goes_by() -> None:
    story = Story(step_s=0.0)
    asyncio.run(story.run(large=1000))
    assert max(story.steps_by_turn()[1:]) <= SLICE_STEPS


def test_a_request_that_is_given_up_leaves_its_turn_to_others() -> None:
    story = Story()

    async def tell() -> list[str]:
        given_up = [asyncio.ensure_future(story.turns.run(story.steps(f"given up {n}", 200))) for n in range(5)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        for task in given_up:
            task.cancel()
        return await asyncio.wait_for(story.run(large=200), 10)

    assert asyncio.run(tell()) == ["large"]


def test_groups_without_items_let_others_in_too() -> None:
    turns, others = Turns(Clock()), 0

    async def count() -> None:
        nonlocal others
        while True:
            others += 1
            await asyncio.sleep(0)

    async def tell() -> list[tuple[str, int]]:
        bystander = asyncio.ensure_future(count())
        groups: list[tuple[str, range]] = [("empty", range(0))] * 10 * SLICE_STEPS
        found = [place async for place in turns.within([("a", range(2)), *groups, ("b", range(1))])]
        bystander.cancel()
        return found

    assert asyncio.run(tell()) == [("a", 0), ("a", 1), ("b", 0)]
    assert others >= 10


def test_only_a_few_outcomes_are_awaited_at_the_same_time() -> None:
    turns = Turns(Clock())
    waiting: set[int] = set()
    most = 0

    async def outcome(item: int) -> int:
        nonlocal most
        waiting.add(item)
        most = max(most, len(waiting))
        await asyncio.sleep(0.0001 * (item % 3))
        waiting.remove(item)
        return item * 2

    async def tell() -> list[int]:
        return await turns.gather(outcome, range(100))

    assert asyncio.run(tell()) == [item * 2 for item in range(100)]
    assert most == AT_ONCE_MAX


def test_nothing_to_gather_comes_to_nothing() -> None:
    async def outcome(item: int) -> int:
        raise AssertionError(item)

    async def tell() -> list[int]:
        return await Turns(Clock()).gather(outcome, [])

    assert asyncio.run(tell()) == []
