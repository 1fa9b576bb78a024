"""Voters that are added and removed while the quorum runs (KIP-853, docs/adr/0042)."""

import asyncio
import random

import pytest

from cordwood.chaos.sim.disk import SimulatedDisk
from cordwood.chaos.sim.faults import Died
from cordwood.chaos.sim.quorum import DIRECTORY, SimulatedQuorum, formed, run
from cordwood.chaos.sim.voters_scenario import STORIES, run_voter_story, run_voters_scenario
from cordwood.cluster.metadata.commands import AlterConfigs, BrokerId, ConfigChange, ResourceType, UpdateVoter
from cordwood.cluster.metadata.image import CommandRefused
from cordwood.cluster.metadata.quorum import QuorumOptions, SingleVoter
from cordwood.cluster.metadata.raft.conversion import convert
from cordwood.cluster.metadata.raft.messages import Standing
from cordwood.cluster.metadata.raft.storage import read
from cordwood.cluster.metadata.voter_changes import replaced_directory

STRIDE = 37
"""Steps between the crashes that a test tries; `run_voter_story` takes any."""


@pytest.mark.parametrize("name", STORIES)
def test_a_crash_at_any_step_of_a_change_leaves_the_voters_before_or_after_it(name: str) -> None:
    story = STORIES[name]
    running = tuple(member for member in story.members if member != story.dead)
    changed = story.added or story.removed or 1
    for number, victims in enumerate(sorted({(1,), running, *([(changed,)] if changed != story.dead else [])})):
        step = 1 + 7 * number
        while run_voter_story(story, victims, step, seed=step, cut=number % 2 == 0):
            step += STRIDE
        assert step > STRIDE, "the change ended before any crash"


@pytest.mark.parametrize("seed", [2, 3])
def test_any_faults_around_changes_of_the_voters_lose_nothing(seed: int) -> None:
    run_voters_scenario(seed)


async def grown(voters: int = 3) -> SimulatedQuorum:
    """Return a quorum that broker 1 has founded, and that was extended to `voters` voters."""
    quorum = SimulatedQuorum(voters=1).start()
    await quorum.formed()
    quorum.join(*range(2, voters + 1))
    await quorum.formed()
    await quorum.register(*quorum.members)
    for voter in range(2, voters + 1):
        await quorum.add(1, voter)
    return quorum


def test_a_quorum_grows_from_one_voter_to_five_and_back_without_its_founder() -> None:
    async def story() -> None:
        quorum = await grown(5)
        await quorum.put(3, "a")
        for voter in (1, 2, 3, 4):
            await quorum.remove(5, voter)
        await quorum.put(1, "b")
        await quorum.formed()
        assert {quorum.voters(member) for member in quorum.quorums} == {(5,)}
        assert all(quorum.keys(member) == ["a", "b"] for member in quorum.quorums)
        assert await quorum.leader() == 5

    run(story())


def test_a_new_voter_counts_and_a_removed_one_does_not() -> None:
    async def story() -> None:
        quorum = await grown(3)
        quorum.kill(2)
        await quorum.put(1, "a")
        await quorum.remove(1, 2)
        quorum.kill(3)
        leader = quorum.quorums[1]
        await quorum.until(lambda: not leader.is_leader)
        quorum.start(2)
        await quorum.wait(5)
        assert not any(voter.is_leader for voter in quorum.quorums.values()), "one of two voters leads"
        quorum.start(3)
        await quorum.wait(0.1)
        await quorum.put(await quorum.leader(), "b")
        await quorum.formed()
        assert quorum.voters(2) == (1, 3)

    run(story())


def test_a_founder_with_an_empty_disk_joins_again_with_its_new_directory() -> None:
    async def story() -> None:
        quorum = await grown(3)
        await quorum.put(1, "a")
        quorum.wipe(1)
        quorum.start(1)
        await quorum.until(lambda: quorum.standing(1) is Standing.MEMBER)
        await quorum.register(1)
        leader = await quorum.leader()
        update = replaced_directory(quorum.quorums[leader].image)
        assert update == UpdateVoter(BrokerId(1), "broker-1:2", "broker-1", 9093)
        image = await quorum.propose(leader, update)
        assert replaced_directory(image) is None
        assert quorum.keys(1) == ["a"]

    run(story())


