"""Delayed removal of segment and topic files: `file.delete.delay.ms`, or else `log.segment.delete.delay.ms`."""

import asyncio
import contextlib
import errno
from collections.abc import Callable
from uuid import UUID

import pytest
from replica_fixture import NOW_MS, ReplicaFixture
from virtual_time import run

from cordwood.chaos.sim.faults import Died
from cordwood.replication.file_removal import STEP_PAUSE_S_MIN
from cordwood.replication.log_maintenance import Intervals, LogMaintenance
from cordwood.replication.partition import Partition, TopicIdPartition
from cordwood.storage import disk as storage_disk
from cordwood.storage.config import FlushPolicy, LogConfig
from cordwood.storage.log_loader import open_log

BROKERS_DELAY_S = 60.0
A_MOMENT_S = 1.0


async def run_here(function: Callable[..., object], *arguments: object) -> object:
    return function(*arguments)


def housekeeping_of(broker: ReplicaFixture) -> LogMaintenance:
    return LogMaintenance(broker.replicas, lambda: NOW_MS, Intervals(1e9, BROKERS_DELAY_S, 10))


def filled(delete_delay_ms: int | None, policy: FlushPolicy = FlushPolicy.OS) -> tuple[ReplicaFixture, Partition]:
    """Return a broker, and its partition with several segments, of which retention keeps one."""
    config = LogConfig(segment_bytes=200, retention_bytes=1, flush_policy=policy, delete_delay_ms=delete_delay_ms)
    broker = ReplicaFixture(config)
    for value in range(10):
        broker.produce(f"{value}")
    return broker, broker.partition()


def log_files(broker: ReplicaFixture, partition: Partition) -> int:
    directory = partition.log.directory
    return sum(path.startswith(directory) and path.endswith(".log") for path in broker.disk.files())


@pytest.mark.parametrize(("delete_delay_ms", "delay_s"), [(None, BROKERS_DELAY_S), (5000, 5.0), (90_000, 90.0)])
def test_removed_segments_stay_on_disk_for_so_long(delete_delay_ms: int | None, delay_s: float) -> None:
    async def scenario() -> None:
        broker, partition = filled(delete_delay_ms)
        log_maintenance, count = housekeeping_of(broker), log_files(broker, partition)
        await log_maintenance.retain(broker.directories[0])
        assert len(partition.log.segments) < count
        await asyncio.sleep(delay_s - A_MOMENT_S)
        assert log_files(broker, partition) == count
        await asyncio.sleep(2 * A_MOMENT_S)
        assert log_files(broker, partition) == len(partition.log.segments)
        await log_maintenance.stop()

    run(scenario())


@pytest.mark.parametrize(("delete_delay_ms", "delay_s"), [(None, BROKERS_DELAY_S), (5000, 5.0)])
def test_a_deleted_topic_stays_on_disk_for_so_long(delete_delay_ms: int | None, delay_s: float) -> None:
    async def scenario() -> None:
        broker, partition = filled(delete_delay_ms)
        log_maintenance = housekeeping_of(broker)
        (removed,) = broker.replicas.remove("t")
        broker.replicas.forget(removed)
        log_maintenance.file_removal.remove([removed])
        await asyncio.sleep(delay_s - A_MOMENT_S)
        assert broker.disk.exists(partition.log.directory)
        # The removal waits for the sync that is under way.
        broker.syncer.let_go()
        await asyncio.sleep(2 * A_MOMENT_S)
        assert not broker.disk.exists(partition.log.directory)
        await log_maintenance.stop()

    run(scenario())


@pytest.mark.parametrize("has_room", [True, False])
def test_a_large_file_is_removed_in_steps_with_pauses_unless_there_is_no_room(
    monkeypatch: pytest.MonkeyPatch, *, has_room: bool
) -> None:
    monkeypatch.setattr(storage_disk, "REMOVAL_STEP_BYTES", 10)

    async def scenario() -> None:
        broker, partition = filled(delete_delay_ms=5000)
        log_maintenance, home = housekeeping_of(broker), broker.directories[0]
        home.free_bytes_at_refusal = None if has_room else 1
        first = partition.log.segments[0].path
        size = len(broker.disk.content(first))
        await log_maintenance.retain(home)
        # Index files have other sizes, and all files of a segment are removed in turn.
        sizes = []
        while broker.disk.exists(first):
            sizes.append(len(broker.disk.content(first)))
            await asyncio.sleep(STEP_PAUSE_S_MIN)
        shrinking = sorted({found for found in sizes if found != size}, reverse=True)
        assert shrinking == (list(range(size - 10, 0, -10)) if has_room else [])
        await log_maintenance.stop()

    run(scenario())


def test_a_replica_that_comes_back_before_its_files_are_removed_continues_with_them() -> None:
    async def scenario() -> None:
        broker, partition = filled(delete_delay_ms=None, policy=FlushPolicy.GROUP)
        log_maintenance = housekeeping_of(broker)
        await broker.turn()
        broker.syncer.let_go()
        removed = broker.replicas.remove_one("t", 0)
        assert removed is partition
        log_maintenance.file_removal.remove([removed])
        assert broker.partition().log.log_end == partition.log.log_end
        await asyncio.sleep(2 * BROKERS_DELAY_S)
        assert broker.disk.exists(partition.log.directory)
        await log_maintenance.stop()

    run(scenario())


