"""Moves of replicas between log directories: nothing acknowledged is lost, whatever step a crash comes at."""

import asyncio
import os
import random
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import replace
from uuid import UUID

import pytest
from replica_fixture import ME, NOW_MS, TOPIC_ID, log_directory, surroundings_of
from structlog.testing import capture_logs
from virtual_time import run

from cordwood.chaos.sim.disk import SimulatedDisk
from cordwood.chaos.sim.faults import Died
from cordwood.replication.assignment import Assignment
from cordwood.replication.log_maintenance import Intervals, LogMaintenance
from cordwood.replication.partition import Partition, TopicIdPartition
from cordwood.replication.replica_moves import RETRY_S, ReplicaMoves
from cordwood.replication.replicas import Replicas
from cordwood.replication.syncers import OnSynced, sync_all
from cordwood.replication.waiters import EndOfTickScheduler
from cordwood.storage.batch import split
from cordwood.storage.config import FlushPolicy, LogConfig
from cordwood.storage.disk import Syncable, sync_directory
from cordwood.storage.flushed_offsets import SLOT_BYTES
from cordwood.storage.log import Log
from cordwood.storage.log_copy import LogCopy, commit, remove_mark
from cordwood.storage.records import Record, decode, encode
from cordwood.storage.segment_roll import directories_to
from cordwood.storage.state import Unseen

PATHS = ("/data-a", "/data-b")
PLACE = TopicIdPartition("t", 0, TOPIC_ID)
SMALL = LogConfig(segment_bytes=4000, index_interval_bytes=200)
"""A segment takes as long as a switch, at least."""
STEPS_MAX, SWITCH_STEPS = 1000, 60
STRIDE = int(os.environ.get("MOVE_STRIDE", "4"))
"""Steps from one crash to the next in the switch; before it there are fewer crashes. With 1 it takes minutes."""


class LaterSyncer:
    """A syncer that syncs in a later iteration of the event loop. After a crash of the process it does nothing."""

    def __init__(self) -> None:
        self.is_dead = False

    def sync(self, files: list[Syncable], done: OnSynced) -> None:
        def synced() -> None:
            if not self.is_dead:
                try:
                    done(sync_all(files))
                except Died:
                    self.is_dead = True

        asyncio.get_running_loop().call_later(0.002, synced)

    def close(self) -> None:
        """Do nothing: no thread runs."""


async def run_slowly(function: Callable[..., object], *arguments: object) -> object:
    """Run a job of a thread, which takes as long as some appends and their flush."""
    await asyncio.sleep(0.003)
    return function(*arguments)


class MovingBroker:
    """One broker with two log directories, and one partition that it leads alone."""

    def __init__(
        self, disk: SimulatedDisk, config: LogConfig = SMALL, rate: float = 1e9, delete_delay_s: float = 0.0
    ) -> None:
        self.disk, self.config = disk, config
        end_of_tick = EndOfTickScheduler(asyncio.get_running_loop())
        self.syncer = LaterSyncer()
        self.directories = [
            log_directory(disk, path, self._failed, self.syncer, end_of_tick, run_slowly) for path in PATHS
        ]
        self.replicas = Replicas(self.directories, surroundings_of(ME, end_of_tick))
        self.maintenance = LogMaintenance(self.replicas, lambda: NOW_MS, Intervals(1.0, delete_delay_s, 10.0))
        self.unrecorded: list[Partition] = []
        self.moves = ReplicaMoves(
            self.replicas, self.maintenance.file_removal, self._unrecord, lambda: None, lambda: rate, lambda: True
        )
        self.replicas.moves = self.moves
        self.acknowledged: list[str] = []
        self.sent = 0

    def open(self, epoch: int = 1) -> Partition:
        self.replicas.open(PLACE, self.config, NOW_MS)
        self.partition.assigned(Assignment(ME, epoch, epoch, (ME,), frozenset({ME}), 1))
        self.moves.resume()
        return self.partition

    @property
    def partition(self) -> Partition:
        partition = self.replicas.get("t", 0)
        assert partition is not None
        return partition

    def send(self, value: str) -> None:
        appended = self.partition.append(encode([Record(0, NOW_MS, b"k", value.encode())]), NOW_MS)
        self.sent += 1
        if not self.partition.leader.when_committed(appended.end_offset, _Waiter(self, value)):
            self.acknowledged.append(value)

    def values(self) -> list[str]:
        log = self.partition.log
        batches = [batch for segment in log.segments for batch in split(segment.read(0, segment.size))]
        return [(record.value or b"").decode() for batch in batches for record in decode(bytes(batch))]

    async def load(self, count: int, prefix: str) -> None:
        """Send values, some per millisecond."""
        for number in range(count):
            self.send(f"{prefix}-{number:03}-{'x' * 40}")
            if number % 3 == 0:
                await asyncio.sleep(0.001)

    async def settled(self) -> None:
        """Wait until no move is left, and nothing is unflushed."""
        while list(self.moves) or self.partition.log.flushed_end < self.partition.log.log_end:
            await asyncio.sleep(0.02)

    def files_in(self, path: str) -> list[str]:
        return [file for file in self.disk.files() if file.startswith((f"{path}/topics/", f"{path}/moves/"))]

    def segments_in(self, path: str) -> list[str]:
        return [file for file in self.files_in(path) if file.endswith(".log")]

    async def _unrecord(self, partition: Partition) -> None:
        await asyncio.sleep(0)
        self.unrecorded.append(partition)

    def _failed(self, directory: object) -> None:
        raise AssertionError(directory)