def test_what_is_no_change_by_one_voter_is_refused_with_a_sentence() -> None:
    async def story() -> None:
        quorum = await grown(2)
        quorum.join(3)
        await quorum.until(lambda: quorum.standing(3) is Standing.MEMBER)
        await quorum.formed()
        for through in (1, 2):
            with pytest.raises(CommandRefused, match="Broker 2 is a voter already"):
                await quorum.add(through, 2)
            with pytest.raises(CommandRefused, match="Broker 3 has not registered"):
                await quorum.add(through, 3)
            with pytest.raises(CommandRefused, match="Broker 3 is no voter"):
                await quorum.remove(through, 3)
        await quorum.register(3)
        await quorum.add(1, 3)
        quorum.kill(3)
        await quorum.wait(0.1)
        with pytest.raises(CommandRefused, match="too few voters would have the metadata: 3 of the remaining 2 lag"):
            await quorum.remove(1, 2)
        await quorum.remove(1, 3)
        await quorum.remove(1, 1)
        with pytest.raises(CommandRefused, match="the only voter"):
            await quorum.remove(2, 2)

    run(story())


def test_a_broker_that_does_not_follow_is_not_added() -> None:
    async def story() -> None:
        quorum = await grown(2)
        quorum.join(3)
        await quorum.until(lambda: quorum.standing(3) is Standing.MEMBER)
        await quorum.formed()
        await quorum.register(3)
        quorum.cut_off(3)
        await quorum.wait(4)
        with pytest.raises(CommandRefused, match="Broker 3 is not connected to the leader"):
            await quorum.add(1, 3)
        assert quorum.voters(1) == (1, 2)

    run(story())


def test_two_changes_at_once_are_made_one_after_the_other() -> None:
    async def story() -> None:
        quorum = await formed(voters=1)
        quorum.join(2, 3)
        await quorum.until(lambda: all(quorum.standing(member) is Standing.MEMBER for member in (2, 3)))
        await quorum.formed()
        await quorum.register(1, 2, 3)
        await asyncio.gather(quorum.add(1, 2), quorum.add(1, 3))
        assert quorum.voters(1) == (1, 2, 3)

    run(story())


def test_with_bootstrap_servers_an_empty_disk_founds_no_cluster() -> None:
    async def story() -> None:
        quorum = await grown(3)
        quorum.kill(2, 3)
        quorum.wipe(1)
        quorum.start(1)
        await quorum.wait(5)
        assert quorum.standing(1) is Standing.EMPTY
        quorum.start(2, 3)
        await quorum.until(lambda: quorum.standing(1) is Standing.MEMBER)

    run(story())


def test_observers_follow_the_voters_to_other_brokers() -> None:
    async def story() -> None:
        quorum = await formed(voters=1)
        quorum.observe(9)
        await quorum.formed(9)
        quorum.join(2)
        await quorum.formed()
        await quorum.register(1, 2)
        await quorum.add(1, 2)
        await quorum.remove(1, 1)
        await quorum.leader(2)
        await quorum.stop(1)
        await quorum.until(lambda: quorum.observers[9].leader_id == 2)
        await quorum.put(9, "a")
        assert quorum.keys(9) == ["a"]

    run(story())


def options_of(rng: random.Random) -> QuorumOptions:
    async def run_blocking(function: object, *arguments: object) -> object:
        raise AssertionError((function, arguments))

    return QuorumOptions(
        node_id=BrokerId(1),
        rng=rng,
        run_blocking=run_blocking,
        on_failure=lambda failure: pytest.fail(str(failure)),
        on_refused=pytest.fail,
        voters={BrokerId(1): ("broker-1", 9093)},
        cluster_id="ours",
    )


def converted_in(disk: SimulatedDisk, options: QuorumOptions) -> None:
    """Convert a single voter's metadata, and restart at each death, as an operator does."""
    while True:
        try:
            convert(disk, DIRECTORY, options)
            return
        except Died:
            disk.power_cut()
            disk.faults.heal()


def test_a_single_voter_becomes_a_quorum_of_one_at_whatever_step_it_crashes() -> None:
    for step in range(200):
        disk, options = SimulatedDisk(random.Random(step)), options_of(random.Random(1))

        async def story(disk: SimulatedDisk = disk, options: QuorumOptions = options) -> None:
            async def run_blocking(function, *arguments):  # type: ignore[no-untyped-def]
                return function(*arguments)

            single = SingleVoter.open(disk, DIRECTORY, options)
            single._run_blocking = run_blocking
            await single.propose(AlterConfigs(ResourceType.BROKER, "", (ConfigChange("a", None, "1"),)))
            await single.close()

        run(story())
        disk.faults.die_after(step)
        converted_in(disk, options)
        was_interrupted = disk.faults._steps_to_live is None
        disk.faults.heal()
        stored = read(
            disk,
            DIRECTORY,
        )
        assert (stored.standing, stored.image.configs_of_all_brokers) == (Standing.MEMBER, {"a": "1"})
        assert stored.damage == []
        if not was_interrupted:
            assert step > 10
            return
    raise AssertionError("the conversion never ended")
