"""Stray files and directories in a log directory: they are left alone, and do not prevent a start."""

import asyncio
import random
from uuid import UUID

import pytest
from replica_fixture import HeldSyncer, log_directory
from structlog.testing import capture_logs

from cordwood.chaos.sim.disk import SimulatedDisk
from cordwood.cluster.broker.verify import verify
from cordwood.cluster.metadata.raft.storage import DAMAGED, put_aside
from cordwood.replication.log_directory import LogDirectory
from cordwood.replication.waiters import EndOfTickScheduler

TOPIC_ID = UUID(int=7)


def opened(disk: SimulatedDisk) -> LogDirectory:
    async def open_it() -> LogDirectory:
        return log_directory(
            disk, "/data", lambda _: None, HeldSyncer(), EndOfTickScheduler(asyncio.get_running_loop())
        )

    return asyncio.run(open_it())


@pytest.fixture
def disk() -> SimulatedDisk:
    disk = SimulatedDisk(random.Random(1))
    disk.make_directories(opened(disk).partition_path(TOPIC_ID, 0))
    return disk


@pytest.mark.parametrize(
    "stray",
    ["lost+found/0", f"{TOPIC_ID}/0.bak", f"{TOPIC_ID}/00", f"{TOPIC_ID}/-1x", f"{TOPIC_ID.hex}/0", ".snapshot/x"],
)
def test_a_stray_directory_is_logged_and_left_alone(disk: SimulatedDisk, stray: str) -> None:
    path = f"/data/topics/{stray}"
    disk.make_directories(path)
    with capture_logs() as lines:
        assert opened(disk).found() == [(TOPIC_ID, 0)]
    assert [line["path"] for line in lines if line["event"] == "log_directory.stray"] == [path]
    assert disk.exists(path)
    assert list(verify(disk, "/data")) == []


def test_a_stray_file_among_the_topics_is_left_alone(disk: SimulatedDisk) -> None:
    disk.open("/data/topics/notes.txt", create=True)
    assert opened(disk).found() == [(TOPIC_ID, 0)]
    assert list(verify(disk, "/data")) == []


def test_metadata_is_put_aside_beside_a_stray_name(disk: SimulatedDisk) -> None:
    disk.make_directories(f"/data/metadata/{DAMAGED}old")
    put_aside(disk, "/data/metadata")
    assert disk.exists(f"/data/metadata/{DAMAGED}1")
