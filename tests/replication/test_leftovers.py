"""Leftovers of earlier runs in log directories: a start sets them aside, and they are removed later, with pauses."""

import asyncio
import errno
import os
from datetime import timedelta
from itertools import pairwise
from math import sqrt
from pathlib import Path
from uuid import UUID

import pytest
from closed_broker import ROOT, ClosedBroker
from kio.schema.errors import ErrorCode
from replica_fixture import NOW_MS, ReplicaFixture
from virtual_time import run

from cordwood.chaos.sim.disk import SimulatedDisk
from cordwood.chaos.sim.loop import run as run_simulated
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.replication.file_removal import REMOVE_AGAIN_S, STEP_PAUSE_S_MAX, STEP_PAUSE_S_MIN
from cordwood.replication.log_directory import ARCHIVE_CACHE, LEFTOVERS, STAGING
from cordwood.replication.log_maintenance import Intervals, LogMaintenance
from cordwood.replication.replica_moves import ReplicaMoves
from cordwood.storage import disk as storage_disk
from cordwood.storage.disk import FILE_BYTES, REMOVAL_STEP_BYTES, removal
from cordwood.storage.real_disk import RealDisk
from cordwood.storage.records import Record, encode
from cordwood.storage.steps import at_once, run_step

FILES = 400
REMOVAL_S = 2 * STEP_PAUSE_S_MAX * sqrt(FILES * FILE_BYTES / REMOVAL_STEP_BYTES)
"""The longest time that the removal of so many empty files takes."""
HOME = "/data0"


