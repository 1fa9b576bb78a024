"""Voters that descriptors, memory or disk space are lacking for: what they cannot write they neither do nor answer."""

import errno
import random

import pytest

from cordwood.chaos.sim.quorum import DIRECTORY, SimulatedQuorum, formed, run
from cordwood.cluster.metadata import snapshot
from cordwood.cluster.metadata.raft import storage
from cordwood.cluster.metadata.raft.messages import Standing

KEYS = [f"key {number}" for number in range(60)]
CODES = [errno.EMFILE, errno.ENFILE, errno.ENOMEM]


def refuse(quorum: SimulatedQuorum, path: str, code: int) -> None:
    for disk in quorum.disks.values():
        disk.faults.refuse_opens(path, code=code)


def relieve(quorum: SimulatedQuorum) -> None:
    for disk in quorum.disks.values():
        disk.faults.heal()


async def restarted(quorum: SimulatedQuorum) -> None:
    quorum.power_cut(*quorum.addresses, keep=0)
    await quorum.start().formed()


@pytest.mark.parametrize(
    ("refused", "code"), [*(("journal", code) for code in CODES), (".snapshot", errno.EMFILE), ("", errno.EMFILE)]
)
def test_a_journal_is_replaced_once_there_are_descriptors(refused: str, code: int) -> None:
    async def story() -> None:
        quorum = await formed(snapshot_interval_bytes=2_000)
        refuse(quorum, refused, code)
        await quorum.put(await quorum.leader(), *KEYS)
        assert quorum.failures == []
        assert all(voter._log.base_index == 0 for voter in quorum.quorums.values())
        relieve(quorum)
        await quorum.put(await quorum.leader(), "a", "b")
        await quorum.until(lambda: all(voter._log.base_index > 0 for voter in quorum.quorums.values()))
        await restarted(quorum)
        assert quorum.keys(1) == [*KEYS, "a", "b"]

    run(story())


def test_a_journal_that_a_broken_disk_cannot_replace_ends_its_voter() -> None:
    async def story() -> None:
        quorum = await formed(snapshot_interval_bytes=2_000)
        follower = (await quorum.followers())[0]
        quorum.disks[follower].faults.refuse_opens("journal", code=errno.EIO)
        await quorum.put(await quorum.leader(), *KEYS)
        await quorum.until(lambda: [broker for broker, _ in quorum.failures] == [follower])

    run(story())


@pytest.mark.parametrize("refused", ["journal", "snapshot", ""])
def test_a_scrub_without_descriptors_is_for_the_next_pass(refused: str) -> None:
    async def story() -> None:
        quorum = await formed(snapshot_interval_bytes=2_000)
        await quorum.put(await quorum.leader(), *KEYS)
        follower = (await quorum.followers())[0]
        voter, disk = quorum.quorums[follower], quorum.disks[follower]
        before = voter._log.entries
        disk.flip(f"{DIRECTORY}/journal", 40, 1)
        disk.faults.refuse_opens(refused)
        assert await quorum._in_process(follower, voter.scrub()) == []
        assert voter._log.entries == before
        disk.faults.heal()
        assert len(await quorum._in_process(follower, voter.scrub())) == 1
        assert await quorum._in_process(follower, voter.scrub()) == []
        assert quorum.failures == []

    run(story())


@pytest.mark.parametrize("refused", ["journal", ""])
def test_an_image_is_installed_once_there_are_descriptors(refused: str) -> None:
    async def story() -> None:
        quorum = await formed(snapshot_interval_bytes=2_000)
        follower = (await quorum.followers())[0]
        quorum.kill(follower)
        await quorum.put(await quorum.leader(), *KEYS)
        quorum.start(follower)
        quorum.disks[follower].faults.refuse_opens(refused)
        await quorum.wait(3)
        assert quorum.failures == []
        relieve(quorum)
        await quorum.formed(follower)
        assert quorum.keys(follower) == KEYS
        await restarted(quorum)
        assert quorum.keys(follower) == KEYS

    run(story())


