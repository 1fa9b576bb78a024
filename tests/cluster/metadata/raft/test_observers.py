"""Observers: they follow any reachable voter, propose like a voter, and their image never goes back."""

import pytest

from cordwood.chaos.sim.quorum import formed, host, run, setting
from cordwood.cluster.metadata.image import CommandRefused

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
