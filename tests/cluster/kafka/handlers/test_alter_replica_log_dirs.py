"""AlterReplicaLogDirs in every version: a replica moves to another log directory; DescribeLogDirs shows its copy."""

import asyncio
from errno import EIO
from typing import Any
from uuid import UUID

import pytest
from admin_fixture import NOW_MS, AdminFixture
from kio.schema.errors import ErrorCode

from cordwood.cluster.kafka.handlers import alter_replica_log_dirs, describe_log_dirs
from cordwood.cluster.metadata.commands import BrokerId, CreateTopic
from cordwood.replication.log_directory import LogDirectory
from cordwood.replication.log_maintenance import Intervals, LogMaintenance
from cordwood.replication.partition import Partition
from cordwood.replication.replica_moves import ReplicaMoves
from cordwood.replication.replicas import LeftOut
from cordwood.storage.records import Record, encode

RATE = 100.0
"""Bytes per second that a move copies."""


@pytest.fixture
def directories(admin: AdminFixture) -> list[LogDirectory]:
    directories = admin.keep_replicas("/data-1", "/data-2")
    admin.propose(CreateTopic(UUID(int=1), "flights", ((BrokerId(1),), (BrokerId(1),))))
    return directories


@pytest.fixture
def moves(admin: AdminFixture, directories: list[LogDirectory]) -> ReplicaMoves:
    """Return the moves of a broker whose cluster has the needed metadata.version."""
    replicas = admin.services.replicas
    assert replicas.directories is directories

    async def unrecord(_: Partition) -> None:
        await asyncio.sleep(0)

    maintenance = LogMaintenance(replicas, lambda: NOW_MS, Intervals(1e9, 0, 10))
    replicas.moves = ReplicaMoves(
        replicas, maintenance.file_removal, unrecord, lambda: None, lambda: RATE, lambda: True
    )
    return replicas.moves


def move(admin: AdminFixture, path: str, version: int = 2, topic: str = "flights", index: int = 0) -> ErrorCode:
    wanted = {"path": path, "topics": ({"name": topic, "partitions": (index,)},)}
    (result,) = admin.ask(alter_replica_log_dirs, version, dirs=(wanted,)).results
    (row,) = result.partitions
    assert (result.topic_name, row.partition_index) == (topic, index)
    code: ErrorCode = row.error_code
    return code


def replicas_in(admin: AdminFixture, topics: Any = None) -> dict[str, list[tuple[int, int, int, bool]]]:
    """Return partition, size, lag and whether it is a future replica, by log directory."""
    answer = admin.ask(describe_log_dirs, 4, topics=topics)
    return {
        result.log_dir: [
            (row.partition_index, row.partition_size, row.offset_lag, row.is_future_key)
            for topic in result.topics
            for row in topic.partitions
        ]
        for result in answer.results
        if result.error_code is ErrorCode.none
    }


def other_than(path: str) -> str:
    return {"/data-1": "/data-2", "/data-2": "/data-1"}[path]


@pytest.mark.parametrize("version", alter_replica_log_dirs.KEY.versions)
@pytest.mark.usefixtures("moves")
def test_every_version_moves_a_replica(admin: AdminFixture, version: int) -> None:
    partition = admin.services.replicas.led("flights", 0)
    here = partition.directory.path
    assert move(admin, here, version) is ErrorCode.none
    assert move(admin, here + "/", version) is ErrorCode.none
    assert move(admin, "/elsewhere", version) is ErrorCode.log_dir_not_found
    assert move(admin, other_than(here), version) is ErrorCode.none

    async def moved() -> None:
        async with asyncio.timeout(10):
            while partition.directory.path == here:
                await asyncio.sleep(0.01)

    admin.runner.run(moved())


def test_the_copy_is_a_future_replica_until_it_is_complete(admin: AdminFixture, moves: ReplicaMoves) -> None:
    partition = admin.services.replicas.led("flights", 0)
    here, there = partition.directory.path, other_than(partition.directory.path)
    records = [Record(0, NOW_MS, b"k", b"v" * 100)]

    async def write() -> None:
        for _ in range(40):
            partition.append(encode(records), NOW_MS)

    admin.runner.run(write())
    assert move(admin, there) is ErrorCode.none
    admin.runner.run(asyncio.sleep(0.1))
    held = replicas_in(admin)
    assert (0, partition.log.size, 0, False) in held[here]
    [(index, size, lag, is_future)] = [row for row in held[there] if row[0] == 0]
    assert (index, is_future) == (0, True)
    assert 0 <= size <= partition.log.size
    assert lag == 40 or size == partition.log.size
    assert [row[0] for row in replicas_in(admin, ({"topic": "flights", "partitions": (1,)},))[there]] in ([], [1])
    assert move(admin, here) is ErrorCode.none
    assert list(moves) == []
    assert [row for row in replicas_in(admin)[there] if row[0] == 0] == []


@pytest.mark.usefixtures("directories")
def test_below_the_needed_metadata_version_nothing_moves(admin: AdminFixture) -> None:
    here = admin.services.replicas.led("flights", 0).directory.path
    assert move(admin, here) is ErrorCode.none
    assert move(admin, other_than(here)) is ErrorCode.invalid_request


def test_a_replica_that_is_to_come_gets_its_directory_then(
    admin: AdminFixture, directories: list[LogDirectory]
) -> None:
    replicas = admin.services.replicas
    replicas.remove("flights")
    assert move(admin, "/data-1", index=0) is ErrorCode.replica_not_available
    assert replicas.preferred == {("flights", 0): directories[0]}
    assert move(admin, "/data-1", index=2) is ErrorCode.replica_not_available
    assert move(admin, "/data-1", topic="other") is ErrorCode.replica_not_available
    assert len(replicas.preferred) == 1


def test_a_directory_that_is_offline_takes_nothing(admin: AdminFixture, directories: list[LogDirectory]) -> None:
    directories[0].fail(OSError(EIO, "input/output error"))
    assert move(admin, "/data-1") is ErrorCode.kafka_storage_error


@pytest.mark.usefixtures("directories")
def test_a_directory_that_was_left_out_is_shown_and_takes_nothing(admin: AdminFixture) -> None:
    admin.services.replicas.left_out = [LeftOut("/data-3", OSError(EIO, "input/output error"))]
    assert move(admin, "/data-3/") is ErrorCode.kafka_storage_error
    results = admin.ask(describe_log_dirs, 4, topics=None).results
    assert [(result.log_dir, result.error_code) for result in results][-1] == (
        "/data-3",
        ErrorCode.kafka_storage_error,
    )


@pytest.mark.usefixtures("directories")
def test_of_several_wishes_for_a_replica_the_last_counts(admin: AdminFixture) -> None:
    held = admin.services.replicas.led("flights", 0).directory.path
    topics = ({"name": "flights", "partitions": (0,)},)
    wishes = ({"path": "/elsewhere", "topics": topics}, {"path": held, "topics": topics})
    (result,) = admin.ask(alter_replica_log_dirs, 2, dirs=wishes).results
    assert [row.error_code for row in result.partitions] == [ErrorCode.none]
