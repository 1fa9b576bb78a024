"""Checks of the simulator beside the promises: stale index rows, lost epochs, forgotten waiters, unreported disks."""

import asyncio
import random
import struct

import pytest

from cordwood.chaos.sim.commands_fit import not_taken_in
from cordwood.chaos.sim.disk import SimulatedDisk
from cordwood.chaos.sim.index_rows import unproven
from cordwood.chaos.sim.left_behind import LeaderRoles, LeftBehind
from cordwood.chaos.sim.reopened_logs import whole_batches
from cordwood.chaos.sim.replicas import TOPIC_ID, ReplicaCluster, run_scenario
from cordwood.chaos.sim.replication import NOW_MS, Metadata
from cordwood.chaos.sim.values import batch_of
from cordwood.cluster.metadata.commands import AlterPartitions, BrokerId, FenceBroker, IsrChange
from cordwood.replication.waiters import FutureWaiter
from cordwood.storage import checkpoint, state
from cordwood.storage.batch import check
from cordwood.storage.config import LogConfig
from cordwood.storage.log import Log

DIRECTORY = "/data/topics/t/0"
STAGED_EPOCHS = f"{DIRECTORY}/{state.EPOCHS_FILE}.new"


def written(batches: int) -> Log:
    """Return a flushed and checkpointed log on a simulated disk, with about ten batches in each segment."""
    disk = SimulatedDisk(random.Random(1))
    disk.make_directories(DIRECTORY)
    log = Log(disk, DIRECTORY, LogConfig(segment_bytes=800))
    for number in range(batches):
        batch = batch_of(f"value {number}")
        log.append(batch, check(batch), 3, NOW_MS)
    for file in (pending := log.begin_flush()).files:
        file.sync()
    log.flushed(pending)
    state.write_checkpoint(disk, DIRECTORY, log.state())
    return log


def simulated_disk(log: Log) -> SimulatedDisk:
    assert isinstance(log.disk, SimulatedDisk)
    return log.disk


def found(left_behind: LeftBehind) -> list[str]:
    return list(left_behind.look([], Metadata(random.Random(1), ()), 0.0))


def test_an_index_that_vouches_for_what_was_cut_is_noticed() -> None:
    log = written(30)
    disk = simulated_disk(log)
    path = log.segments[0].index_path
    before = disk.content(path)
    assert before
    assert list(unproven(disk, DIRECTORY)) == []
    log.truncate(5)
    assert list(unproven(disk, DIRECTORY)) == []
    disk.open(path).pwrite([before], 0)
    assert len(list(unproven(disk, DIRECTORY))) == 1


def test_epochs_that_say_nothing_of_what_is_not_read_again_are_noticed() -> None:
    log, left_behind = written(5), LeftBehind()
    disk = simulated_disk(log)
    disk.on_sync = lambda path: left_behind.synced(disk, path)
    state.write_checkpoint(disk, DIRECTORY, log.state()._replace(epochs=log.epochs.encode()))
    assert found(left_behind) == []
    checkpoint.write(disk, f"{DIRECTORY}/{state.EPOCHS_FILE}", b"")
    assert "rule 4" in found(left_behind)[0]


def test_a_log_that_starts_over_leaves_nothing_without_its_epochs() -> None:
    log, left_behind = written(5), LeftBehind()
    disk = simulated_disk(log)
    disk.on_sync = lambda path: left_behind.synced(disk, path)
    log.truncate_fully(0)
    assert found(left_behind) == []


def test_a_batch_whose_offset_a_torn_write_has_lost_is_not_taken_for_one_that_was_flushed() -> None:
    log = written(3)
    content = bytearray(simulated_disk(log).content(log.segments[0].path))
    batches = list(whole_batches("f", bytes(content)))
    assert [batch.offset for batch in batches] == [0, 1, 2]
    content[batches[2].position : batches[2].position + 8] = struct.pack(">q", 0)
    assert [batch.offset for batch in whole_batches("f", bytes(content))] == [0, 1]


def test_who_waits_for_a_leader_that_was_is_noticed() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.produce("a")
        held, roles = cluster.replica(cluster.leader()), LeaderRoles()
        deposed = held.leader
        assert deposed.when_committed(99, FutureWaiter())
        cluster._check()
        assert not roles.has_waiters_of_the_past(held)
        held.leading = None
        assert roles.has_waiters_of_the_past(held)
        with pytest.raises(AssertionError, match="promise 3"):
            cluster._check()
        held.leading = deposed

    run_scenario(scenario)


def test_a_failed_disk_that_is_not_reported_is_noticed() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.produce("a")
        leader = cluster.leader()
        directory = cluster.replica(leader).directory
        directory._failed = cluster.running[leader].replicas.go_offline
        directory.fail(OSError(5, "it failed"))
        with pytest.raises(AssertionError, match="rule 8: the disk of"):
            await cluster.until(lambda: False, "it is noticed", 10)
        cluster._watch = asyncio.ensure_future(asyncio.sleep(0))
        await asyncio.sleep(0.1)

    run_scenario(scenario)


def test_a_failed_disk_that_is_reported_is_no_finding() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.produce("a")
        directory = cluster.replica(cluster.leader()).directory
        directory.fail(OSError(5, "it failed"))
        await asyncio.sleep(10)
        assert len(cluster.isr()) == 2

    run_scenario(scenario)


def test_a_leader_that_proposes_again_what_it_knows_not_to_fit_is_noticed() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.produce("a")
        leader = cluster.leader()
        follower = next(one for one in cluster.ids if one != leader)
        brokers = cluster.metadata.newest.brokers
        cluster.cut_off(follower)
        cluster.metadata.commit(FenceBroker(BrokerId(follower), brokers[BrokerId(follower)].epoch))
        image = cluster.image()
        members = tuple((BrokerId(one), brokers[BrokerId(one)].epoch) for one in cluster.ids)
        change = IsrChange(TOPIC_ID, 0, image.leader_epoch, image.partition_epoch, members)
        command = AlterPartitions(BrokerId(leader), brokers[BrokerId(leader)].epoch, (change,))
        assert list(not_taken_in(cluster.metadata.newest, command)) == [change]
        member = cluster.running[leader].member
        await member.propose(command)
        with pytest.raises(AssertionError, match="proposes it again"):
            member._decide(command, asyncio.get_running_loop().create_future())

    run_scenario(scenario)