def leave_tree(disk: SimulatedDisk, path: str, files: int = FILES) -> None:
    """Make a tree of many files, as a crash leaves it."""
    for part in ("one", "two"):
        disk.make_directories(f"{path}/{part}")
        for number in range(files // 2):
            disk.open(f"{path}/{part}/{number}", create=True)


def files_below(disk: SimulatedDisk, path: str) -> int:
    return sum(one.startswith(f"{path}/") for one in disk.files())


def maintenance_of(broker: ReplicaFixture) -> LogMaintenance:
    return LogMaintenance(broker.replicas, lambda: NOW_MS, Intervals(1e9, 0.0, 10))


def test_a_start_removes_nothing_and_the_rest_is_removed_with_pauses() -> None:
    async def story() -> None:
        broker = ReplicaFixture()
        for left in (STAGING, ARCHIVE_CACHE):
            leave_tree(broker.disk, f"{HOME}/{left}")
        broker.restart()
        assert files_below(broker.disk, HOME) >= 2 * FILES
        assert not files_below(broker.disk, f"{HOME}/{STAGING}"), "a rebuilt segment must not find files there"
        maintenance = maintenance_of(broker)
        maintenance.file_removal.remove_leftovers()
        await asyncio.sleep(REMOVAL_S)
        assert 0 < files_below(broker.disk, f"{HOME}/{LEFTOVERS}") < 2 * FILES
        await asyncio.sleep(REMOVAL_S + 1)
        assert broker.disk.list_directory(f"{HOME}/{LEFTOVERS}") == []
        await maintenance.stop()

    run(story())


def test_a_removal_gets_faster_until_it_has_its_full_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is one removal, although these are many files, in two trees."""
    monkeypatch.setattr(storage_disk, "REMOVAL_STEP_BYTES", FILE_BYTES)
    seconds, full_rate = 110, 1 / STEP_PAUSE_S_MIN

    async def story() -> None:
        broker = ReplicaFixture()
        for left in (STAGING, ARCHIVE_CACHE):
            leave_tree(broker.disk, f"{HOME}/{left}", 1600)
        broker.restart()
        maintenance = maintenance_of(broker)
        maintenance.file_removal.remove_leftovers()
        left_files = []
        for _ in range(seconds + 1):
            left_files.append(files_below(broker.disk, f"{HOME}/{LEFTOVERS}"))
            await asyncio.sleep(1)
        rates = [before - after for before, after in pairwise(left_files)]
        assert rates[0] <= 2
        assert all(abs(rate - min(full_rate, second / 2)) <= 2 for second, rate in enumerate(rates))
        assert rates[-1] >= full_rate - 1
        await maintenance.stop()

    run(story())


def test_leftovers_of_several_starts_are_removed() -> None:
    async def story() -> None:
        broker = ReplicaFixture()
        for _ in range(3):
            leave_tree(broker.disk, f"{HOME}/{STAGING}", 4)
            broker.restart()
        assert len(broker.disk.list_directory(f"{HOME}/{LEFTOVERS}")) == 3
        broker.disk.faults.refuse_opens(f"{LEFTOVERS}/2", code=errno.EMFILE)
        maintenance = maintenance_of(broker)
        maintenance.file_removal.remove_leftovers()
        await asyncio.sleep(REMOVE_AGAIN_S - 1)
        assert "2" in broker.disk.list_directory(f"{HOME}/{LEFTOVERS}"), "resources are lacking"
        broker.disk.faults.heal()
        await asyncio.sleep(REMOVE_AGAIN_S)
        assert broker.disk.list_directory(f"{HOME}/{LEFTOVERS}") == []
        await maintenance.stop()

    run(story())


def test_on_a_full_disk_leftovers_make_room() -> None:
    async def story() -> None:
        broker = ReplicaFixture()
        leave_tree(broker.disk, f"{HOME}/{STAGING}", 4)
        make = broker.disk.make_directories

        def make_none(path: str) -> list[str]:
            if LEFTOVERS in path:
                raise OSError(errno.ENOSPC, "No space left on device", path)
            return make(path)

        broker.disk.make_directories = make_none  # type: ignore[method-assign]
        broker.restart()
        assert not files_below(broker.disk, f"{HOME}/{STAGING}")

    run(story())


def test_an_unfinished_copy_that_is_not_wanted_any_more_is_set_aside() -> None:
    async def nothing(_partition: object) -> None:
        """Nothing is recorded."""

    async def story() -> None:
        broker = ReplicaFixture(directories=2)
        copy = broker.directories[1].move_path(UUID(int=9), 0)
        leave_tree(broker.disk, copy)
        maintenance = maintenance_of(broker)
        moves = ReplicaMoves(
            broker.replicas, maintenance.file_removal, nothing, lambda: None, lambda: 1e9, lambda: True
        )
        moves.resume()
        assert not broker.disk.exists(copy)
        assert files_below(broker.disk, f"/data1/{LEFTOVERS}") == FILES
        maintenance.file_removal.remove_leftovers()
        await asyncio.sleep(2 * REMOVAL_S)
        assert not files_below(broker.disk, f"/data1/{LEFTOVERS}")
        await moves.close()
        await maintenance.stop()

    run(story())


def test_a_file_and_a_link_in_the_place_of_the_staging_directory(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").touch()
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "link").symlink_to(kept)
    (tree / "file").touch()
    (tmp_path / "link").symlink_to(kept)
    (tmp_path / "file").touch()
    for name in ("tree", "link", "file"):
        at_once(removal(RealDisk(), f"{tmp_path}/{name}"))
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    assert (kept / "file").exists(), "only the link is removed"


def test_a_large_file_with_another_name_keeps_its_bytes(tmp_path: Path) -> None:
    """As in a backup that was made of hard links."""
    backup, segment, link = tmp_path / "backup", tmp_path / "segment", tmp_path / "link"
    for name in (backup, segment):
        with name.open("wb") as file:
            file.truncate(3 * REMOVAL_STEP_BYTES)
    segment.unlink()
    segment.hardlink_to(backup)
    link.symlink_to(backup)
    for name in (segment, link):
        at_once(removal(RealDisk(), str(name)))
        assert not os.path.lexists(name)
    assert backup.stat().st_size == 3 * REMOVAL_STEP_BYTES


def test_a_step_frees_a_few_megabytes(tmp_path: Path) -> None:
    """A file that is as large as three steps, and as many small ones as two steps remove."""
    large = tmp_path / "tree" / "large"
    large.parent.mkdir()
    with large.open("wb") as file:
        file.truncate(3 * REMOVAL_STEP_BYTES)
    steps, sizes = removal(RealDisk(), str(large)), []
    while not run_step(steps):
        sizes.append(large.stat().st_size / REMOVAL_STEP_BYTES if large.exists() else 0)
    assert sizes == [2, 1, 0]
    count = 2 * REMOVAL_STEP_BYTES // FILE_BYTES
    for number in range(count):
        (large.parent / str(number)).touch()
    steps, left = removal(RealDisk(), str(large.parent)), []
    while not run_step(steps):
        left.append(len(list(large.parent.iterdir())))
    assert left == [count // 2, 0]


def test_a_broker_is_ready_before_leftovers_are_removed_and_a_new_topic_of_the_same_name_stays() -> None:
    async def story() -> None:
        broker = await ClosedBroker().start()
        host, disk = broker._host, broker._host.disk
        await create(broker)
        former = broker.image.topics_by_name["t"].id
        await produce(broker, b"former")
        answer = await broker.ask(ROOT, ApiKey.DELETE_TOPICS, 5, topic_names=("t",), timeout=timedelta(seconds=5))
        assert answer.responses[0].error_code is ErrorCode.none
        home = broker.broker._replicas.directories[0]
        host.kill()
        # As a removal that the crash has interrupted.
        disk.make_directories(f"{home.path}/{STAGING}")
        disk.rename(home.topic_path(former), f"{home.path}/{STAGING}/discarded-1")
        leave_tree(disk, f"{home.path}/{STAGING}/discarded-1/0")
        broker._connections.clear()
        await broker.start()
        assert files_below(disk, f"{home.path}/{LEFTOVERS}") > FILES / 2, "the start has not waited for them"
        await create(broker)
        await produce(broker, b"newer")
        await asyncio.sleep(2 * REMOVAL_S)
        assert disk.list_directory(f"{home.path}/{LEFTOVERS}") == []
        partition = broker.broker._replicas.get("t", 0)
        assert partition is not None
        assert b"newer" in partition.log.read(0, 1000, 1)
        await broker.broker.stop()

    run_simulated(story())


async def create(broker: ClosedBroker) -> None:
    wanted = {"name": "t", "num_partitions": 1, "replication_factor": 1, "configs": (), "assignments": ()}
    answer = await broker.ask(ROOT, ApiKey.CREATE_TOPICS, 7, topics=(wanted,), timeout=timedelta(seconds=30))
    assert answer.topics[0].error_code is ErrorCode.none, answer


async def produce(broker: ClosedBroker, value: bytes) -> None:
    data = ({"index": 0, "records": encode([Record(0, NOW_MS, None, value)])},)
    fields = {"transactional_id": None, "acks": -1, "timeout": timedelta(seconds=30)}
    answer = await broker.ask(ROOT, ApiKey.PRODUCE, 9, topic_data=({"name": "t", "partition_data": data},), **fields)
    assert answer.responses[0].partition_responses[0].error_code is ErrorCode.none, answer