class _Waiter:
    deadline = 1e9
    spans_epochs = True

    def __init__(self, broker: MovingBroker, value: str) -> None:
        self._broker, self._value = broker, value

    def reached(self) -> None:
        self._broker.acknowledged.append(self._value)

    def failed(self, reason: Exception) -> None:
        raise reason


def test_a_replica_moves_while_it_is_written() -> None:
    async def scenario() -> None:
        broker = MovingBroker(SimulatedDisk(random.Random(1)))
        partition = broker.open()
        await broker.load(100, "before")
        log = partition.log
        broker.moves.move(partition, broker.directories[1])
        await broker.load(100, "meanwhile")
        await broker.settled()
        assert (partition.directory, partition.log) == (broker.directories[1], log)
        assert broker.unrecorded
        assert [segment.path.startswith("/data-b/topics/") for segment in log.segments] == [True] * len(log.segments)
        await broker.load(50, "after")
        await broker.settled()
        assert len(broker.acknowledged) == broker.sent == len(broker.values()) == 250
        assert broker.acknowledged == broker.values()
        await asyncio.sleep(1)
        assert broker.files_in("/data-a") == []
        assert "/data-b/topics/" in broker.files_in("/data-b")[0]
        assert not [file for file in broker.files_in("/data-b") if file.endswith("/moved")]
        expected = broker.values()
        partition.close()
        broker.disk.kill()
        again = MovingBroker(broker.disk)
        assert again.open(2).directory is again.directories[1]
        assert (again.values(), again.partition.log.damage) == (expected, [])

    run(scenario())


async def held_switch(broker: MovingBroker, *, is_committed: bool) -> asyncio.Event:
    """Move the replica under load, and hold the move before or after its commit. Return the event that lets it go on.

    What was appended while the checkpoint of the copy was written is copied last, and flushed in the former copy.
    """
    partition, target = broker.partition, broker.directories[1]
    may_go_on, is_held = asyncio.Event(), asyncio.Event()

    async def run_blocking(function: Callable[..., object], *arguments: object) -> object:
        if function is commit:
            if is_committed:
                function(*arguments)
            is_held.set()
            await may_go_on.wait()
            return None if is_committed else function(*arguments)
        return await run_slowly(function, *arguments)

    target.run_blocking = run_blocking
    await broker.load(30, "before")
    await broker.settled()
    broker.moves.move(partition, target)
    for _ in range(1000):
        broker.send(f"meanwhile-{broker.sent}")
        await asyncio.sleep(0.001)
        if is_held.is_set():
            break
    assert partition.directory is target
    return may_go_on