class Interrupted:
    """A worker thread that lets the event loop do something before the removal of a tree."""

    def __init__(self) -> None:
        self.meanwhile: Callable[[], object] | None = None

    async def run(self, function: Callable[..., object], *arguments: object) -> object:
        if self.meanwhile is not None:
            meanwhile, self.meanwhile = self.meanwhile, None
            meanwhile()
        return function(*arguments)


def test_a_replica_that_is_added_while_a_thread_removes_its_former_files_keeps_its_own() -> None:
    async def scenario() -> None:
        thread = Interrupted()
        broker = ReplicaFixture(run_blocking=thread.run)
        await broker.produce_and_flush("former")
        log_maintenance = housekeeping_of(broker)
        removed = broker.replicas.remove_one("t", 0)
        assert removed is not None
        log_maintenance.file_removal.remove([removed])
        thread.meanwhile = broker.partition
        await asyncio.sleep(2 * BROKERS_DELAY_S)
        assert thread.meanwhile is None
        assert broker.partition() is not removed
        await broker.produce_and_flush("new")
        assert broker.values_after_a_power_cut() == ["new"]
        assert not broker.failed
        await log_maintenance.stop()

    run(scenario())


def test_a_replica_that_is_added_while_its_orphaned_files_are_removed_keeps_its_own() -> None:
    """It begins with an empty log, and not with the flush mark of the orphan: that would count as a loss."""

    async def scenario() -> None:
        thread = Interrupted()
        broker = ReplicaFixture(run_blocking=thread.run)
        await broker.produce_and_flush("former")
        broker.restart()
        log_maintenance = housekeeping_of(broker)
        thread.meanwhile = broker.partition
        log_maintenance.file_removal.remove_orphans(broker.replicas.found())
        await broker.turn()
        assert thread.meanwhile is None
        assert broker.partition().log.damage == []
        await broker.produce_and_flush("new")
        assert broker.values_after_a_power_cut() == ["new"]
        await log_maintenance.stop()

    run(scenario())


def test_a_replica_that_is_added_before_its_orphaned_files_are_removed_continues_with_them() -> None:
    async def scenario() -> None:
        broker = ReplicaFixture()
        await broker.produce_and_flush("former")
        broker.restart()
        log_maintenance = housekeeping_of(broker)
        log_maintenance.file_removal.remove_orphans(broker.replicas.found())
        await broker.produce_and_flush("new")
        assert broker.values_after_a_power_cut() == ["former", "new"]
        await log_maintenance.stop()

    run(scenario())


def test_an_orphan_that_cannot_be_removed_keeps_no_other() -> None:
    async def scenario() -> None:
        broker = ReplicaFixture()
        for index in range(3):
            broker.replicas.open(TopicIdPartition(f"t{index}", 0, UUID(int=index + 2)), broker.config, NOW_MS)
        for index in range(3):
            broker.disk.make_directories(broker.directories[0].partition_path(UUID(int=index + 2), 0))
        broker.restart()
        log_maintenance, home = housekeeping_of(broker), broker.directories[0]
        list_directory = broker.disk.list_directory

        def list_others(path: str) -> list[str]:
            if path == home.topic_path(UUID(int=2)):
                raise OSError(errno.EMFILE, "Too many open files", path)
            return list_directory(path)

        orphans = broker.replicas.found()
        broker.disk.list_directory = list_others  # type: ignore[method-assign]
        log_maintenance.file_removal.remove_orphans(orphans)
        await asyncio.sleep(A_MOMENT_S)
        assert broker.replicas.found() == []
        assert list_directory("/data0/topics") == [str(UUID(int=2))], "the next start finds it"
        await log_maintenance.stop()

    run(scenario())


@pytest.mark.parametrize("step_bytes", [None, 20])
def test_a_broker_that_dies_while_retention_runs_finds_nothing_missing(
    monkeypatch: pytest.MonkeyPatch, step_bytes: int | None
) -> None:
    """Nor does it find a segment too short that was being removed, in steps of so many bytes."""
    if step_bytes is not None:
        monkeypatch.setattr(storage_disk, "REMOVAL_STEP_BYTES", step_bytes)

    async def scenario() -> None:
        for changes in range(60 if step_bytes is None else 400):
            broker, partition = filled(delete_delay_ms=0, policy=FlushPolicy.GROUP)
            while partition.log.flushed_end < partition.log.log_end:
                await asyncio.sleep(A_MOMENT_S)
                broker.syncer.let_go()
            log_maintenance = housekeeping_of(broker)
            await log_maintenance.checkpoints.write(partition)
            assert partition.log.state().segments, "there is something to miss"
            broker.disk.faults.die_after(changes)
            with contextlib.suppress(Died):
                await log_maintenance.retain(broker.directories[0])
            await asyncio.sleep(60 * A_MOMENT_S)
            is_over = log_files(broker, partition) == len(partition.log.segments)
            broker.disk.power_cut(keep=1.0)
            log = open_log(broker.disk, partition.log.directory, partition.log.config, None, NOW_MS)
            assert [damage for damage in log.damage if not damage.path.endswith(".index")] == [], f"change {changes}"
            if is_over:
                return
        raise AssertionError("it never came to an end")

    run(scenario())
