"""Observers: they follow any reachable voter, propose like a voter, and their image never goes back."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from cordwood.chaos.sim.quorum import SimulatedQuorum, formed, host, run, setting
from cordwood.cluster.metadata.image import CommandRefused, Image
from cordwood.cluster.metadata.raft.connection import UNSENT_BYTES_MAX
from cordwood.cluster.metadata.raft.log import APPLIED_BYTES_PER_STEP
from cordwood.cluster.metadata.raft.messages import MalformedMessage
from cordwood.cluster.metadata.raft.observer import Observer

SEVEN = 7


def test_an_observer_sees_what_is_committed_and_proposes() -> None:
    async def story() -> None:
        quorum = await formed()
        await quorum.put(1, "a")
        quorum.observe(SEVEN)
        await quorum.formed(SEVEN)
        await quorum.put(SEVEN, "b")
        await quorum.put(2, "c")
        await quorum.formed()
        assert quorum.keys(SEVEN) == quorum.keys(1) == ["a", "b", "c"]

    run(story())


def test_an_observer_hears_why_it_is_refused() -> None:
    async def story() -> None:
        quorum = await formed()
        observer = quorum.observe(SEVEN)
        await quorum.put(1, "a")
        await quorum.formed(SEVEN)
        with pytest.raises(CommandRefused, match="changed by another request"):
            await quorum._in_process(SEVEN, observer.propose(setting("a", "2")))

    run(story())


def test_an_observer_of_a_long_log_begins_with_an_image() -> None:
    async def story() -> None:
        quorum = await formed(snapshot_interval_bytes=1_000)
        await quorum.put(1, *(f"key {number}" for number in range(100)))
        observer = quorum.observe(SEVEN)
        changes: list[tuple[int, int]] = []
        observer.subscribe(lambda old, new: changes.append((old.index, new.index)))
        await quorum.formed(SEVEN)
        assert quorum.keys(SEVEN) == quorum.keys(1)
        assert changes[0][0] == 0
        assert changes[0][1] > 10

    run(story())


class Steps:
    """The new keys of each change of a broker's image, as a listener that notices whether the loop runs in between."""

    def __init__(self) -> None:
        self.keys: list[int] = []
        self.are_two = asyncio.Event()
        self._has_run = True

    def __call__(self, old: Image, new: Image) -> None:
        assert self._has_run, "other work has its turn between two steps"
        self.keys.append(len(new.configs_of_all_brokers) - len(old.configs_of_all_brokers))
        self._has_run = False
        if len(self.keys) == 2:
            self.are_two.set()
        asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        self._has_run = True


LONG_KEYS = [f"{number} {'key' * 300}" for number in range(50)]
LONG_KEYS_PER_STEP = APPLIED_BYTES_PER_STEP // 900


@pytest.mark.parametrize("is_interrupted", [False, True])
def test_an_observer_applies_many_entries_in_small_steps(is_interrupted: bool) -> None:
    async def story() -> None:
        quorum = await formed()
        await quorum.put(1, *LONG_KEYS)
        observer, steps = quorum.observe(SEVEN), Steps()
        observer.subscribe(steps)
        if is_interrupted:
            await steps.are_two.wait()
            assert observer._followed is not None
            assert len(quorum.keys(SEVEN)) < len(LONG_KEYS)
            quorum.kill(observer._followed)
            await quorum.leader()
            await quorum.put(min(quorum.quorums), "the last")
        await quorum.formed(SEVEN)
        assert quorum.keys(SEVEN)[: len(LONG_KEYS)] == LONG_KEYS
        assert max(steps.keys) <= LONG_KEYS_PER_STEP

    run(story())


def test_a_voter_applies_many_entries_in_small_steps() -> None:
    async def story() -> None:
        quorum = await formed()
        leader, late, _ = await quorum.leader(), *await quorum.followers()
        quorum.kill(late)
        await quorum.put(leader, *LONG_KEYS)
        steps = Steps()
        quorum.start(late).quorums[late].subscribe(steps)
        await quorum.formed(late)
        assert quorum.keys(late) == LONG_KEYS
        assert max(steps.keys) <= LONG_KEYS_PER_STEP

    run(story())


class Unpacking:
    """What an observer has unpacked beside its loop, which waits until the test lets it go on."""

    def __init__(self) -> None:
        self.begun, self.may_go_on = 0, asyncio.Event()
        self.errors: list[Exception] = []

    async def run_blocking(self, function: Callable[..., Any], *arguments: Any) -> Any:
        self.begun += 1
        await self.may_go_on.wait()
        if self.errors:
            raise self.errors.pop()
        return function(*arguments)


async def unpacking_observer(unpacking: Unpacking) -> tuple[SimulatedQuorum, Observer]:
    """An observer that has been sent an image, and later entries."""
    quorum = await formed(snapshot_interval_bytes=1_000)
    await quorum.put(1, *(f"key {number}" for number in range(100)))
    observer = quorum.observe(SEVEN, run_blocking=unpacking.run_blocking)
    await quorum.until(lambda: unpacking.begun == 1)
    await quorum.put(1, "a", "b")
    await asyncio.sleep(10)
    return quorum, observer