def test_nothing_is_acknowledged_before_the_copy_counts() -> None:
    async def scenario() -> None:
        broker = MovingBroker(SimulatedDisk(random.Random(1)))
        partition = broker.open()
        may_go_on = await held_switch(broker, is_committed=False)
        acknowledged = list(broker.acknowledged)
        await broker.load(10, "waits")
        await asyncio.sleep(5)
        later, flushed_end = list(broker.acknowledged), partition.log.flushed_end
        may_go_on.set()
        assert later == acknowledged
        assert flushed_end == len(acknowledged) < partition.log.log_end
        await broker.settled()
        assert broker.acknowledged == broker.values()

    run(scenario())


@pytest.mark.parametrize("is_committed", [False, True])
def test_a_power_cut_may_take_the_end_of_a_copy_that_does_not_count(*, is_committed: bool) -> None:
    """The names of the copy are on disk, and of its content what was synced."""

    async def scenario() -> None:
        disk = SimulatedDisk(random.Random(1))
        broker = MovingBroker(disk)
        place = broker.directories[1].partition_path(TOPIC_ID, 0)
        broker.open()
        await held_switch(broker, is_committed=is_committed)
        acknowledged = list(broker.acknowledged)
        assert len(acknowledged) > 30
        with closing(disk.open(f"{place}/moved")) as mark:
            mark.sync()
        for name in (*directories_to(place), "/data-b/moves"):
            sync_directory(disk, name)
        broker.syncer.is_dead = True
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        disk.power_cut(0.0)
        again = MovingBroker(disk)
        assert again.open(2).directory is again.directories[int(is_committed)]
        assert again.values()[: len(acknowledged)] == acknowledged

    run(scenario())


def test_the_mark_of_an_earlier_move_does_not_outweigh_the_copy_that_took_over() -> None:
    """The mark stays if its removal lacked resources. The former copy is there until the delete delay has passed."""

    async def scenario() -> None:
        disk = SimulatedDisk(random.Random(1))
        broker = MovingBroker(disk, delete_delay_s=60.0)
        partition = broker.open()
        await broker.load(30, "before")
        await broker.settled()
        commit(disk, partition.log.directory, "/data-a/moves")
        broker.moves.move(partition, broker.directories[1])
        await broker.settled()
        await broker.load(10, "after")
        await broker.settled()
        disk.kill()
        again = MovingBroker(disk)
        assert again.open(2).directory is again.directories[1]
        assert again.values() == broker.acknowledged

    run(scenario())


def test_a_replica_moves_back_once_its_former_files_are_gone() -> None:
    async def scenario() -> None:
        broker = MovingBroker(SimulatedDisk(random.Random(1)))
        partition = broker.open()
        await broker.load(30, "before")
        for target in (1, 0, 1):
            broker.moves.move(partition, broker.directories[target])
            await broker.load(30, f"to {target}")
            await broker.settled()
            assert partition.directory is broker.directories[target]
        assert broker.values() == broker.acknowledged

    run(scenario())


@pytest.mark.parametrize("lacks", ["lacks_archived_epochs", "unseen"])
def test_a_replica_that_lacks_state_of_archived_records_moves_once_it_has_it(lacks: str) -> None:
    async def scenario() -> None:
        broker = MovingBroker(SimulatedDisk(random.Random(1)))
        partition = broker.open()
        await broker.load(30, "before")
        if lacks == "unseen":
            partition.log.roll_if_active(partition.log.segments[0])
            await broker.load(1, "kept")
            end = partition.log.log_end
            partition.log.config = replace(partition.log.config, is_archived=True, local_retention_bytes=0)
            assert partition.log.drop(end, NOW_MS, end)
        setattr(partition.log, lacks, Unseen(0, 1) if lacks == "unseen" else True)
        assert partition.log.lacks_archived_state
        with capture_logs() as logs:
            broker.moves.move(partition, broker.directories[1])
            await asyncio.sleep(3 * RETRY_S)
        assert partition.directory is broker.directories[0]
        assert 2 <= [line["event"] for line in logs].count("replica.not_moved") <= 4
        setattr(partition.log, lacks, None if lacks == "unseen" else False)
        await broker.settled()
        assert partition.directory is broker.directories[1]

    run(scenario())


def test_an_empty_replica_moves() -> None:
    async def scenario() -> None:
        broker = MovingBroker(SimulatedDisk(random.Random(1)))
        partition = broker.open()
        broker.moves.move(partition, broker.directories[1])
        await broker.settled()
        await broker.load(10, "after")
        await broker.settled()
        assert {segment.path.split("/")[1] for segment in partition.log.segments} == {"data-b"}
        assert broker.values() == broker.acknowledged

    run(scenario())


