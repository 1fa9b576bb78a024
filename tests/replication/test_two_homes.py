"""A partition in two log directories of one broker: the later copy is used once the removed disk is back."""

import asyncio
import random
from collections.abc import Sequence

import pytest
from replica_fixture import ME, NOW_MS, TOPIC_ID, HeldSyncer, log_directory, surroundings_of
from virtual_time import run

from cordwood.chaos.sim.disk import SimulatedDisk
from cordwood.replication.assignment import Assignment
from cordwood.replication.log_directory import LogDirectory
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


def directories_of(disk: SimulatedDisk) -> tuple[Replicas, list[LogDirectory]]:
    end_of_tick = EndOfTickScheduler(asyncio.get_running_loop())
    directories = [log_directory(disk, path, lambda _: None, HeldSyncer(), end_of_tick) for path in (LEFT, STAYED)]
    for number, directory in enumerate(directories):
        directory.id = f"id-{number}"
    return Replicas(directories, surroundings_of(ME, end_of_tick)), directories


@pytest.mark.parametrize("recorded", [0, 1])
def test_a_replica_without_files_returns_to_the_directory_that_the_metadata_has(recorded: int) -> None:
    async def scenario() -> None:
        replicas, directories = directories_of(SimulatedDisk(random.Random(1)))
        replicas.settle({(TOPIC_ID, 0): f"id-{recorded}", (TOPIC_ID, 1): "another"})
        replicas.open(TopicIdPartition("t", 0, TOPIC_ID), LogConfig(), NOW_MS)
        opened = replicas.get("t", 0)
        assert opened is not None
        assert opened.directory is directories[recorded]

    run(scenario())


@pytest.mark.parametrize("recorded", [0, 1])
def test_of_two_copies_the_one_counts_that_the_metadata_has(recorded: int) -> None:
    async def scenario() -> None:
        disk = SimulatedDisk(random.Random(1))
        await live(disk, [LEFT], 1, "a", "b")
        await live(disk, [STAYED], 2, "a", "b", "c", "d")
        replicas, directories = directories_of(disk)
        replicas.settle({(TOPIC_ID, 0): f"id-{recorded}"})
        replicas.open(TopicIdPartition("t", 0, TOPIC_ID), LogConfig(), NOW_MS)
        opened = replicas.get("t", 0)
        assert opened is not None
        assert (opened.directory, opened.log.log_end) == (directories[recorded], 2 + 2 * recorded)
        assert replicas.superseded == [(directories[1 - recorded], opened)]
        assert [directory.partition_count for directory in directories] == [1 - recorded, recorded]

    run(scenario())


def test_new_replicas_leave_out_cordoned_directories() -> None:
    async def scenario() -> None:
        replicas, directories = directories_of(SimulatedDisk(random.Random(1)))
        replicas.is_cordoned = lambda directory: directory is directories[0]
        replicas.preferred["t", 2] = directories[0]
        for index in range(3):
            replicas.open(TopicIdPartition("t", index, TOPIC_ID), LogConfig(), NOW_MS)
        replicas.is_cordoned = lambda _: True
        replicas.open(TopicIdPartition("t", 3, TOPIC_ID), LogConfig(), NOW_MS)
        homes = [replicas.get("t", index) for index in range(4)]
        assert [None if one is None else one.directory.id for one in homes] == ["id-1", "id-1", "id-0", "id-0"]

    run(scenario())