def test_an_image_is_unpacked_beside_the_loop_and_later_entries_wait() -> None:
    async def story() -> None:
        unpacking = Unpacking()
        quorum, observer = await unpacking_observer(unpacking)
        assert (unpacking.begun, observer.image.index) == (1, 0)
        unpacking.may_go_on.set()
        await quorum.until(lambda: quorum.keys(SEVEN) == quorum.keys(1))
        assert unpacking.begun == 1

    run(story())


def test_an_image_of_a_voter_that_dies_meanwhile_is_not_taken() -> None:
    async def story() -> None:
        unpacking = Unpacking()
        quorum, observer = await unpacking_observer(unpacking)
        first = observer._followed
        assert first is not None
        quorum.kill(first)
        await quorum.until(lambda: unpacking.begun == 2)
        assert observer._followed != first
        unpacking.may_go_on.set()
        await quorum.put(min(quorum.quorums), "c")
        await quorum.until(lambda: quorum.keys(SEVEN)[-3:] == ["a", "b", "c"])

    run(story())


def test_an_image_that_does_not_read_as_one_is_asked_of_another_voter() -> None:
    async def story() -> None:
        unpacking = Unpacking()
        quorum, observer = await unpacking_observer(unpacking)
        first = observer._followed
        unpacking.errors.append(MalformedMessage("it does not read as an image"))
        unpacking.may_go_on.set()
        await quorum.until(lambda: quorum.keys(SEVEN) == quorum.keys(1))
        assert observer._followed != first

    run(story())


@pytest.mark.parametrize("what", ["leader", "followed"])
def test_an_observer_goes_on_when_a_voter_dies(what: str) -> None:
    async def story() -> None:
        quorum = await formed()
        observer = quorum.observe(SEVEN)
        await quorum.formed(SEVEN)
        victim = await quorum.leader() if what == "leader" else observer._followed
        assert victim is not None
        quorum.kill(victim)
        await quorum.put(SEVEN, "a")
        await quorum.put(min(quorum.quorums), "b")
        await quorum.until(lambda: quorum.keys(SEVEN) == ["a", "b"])

    run(story())


def test_an_observer_leaves_a_voter_that_is_cut_off_from_the_others() -> None:
    async def story() -> None:
        quorum = await formed()
        observer = quorum.observe(SEVEN)
        await quorum.formed(SEVEN)
        followed = observer._followed
        assert followed is not None
        quorum.cut_off(followed)
        await quorum.put(next(voter for voter in quorum.quorums if voter != followed), "a")
        await quorum.until(lambda: quorum.keys(SEVEN) == ["a"])

    run(story())


def test_an_observer_that_reaches_no_leader_proposes_through_who_it_follows() -> None:
    async def story() -> None:
        quorum = await formed()
        leader = await quorum.leader()
        quorum.network.cut(host(SEVEN), host(leader))
        quorum.observe(SEVEN)
        await quorum.formed(SEVEN)
        await quorum.put(SEVEN, "a")

    run(story())


def test_what_a_full_connection_does_not_take_is_sent_once_it_has_room() -> None:
    async def story() -> None:
        quorum = await formed()
        observer = quorum.observe(SEVEN)
        await quorum.formed(SEVEN)
        keys = [f"key {number}" for number in range(6)]
        long_value = "x" * (UNSENT_BYTES_MAX // 3)
        proposed = [quorum._in_process(SEVEN, observer.propose(setting(key, long_value))) for key in keys]
        await asyncio.gather(*proposed)
        assert quorum.keys(SEVEN) == keys

    run(story())


def test_an_observer_follows_through_trouble_without_going_back() -> None:
    async def story() -> None:
        quorum = await formed(snapshot_interval_bytes=1_000)
        observer = quorum.observe(SEVEN)
        await quorum.formed(SEVEN)
        seen: list[int] = []
        observer.subscribe(lambda old, new: seen.extend((old.index, new.index)))
        for turn in range(6):
            voter = turn % 3 + 1
            quorum.kill(voter)
            await quorum.put(min(quorum.quorums), *(f"{turn}.{number}" for number in range(20)))
            quorum.start(voter)
        await quorum.formed()
        assert seen == sorted(seen)
        assert quorum.keys(SEVEN) == quorum.keys(1)
        assert len(quorum.keys(1)) == 120

    run(story())


def test_the_status_shows_it() -> None:
    async def story() -> None:
        quorum = await formed()
        quorum.observe(SEVEN)
        await quorum.formed(SEVEN)
        leader = await quorum.leader()
        await quorum.wait(1)
        observers = quorum.quorums[leader].status().observers
        assert [(observer.broker_id, observer.is_connected) for observer in observers] == [(SEVEN, True)]
        status = quorum.observers[SEVEN].status()
        assert status.leader_id == leader
        assert status.commit_index >= 1

    run(story())