def test_an_empty_replica_that_moves_back_is_not_removed_with_its_former_place() -> None:
    async def scenario() -> None:
        disk = SimulatedDisk(random.Random(1))
        broker = MovingBroker(disk, delete_delay_s=5.0)
        partition = broker.open()
        broker.moves.move(partition, broker.directories[1])
        await broker.settled()
        broker.moves.move(partition, broker.directories[0])
        await asyncio.sleep(4)
        assert partition.directory is broker.directories[1], "the removal at its former place is still to come"
        await broker.settled()
        await broker.load(10, "after")
        await broker.settled()
        await asyncio.sleep(10)
        assert partition.directory is broker.directories[0]
        assert MovingBroker(disk).open(2).log.log_end == len(broker.acknowledged) == 10

    run(scenario())


def test_a_replica_that_comes_anew_is_not_removed_with_what_a_former_one_left() -> None:
    async def scenario() -> None:
        disk = SimulatedDisk(random.Random(1))
        broker = MovingBroker(disk, delete_delay_s=5.0)
        broker.moves.move(broker.open(), broker.directories[1])
        await broker.settled()
        removed = broker.replicas.remove_one("t", 0)
        assert removed is not None
        broker.maintenance.file_removal.remove([removed])
        partition = broker.open(2)
        assert partition.directory is broker.directories[0]
        await broker.load(10, "after")
        await broker.settled()
        await asyncio.sleep(10)
        restarted = MovingBroker(disk)
        mark = restarted.directories[0].flushed_offsets.get(TOPIC_ID, 0)
        assert mark is not None, "records that the disk loses are missed"
        assert mark.end_offset == restarted.open(3).log.log_end == len(broker.acknowledged) == 10

    run(scenario())


def test_a_former_home_may_go_with_the_last_orphan_of_its_topic() -> None:
    """The directory of a topic is removed with the last orphan in it, also before the removal of a copy is synced."""

    async def scenario() -> None:
        broker = MovingBroker(SimulatedDisk(random.Random(1)))
        partition, former = broker.open(), broker.directories[0]
        await broker.load(30, "before")

        async def remove_vacant_topic() -> None:
            while not former.is_vacant(TOPIC_ID):
                await asyncio.sleep(0.001)
            broker.disk.remove_tree(former.topic_path(TOPIC_ID))

        removal = asyncio.create_task(remove_vacant_topic())
        broker.moves.move(partition, broker.directories[1])
        await broker.settled()
        await removal
        await asyncio.sleep(1)
        assert not former.is_offline
        assert not [file for file in broker.disk.files() if file.endswith("/moved")], "the move is over"
        await broker.load(10, "after")
        await broker.settled()
        assert broker.values() == broker.acknowledged

    run(scenario())


def test_a_cancelled_move_leaves_nothing() -> None:
    async def scenario() -> None:
        broker = MovingBroker(SimulatedDisk(random.Random(1)), rate=1000.0)
        partition = broker.open()
        await broker.load(100, "before")
        broker.moves.move(partition, broker.directories[1])
        await asyncio.sleep(2)
        assert broker.files_in("/data-b") != []
        [move] = broker.moves
        assert 0 < move.copy.size < partition.log.size
        broker.moves.move(partition, broker.directories[0])
        assert list(broker.moves) == []
        await asyncio.sleep(10)
        assert broker.files_in("/data-b") == []
        assert partition.directory is broker.directories[0]

    run(scenario())


