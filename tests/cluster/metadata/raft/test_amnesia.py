"""Voters with a lost or damaged journal: they neither vote nor count until they caught up (Raft rule 7, ADR 11)."""

import random

import pytest

from cordwood.chaos.sim.disk import SimulatedDisk
from cordwood.chaos.sim.quorum import DIRECTORY, SimulatedQuorum, formed, run
from cordwood.cluster.metadata import snapshot
from cordwood.cluster.metadata.commands import BrokerId
from cordwood.cluster.metadata.quorum import QuorumUnavailable
from cordwood.cluster.metadata.raft import storage
from cordwood.cluster.metadata.raft.messages import Standing

JOURNAL = f"{DIRECTORY}/journal"


def standings(quorum: SimulatedQuorum) -> list[Standing]:
    return [quorum.standing(voter) for voter in sorted(quorum.quorums)]


def test_a_wiped_voter_is_readmitted_once_it_has_the_log() -> None:
    async def story() -> None:
        quorum = await formed()
        await quorum.put(1, "a")
        wiped = (await quorum.followers())[0]
        quorum.wipe(wiped)
        await quorum.put(min(quorum.quorums), "b")
        quorum.start(wiped)
        assert quorum.standing(wiped) is Standing.EMPTY
        await quorum.until(lambda: quorum.standing(wiped) is Standing.AMNESIAC)
        await quorum.until(lambda: quorum.standing(wiped) is Standing.MEMBER)
        await quorum.formed()
        assert quorum.keys(wiped) == ["a", "b"]

    run(story())


def test_a_wiped_leader_is_readmitted_by_the_next() -> None:
    async def story() -> None:
        quorum = await formed()
        await quorum.put(1, "a")
        leader = await quorum.leader()
        quorum.wipe(leader)
        quorum.start(leader)
        await quorum.until(lambda: quorum.standing(leader) is Standing.MEMBER)
        assert await quorum.leader() != leader
        assert quorum.keys(leader) == ["a"]

    run(story())


def test_every_voter_may_be_wiped_one_after_the_other() -> None:
    async def story() -> None:
        quorum = await formed()
        await quorum.put(1, "a")
        for voter in (1, 2, 3):
            quorum.wipe(voter)
            quorum.start(voter)
            await quorum.until(lambda voter=voter: quorum.standing(voter) is Standing.MEMBER)
        await quorum.put(1, "b")
        assert quorum.keys(1) == ["a", "b"]

    run(story())


def test_a_wiped_voter_does_not_help_an_empty_log_to_win() -> None:
    """Two of three voters had the change. With the wiped one, the third must not get a majority."""

    async def story() -> None:
        quorum = await formed()
        leader = await quorum.leader()
        wiped, lagging = await quorum.followers()
        quorum.cut_off(lagging)
        await quorum.put(leader, "a")
        quorum.wipe(wiped)
        quorum.kill(leader)
        quorum.heal()
        quorum.start(wiped)
        await quorum.wait(30)
        assert not any(voter.is_leader for voter in quorum.quorums.values())
        assert quorum.standing(wiped) is Standing.AMNESIAC
        quorum.start(leader)
        await quorum.until(lambda: quorum.standing(wiped) is Standing.MEMBER)
        await quorum.formed()
        assert quorum.keys(wiped) == quorum.keys(lagging) == ["a"]

    run(story())


def test_two_of_three_wiped_at_once_stay_unavailable() -> None:
    async def story() -> None:
        quorum = await formed()
        await quorum.put(1, "a")
        quorum.wipe(1, 2)
        quorum.start(1, 2)
        with pytest.raises(QuorumUnavailable):
            await quorum.put(3, "b")
        await quorum.wait(30)
        assert standings(quorum) == [Standing.AMNESIAC, Standing.AMNESIAC, Standing.MEMBER]
        assert not any(voter.is_leader for voter in quorum.quorums.values())

    run(story())


def test_wiped_voters_do_not_found_a_cluster_beside_one_with_a_log() -> None:
    async def story() -> None:
        quorum = await formed()
        quorum.kill(3)
        quorum.wipe(1, 2)
        quorum.start(1, 2)
        await quorum.wait(30)
        assert standings(quorum) == [Standing.EMPTY, Standing.EMPTY]

    run(story())


def test_an_amnesiac_that_dies_meanwhile_is_one_still() -> None:
    async def story() -> None:
        quorum = await formed()
        await quorum.put(1, "a")
        leader = await quorum.leader()
        wiped, other = await quorum.followers()
        quorum.kill(other)
        quorum.wipe(wiped)
        quorum.start(wiped)
        await quorum.until(lambda: quorum.standing(wiped) is Standing.AMNESIAC)
        await quorum.wait(1)
        quorum.power_cut(wiped, keep=0)
        quorum.start(wiped)
        assert quorum.standing(wiped) is Standing.AMNESIAC
        quorum.start(other)
        await quorum.until(lambda: quorum.standing(wiped) is Standing.MEMBER)
        assert quorum.keys(wiped) == ["a"]
        assert leader

    run(story())