def test_a_standing_is_taken_once_there_are_descriptors() -> None:
    async def story() -> None:
        quorum = SimulatedQuorum()
        refuse(quorum, f"{storage.STANDING}.new", errno.EMFILE)
        for broker in quorum.addresses:
            quorum.start(broker)
        await quorum.wait(5)
        assert quorum.failures == []
        assert {quorum.standing(broker) for broker in quorum.quorums} == {Standing.EMPTY}
        relieve(quorum)
        await quorum.formed()
        await quorum.put(1, "a")
        amnesiac = (await quorum.followers())[0]
        quorum.wipe(amnesiac)
        quorum.disks[amnesiac].faults.refuse_opens(f"{storage.STANDING}.new")
        quorum.start(amnesiac)
        await quorum.wait(5)
        assert quorum.standing(amnesiac) is Standing.EMPTY
        relieve(quorum)
        await quorum.until(lambda: quorum.standing(amnesiac) is Standing.MEMBER)
        assert quorum.failures == []

    run(story())


@pytest.mark.parametrize("seed", range(10))
def test_votes_terms_and_entries_that_cannot_be_written_are_not_answered(seed: int) -> None:
    """The simulation checks after each step that no voter forgets a vote or an entry that it has answered."""

    async def story() -> None:
        quorum = await formed(seed=seed, snapshot_interval_bytes=2_000)
        rng = random.Random(seed)
        for _ in range(6):
            for broker in rng.sample(sorted(quorum.addresses), 2):
                code = rng.choice([errno.ENOSPC, errno.ENOMEM])
                quorum.disks[broker].faults.fail_next_write("journal", after=rng.randrange(60), code=code)
            if rng.random() < 0.5:
                quorum.cut_off(await quorum.leader())
            await quorum.wait(rng.uniform(1, 3))
            quorum.heal()
            broker = rng.choice(sorted(quorum.quorums))
            quorum.power_cut(broker)
            quorum.start(broker)
            await quorum.wait(0.5)
        assert quorum.failures == []
        relieve(quorum)
        await quorum.formed()
        await quorum.put(1, "a")
        await restarted(quorum)
        assert quorum.keys(1) == ["a"]

    run(story())


def test_a_voter_on_a_full_disk_enters_no_term_that_it_cannot_write() -> None:
    async def story() -> None:
        quorum = await formed()
        leader = await quorum.leader()
        full, other = await quorum.followers()
        term = quorum.quorums[full]._node.term
        quorum.disks[full].leave_free(0)
        quorum.cut_off(leader)
        await quorum.wait(5)
        assert quorum.quorums[other]._node.term > term
        assert quorum.quorums[full]._node.term == term
        assert not quorum.quorums[other].is_leader
        quorum.disks[full].leave_free(1 << 20)
        assert await quorum.leader(full, other) != leader
        assert quorum.failures == []

    run(story())


def test_a_leader_on_a_full_disk_leaves_the_lead_to_another() -> None:
    async def story() -> None:
        quorum = await formed()
        full = await quorum.leader()
        quorum.disks[full].leave_free(0)
        follower = (await quorum.followers())[0]
        await quorum.put(follower, "a")
        assert await quorum.leader(*(broker for broker in quorum.quorums if broker != full)) != full
        assert quorum.failures == []
        quorum.disks[full].leave_free(1 << 20)
        await quorum.formed()
        assert quorum.keys(full) == ["a"]

    run(story())


def test_what_an_attempt_left_is_removed_with_the_next_snapshot() -> None:
    async def story() -> None:
        quorum = await formed(snapshot_interval_bytes=2_000)
        leader = await quorum.leader()
        quorum.disks[leader].faults.fail_next_write(".snapshot", code=errno.ENOSPC)
        await quorum.put(leader, *KEYS)
        await quorum.until(lambda: len(snapshot.names(quorum.disks[leader], DIRECTORY)) == 1)
        assert not [name for name in quorum.disks[leader].list_directory(DIRECTORY) if name.endswith(".new")]
        assert quorum.failures == []

    run(story())