async def cancelled_after(broker: MovingBroker, step: Callable[..., object]) -> list[str]:
    """Cancel a move when its switch has made a step, with segments missing in the copy. Return the reported reasons."""
    partition, (source, target) = broker.open(), broker.directories

    async def run_at_source(function: Callable[..., object], *arguments: object) -> object:
        if function is remove_mark:
            for number in range(200):
                broker.send(f"last-{number}-{'x' * 40}")
        return await run_slowly(function, *arguments)

    async def run_at_target(function: Callable[..., object], *arguments: object) -> object:
        result = await run_slowly(function, *arguments)
        if partition.is_checkpoint_locked and getattr(function, "__name__", "") == step.__name__:
            broker.moves.move(partition, source)
        return result

    source.run_blocking, target.run_blocking = run_at_source, run_at_target
    await broker.load(100, "before")
    with capture_logs() as events:
        broker.moves.move(partition, target)
        await broker.settled()
        await asyncio.sleep(1)
    assert partition.directory is source
    assert broker.files_in("/data-b") == []
    return [event["reason"] for event in events if event["event"] == "replica.not_moved"]


@pytest.mark.parametrize("step", [next, LogCopy.write_state])
def test_a_move_that_is_cancelled_in_its_switch_has_not_failed(step: Callable[..., object]) -> None:
    async def scenario() -> None:
        broker = MovingBroker(SimulatedDisk(random.Random(1)))
        assert await cancelled_after(broker, step) == ["it is not wanted any more"]
        # The next log has the mark that the copy had.
        marks = broker.directories[1].flushed_offsets
        marks.mark(UUID(int=9), 0)
        assert marks.file.size() == SLOT_BYTES

    run(scenario())


def test_a_segment_that_begins_while_the_checkpoint_is_written_is_copied_before_the_copy_takes_over() -> None:
    async def scenario() -> None:
        broker = MovingBroker(SimulatedDisk(random.Random(1)))
        partition, target = broker.open(), broker.directories[1]
        rolled = 0

        async def run_blocking(function: Callable[..., object], *arguments: object) -> object:
            nonlocal rolled
            result = await run_slowly(function, *arguments)
            if getattr(function, "__name__", "") == LogCopy.write_state.__name__ and not rolled:
                before = len(partition.log.segments)
                while len(partition.log.segments) == before:
                    broker.send(f"meanwhile-{'x' * 40}")
                rolled += 1
            return result

        target.run_blocking = run_blocking
        await broker.load(100, "before")
        with capture_logs() as events:
            broker.moves.move(partition, target)
            await broker.settled()
        assert rolled, "the scenario is the one that is meant"
        assert partition.directory is target
        assert [event for event in events if event["event"] == "replica.not_moved"] == []
        assert broker.values() == broker.acknowledged

    run(scenario())


async def cut_while_copied(broker: MovingBroker, cut: Callable[[Log], None]) -> Partition:
    """Move a replica, and cut its log as a follower when some of it is copied. Write after that, until it has moved."""
    partition = broker.open()
    await broker.load(100, "before")
    await broker.settled()
    broker.moves.move(partition, broker.directories[1])
    await asyncio.sleep(1.2)
    [move] = broker.moves
    assert 3000 < move.copy.size < partition.log.size
    partition.assigned(Assignment(ME + 1, 2, 2, (ME, ME + 1), frozenset({ME + 1}), 1))
    cut(partition.log)
    partition.truncated()
    partition.directory.flusher.touch(partition)
    await asyncio.sleep(0.1)
    partition.assigned(Assignment(ME, 3, 3, (ME,), frozenset({ME}), 1))
    await broker.load(10, "after")
    await broker.settled()
    assert partition.directory is broker.directories[1]
    return partition


def test_a_truncation_while_it_is_copied_is_copied_too() -> None:
    async def scenario() -> None:
        broker = MovingBroker(SimulatedDisk(random.Random(1)), rate=4000.0)
        partition = await cut_while_copied(broker, lambda log: log.truncate(20))
        assert broker.values() == [*broker.acknowledged[:20], *broker.acknowledged[-10:]]
        assert broker.segments_in("/data-b") == [segment.path for segment in partition.log.segments]

    run(scenario())


def test_a_log_that_begins_anew_while_it_is_copied_takes_no_former_segment_along() -> None:
    def begin_anew(log: Log) -> None:
        log.truncate_fully(500)
        log.begun_anew()

    async def scenario() -> None:
        disk = SimulatedDisk(random.Random(1))
        broker = MovingBroker(disk, rate=4000.0)
        partition = await cut_while_copied(broker, begin_anew)
        assert broker.segments_in("/data-b") == [segment.path for segment in partition.log.segments]
        again = MovingBroker(disk)
        log = again.open(4).log
        assert (log.damage, log.log_start, log.log_end) == ([], 500, 510)
        assert again.values() == broker.acknowledged[-10:]

    run(scenario())


