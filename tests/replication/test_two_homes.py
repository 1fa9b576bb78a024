"""A partition in two log directories of one broker: the later copy is used once the removed disk is back."""

import asyncio
import random
from collections.abc import Sequence

import pytest
from replica_fixture import ME, NOW_MS, TOPIC_ID, HeldSyncer, log_directory, surroundings_of
from virtual_time import run

from cordwood.chaos.sim.disk import SimulatedDisk
from cordwood.replication.assignment import Assignment
from cordwood.replication.partition import Partition, TopicIdPartition
from cordwood.replication.replicas import Replicas
from cordwood.replication.waiters import EndOfTickScheduler
from cordwood.storage.config import LogConfig
from cordwood.storage.records import Record, encode

LEFT, STAYED = "/data-left", "/data-stayed"


async def live(disk: SimulatedDisk, paths: Sequence[str], epoch: int, *values: str) -> Partition:
    """Run a broker with these log directories until it has flushed the values. Return the closed partition."""
    syncer, end_of_tick = HeldSyncer(), EndOfTickScheduler(asyncio.get_running_loop())
    directories = [log_directory(disk, path, lambda _: None, syncer, end_of_tick) for path in paths]
    replicas = Replicas(directories, surroundings_of(ME, end_of_tick))
    replicas.open(TopicIdPartition("t", 0, TOPIC_ID), LogConfig(), NOW_MS)
    partition = replicas.get("t", 0)
    assert partition is not None
    partition.assigned(Assignment(ME, epoch, epoch, (ME,), frozenset({ME}), 1))
    for value in values:
        partition.append(encode([Record(0, NOW_MS, b"k", value.encode())]), NOW_MS)
        await asyncio.sleep(0.01)
        syncer.let_go()
    partition.close()
    return partition


@pytest.mark.parametrize("paths", [(LEFT, STAYED), (STAYED, LEFT)], ids=["it comes first", "it comes last"])
@pytest.mark.parametrize("taken_meanwhile", [("a", "b", "c", "d"), ("e",)], ids=["more", "less, but later"])
def test_a_disk_that_is_put_back_does_not_take_a_partition_back(
    paths: tuple[str, ...], taken_meanwhile: tuple[str, ...]
) -> None:
    async def scenario() -> None:
        disk = SimulatedDisk(random.Random(1))
        await live(disk, [LEFT], 1, "a", "b")
        stayed = await live(disk, [STAYED], 2, *taken_meanwhile)
        chosen = await live(disk, paths, 3)
        assert chosen.log.directory == stayed.log.directory
        assert chosen.log.log_end == len(taken_meanwhile)

    run(scenario())