def test_a_byte_that_turned_over_makes_an_amnesiac_and_is_kept_for_the_operator() -> None:
    async def story() -> None:
        quorum = await formed()
        await quorum.put(1, "a", "b", "c")
        damaged = BrokerId((await quorum.followers())[0])
        quorum.kill(damaged)
        before = quorum.disks[damaged].content(JOURNAL)
        quorum.disks[damaged].flip(JOURNAL, before.index(b"broker") if b"broker" in before else len(before) // 2, 3)
        await quorum.put(await quorum.leader(), "d")
        quorum.start(damaged)
        assert [damage.path for damage in quorum.quorums[damaged].damage] == [JOURNAL]
        await quorum.until(lambda: quorum.standing(damaged) is Standing.MEMBER)
        await quorum.formed()
        assert quorum.keys(damaged) == ["a", "b", "c", "d"]
        assert quorum.disks[damaged].exists(f"{DIRECTORY}/damaged-1/journal")

    run(story())


@pytest.mark.parametrize("what", ["journal", "snapshot", "standing"])
def test_every_file_is_watched(what: str) -> None:
    async def story() -> None:
        quorum = await formed(snapshot_interval_bytes=1_000)
        await quorum.put(1, *(f"key {number}" for number in range(60)))
        damaged = BrokerId((await quorum.followers())[0])
        quorum.kill(damaged)
        disk = quorum.disks[damaged]
        name = snapshot.names(disk, DIRECTORY)[-1] if what == "snapshot" else what
        disk.flip(f"{DIRECTORY}/{name}", len(disk.content(f"{DIRECTORY}/{name}")) // 2, 1)
        quorum.start(damaged)
        assert quorum.quorums[damaged].damage
        await quorum.until(lambda: quorum.standing(damaged) is Standing.MEMBER)
        await quorum.formed()
        assert quorum.keys(damaged) == quorum.keys(await quorum.leader())

    run(story())


def test_damage_while_it_runs_is_found_and_repaired() -> None:
    async def story() -> None:
        quorum = await formed(snapshot_interval_bytes=1_000)
        await quorum.put(1, *(f"key {number}" for number in range(60)))
        voter, disk = quorum.quorums[1], quorum.disks[BrokerId(1)]
        await quorum.wait(1)
        assert await quorum._in_process(1, voter.scrub()) == []
        newest = f"{DIRECTORY}/{snapshot.names(disk, DIRECTORY)[-1]}"
        disk.flip(JOURNAL, len(disk.content(JOURNAL)) // 2, 1)
        disk.flip(newest, 40, 1)
        found = await quorum._in_process(1, voter.scrub())
        assert [damage.path for damage in found] == [newest, JOURNAL]
        assert await quorum._in_process(1, voter.scrub()) == []
        quorum.power_cut(1, keep=0)
        quorum.start(1)
        assert quorum.quorums[1].damage == []
        assert quorum.standing(1) is Standing.MEMBER

    run(story())


def test_the_newest_damage_is_kept_and_the_oldest_goes() -> None:
    disk = SimulatedDisk(random.Random(1))
    for _ in range(5):
        storage.read(disk, DIRECTORY)
        storage.write_standing(disk, DIRECTORY, Standing.MEMBER)
        disk.flip(JOURNAL, 3, 1)
    storage.read(disk, DIRECTORY)
    kept = [name for name in disk.list_directory(DIRECTORY) if name.startswith(storage.DAMAGED)]
    assert kept == ["damaged-3", "damaged-4", "damaged-5"]


@pytest.mark.parametrize("steps", range(30))
def test_a_crash_while_damage_is_put_aside_leaves_an_amnesiac(steps: int) -> None:
    disk = SimulatedDisk(random.Random(steps))
    storage.read(disk, DIRECTORY)
    storage.write_standing(disk, DIRECTORY, Standing.MEMBER)
    disk.flip(JOURNAL, 3, 1)
    disk.faults.die_after(steps)
    try:
        storage.read(disk, DIRECTORY)
    except BaseException:
        disk.power_cut()
    disk.faults.heal()
    assert storage.read(disk, DIRECTORY).standing is Standing.AMNESIAC


def test_the_metadata_of_a_broker_without_peers_is_not_a_voters() -> None:
    disk = SimulatedDisk(random.Random(1))
    disk.make_directories(f"{DIRECTORY}/copy")
    with pytest.raises(storage.WrongMetadata, match=r"set controller\.quorum\.voters to this broker alone"):
        storage.read(disk, DIRECTORY)