CRASHES = [
    *((number % STRIDE, FlushPolicy.GROUP, keep) for number, keep in enumerate((None, 0.0, 0.5, 1.0))),
    *((number % STRIDE, FlushPolicy.OS, keep) for number, keep in enumerate((None, 0.0, 0.5))),
]


@pytest.mark.parametrize(("first", "policy", "keep"), CRASHES, ids=str)
def test_a_crash_at_any_step_leaves_the_old_copy_or_the_new_one(
    first: int, policy: FlushPolicy, keep: float | None
) -> None:
    """Crash at each STRIDE-th step. `keep` is the share of unsynced data that a power cut keeps; None for a kill."""
    steps = [(step, False) for step in range(first, STEPS_MAX, 24 * STRIDE)]
    steps += [(step, True) for step in range(first, SWITCH_STEPS, STRIDE)]
    is_over = [run(_crash_at(step, policy, keep, is_in_switch=is_in_switch)) for step, is_in_switch in steps]
    assert any(is_over), "it never came to an end"
    assert not all(is_over)


async def _crash_at(step: int, policy: FlushPolicy, keep: float | None, *, is_in_switch: bool) -> bool:
    """Crash at the step, restart twice, and check. Return True if all was over before the step.

    With `is_in_switch` steps count from the checkpoint of the copy on.
    """
    disk = SimulatedDisk(random.Random(step))
    config = replace(SMALL, flush_policy=policy)
    broker = MovingBroker(disk, config)
    partition = broker.open()
    await broker.load(80, "before")
    await broker.settled()
    loop = asyncio.get_running_loop()
    crashed = loop.create_future()
    disk.on_death = lambda: crashed.done() or crashed.set_result(None)
    # Tasks end with Died.
    loop.set_exception_handler(lambda _loop, _context: None)
    if is_in_switch:
        disk.faults.die_after_sync("/moved", step)
    else:
        disk.faults.die_after(step)
    broker.moves.move(partition, broker.directories[1])
    with suppress(Died):
        await asyncio.wait([crashed, asyncio.ensure_future(_over(broker))], return_when=asyncio.FIRST_COMPLETED)
    is_over = not crashed.done()
    sent, acknowledged = broker.sent, list(broker.acknowledged)
    broker.syncer.is_dead = True
    for task in asyncio.all_tasks():
        if task is not asyncio.current_task():
            task.cancel()
    disk.on_death = lambda: None
    if keep is None:
        disk.kill()
    else:
        disk.power_cut(keep)
        if policy is FlushPolicy.OS:
            acknowledged = []
    has_begun = any(disk.exists(f"/data-b/{place}") for place in (f"moves/{TOPIC_ID}-0", f"topics/{TOPIC_ID}/0"))
    for epoch in (2, 3):
        again = MovingBroker(disk, config)
        opened = again.open(epoch)
        found = again.values()
        # A power cut leaves indexes incomplete, which is no defect.
        damage = [damaged for damaged in opened.log.damage if not damaged.path.endswith(".index")]
        assert damage == [], f"step {step}"
        assert found[: len(acknowledged)] == acknowledged, f"step {step}: {len(found)} of {len(acknowledged)}"
        # A write may have been finished whose process died.
        assert len(found) <= sent + 1
        await again.load(5, f"epoch {epoch}")
        await again.settled()
        await asyncio.sleep(20)
        # A move that has begun is finished after a restart.
        assert opened.directory is again.directories[int(has_begun)], f"step {step}"
        sent, acknowledged = again.sent + len(found), [*found, *again.acknowledged]
        assert again.values() == acknowledged
        disk.power_cut(0.0)
    copies = {file.split("/topics/")[0] for file in disk.files() if "/topics/" in file}
    assert len(copies) == 1, f"step {step}: {disk.files()}"
    assert not [file for file in disk.files() if "/moves/" in file], f"step {step}"
    return is_over


async def _over(broker: MovingBroker) -> None:
    with suppress(Died):
        await broker.load(120, "meanwhile")
    await broker.settled()
    await asyncio.sleep(1)
