"""Truncation of many followers after an election: they share syncs, and no sync is on the event loop."""

import asyncio
import errno
from collections.abc import Callable

import pytest
from peer_fixture import FollowerFixture
from raw_batches import NOW_MS
from replica_fixture import ME, TOPIC_ID, ReplicaFixture, housekeeping_of
from transactions import PRODUCER, decide, write
from virtual_time import run

from cordwood.chaos.sim.disk import SimulatedDisk
from cordwood.chaos.sim.values import batch_of
from cordwood.replication.assignment import Assignment
from cordwood.replication.frames import FollowRequest, PushKind, PushRow
from cordwood.replication.log_repair import truncation_at_damage
from cordwood.replication.partition import Partition
from cordwood.replication.truncation import PRODUCERS_ON_LOOP_MAX, Truncations, full_truncation, truncation_to
from cordwood.storage.batch import check, headers, stamp
from cordwood.storage.errors import LostTail, TruncationUnsynced
from cordwood.storage.flushed_offsets import FlushedOffset, FlushedOffsets
from cordwood.storage.pending_flush import PendingFlush
from cordwood.storage.producers import Producers
from cordwood.storage.state import load, write_checkpoint
from cordwood.storage.types import NO_EPOCH

PARTITIONS = 200
OLD_LEADER, NEW_LEADER = 3, 4


class Threads:
    """An executor that runs blocking calls, and counts the syncs within and outside of them."""

    def __init__(self) -> None:
        self.is_beside = False
        self.on_loop: list[str] = []
        self.beside: list[str] = []

    async def run(self, function: Callable[..., object], *arguments: object) -> object:
        await asyncio.sleep(0.01)
        self.is_beside = True
        try:
            return function(*arguments)
        finally:
            self.is_beside = False
            await asyncio.sleep(0.01)

    def synced(self, path: str) -> None:
        (self.beside if self.is_beside else self.on_loop).append(path)


def stamped(value: str, offset: int, epoch: int) -> bytes:
    batch = batch_of(value)
    return stamp(check(batch), offset, epoch) + batch[16:]


async def flush(broker: FollowerFixture) -> None:
    for _ in range(3):
        await broker.turn()
        while broker.syncer.groups:
            broker.syncer.let_go()


async def diverged(threads: Threads) -> tuple[FollowerFixture, list[FollowRequest]]:
    """Return a follower with two records in each partition, and its requests to a leader with only the first."""
    broker = FollowerFixture(threads.run)
    partitions = [broker.follow(index) for index in range(PARTITIONS)]
    await asyncio.sleep(0.2)
    for row in broker.asked():
        data = stamped("a", 0, 1) + stamped("b", 1, 1)
        broker.answer(PushRow(row.stream, PushKind.DATA, 1, 0, len(data)), data=data)
    await flush(broker)
    broker.disk.on_sync = threads.synced
    for partition in partitions:
        assert partition.log.flushed_end == 2
        assert partition.assigned(Assignment(OLD_LEADER, 2, 2, (ME, OLD_LEADER), frozenset({ME, OLD_LEADER}), 1))
        broker.leader_connection.follow(partition)
    await asyncio.sleep(0.2)
    return broker, broker.asked()


async def cutting(threads: Threads) -> tuple[FollowerFixture, Partition]:
    """Return a follower that cuts all its logs to one record, which is not on disk yet, and its first replica."""
    broker, asked = await diverged(threads)
    broker.answer(*(PushRow(row.stream, PushKind.DIFFERS, 1, 1) for row in asked))
    await asyncio.sleep(1)
    return broker, broker.partition(0)


def test_those_that_are_due_share_one_sync_of_the_marks_and_none_is_on_the_loop() -> None:
    async def scenario() -> None:
        threads = Threads()
        broker, asked = await diverged(threads)
        assert len(asked) == PARTITIONS
        broker.answer(*(PushRow(row.stream, PushKind.DIFFERS, 1, 1) for row in asked))
        await asyncio.sleep(1)
        assert [partition.log.log_end for partition in broker.replicas] == [1] * PARTITIONS
        assert threads.on_loop == []
        assert threads.beside.count("/data0/flushed") == len(threads.beside) == 1
        # Until the truncations are on disk, nothing may be appended, and the follower asks for nothing.
        assert broker.asked() == []
        await flush(broker)
        assert all(
            broker.disk.is_durable(one.log.segments[-1].path, one.log.segments[-1].size) for one in broker.replicas
        )
        threads.on_loop.clear()
        await asyncio.sleep(0.2)
        # The follower asks for the rest, from its new log ends.
        rest = broker.asked()
        assert [row.log_end for row in rest] == [1] * PARTITIONS
        for row in rest:
            data = stamped("c", 1, 2)
            broker.answer(PushRow(row.stream, PushKind.DATA, 1, 0, len(data)), data=data)
        assert [partition.log.log_end for partition in broker.replicas] == [2] * PARTITIONS
        assert threads.on_loop == []
        await broker.leader_connection.close()

    run(scenario())


class Removals:
    """The files removed from a disk, by the event loop and by threads."""

    def __init__(self, disk: SimulatedDisk, threads: Threads) -> None:
        self.on_loop: list[str] = []
        self.beside: list[str] = []
        self._remove, self._threads = disk.remove, threads

    def __call__(self, path: str) -> None:
        (self.beside if self._threads.is_beside else self.on_loop).append(path)
        self._remove(path)


def test_the_files_of_segments_that_are_cut_are_removed_beside_the_loop() -> None:
    async def story() -> None:
        threads = Threads()
        broker, asked = await diverged(threads)
        removals = broker.disk.remove = Removals(broker.disk, threads)  # type: ignore[method-assign]
        cut = [broker.partition(index).log.segments[0].path for index in range(PARTITIONS)]
        broker.answer(*(PushRow(row.stream, PushKind.TOO_OLD, 0, 100) for row in asked))
        await asyncio.sleep(1)
        assert [partition.log.log_start for partition in broker.replicas] == [100] * PARTITIONS
        assert not [path for path in removals.on_loop if path.endswith(".log")]
        assert len(removals.beside) == PARTITIONS
        assert not [path for path in broker.disk.files() if path in cut or "/repair/" in path]
        await broker.leader_connection.close()

    run(story())


def test_a_replica_that_leads_before_it_is_cut_keeps_what_it_has() -> None:
    async def scenario() -> None:
        broker, asked = await diverged(Threads())
        broker.answer(*(PushRow(row.stream, PushKind.DIFFERS, 1, 1) for row in asked[:2]))
        partition = broker.partition(0)
        partition.assigned(Assignment(ME, 3, 3, (ME, OLD_LEADER), frozenset({ME}), 1))
        await asyncio.sleep(1)
        assert (partition.log.log_end, partition.log.flushed_end) == (2, 2)
        assert broker.partition(1).log.log_end == 1
        await broker.leader_connection.close()

    run(scenario())


def test_a_replica_that_leads_before_its_truncation_is_on_disk_has_no_other_role() -> None:
    async def scenario() -> None:
        broker, partition = await cutting(Threads())
        assert partition.log.log_end == 1
        partition.assigned(Assignment(ME, 3, 3, (ME, OLD_LEADER), frozenset({ME}), 1))
        await flush(broker)
        await asyncio.sleep(1)
        assert partition.is_leader
        assert partition.following is None
        assert len(broker.asked()) == PARTITIONS - 1
        await broker.leader_connection.close()

    run(scenario())


def test_a_leader_takes_batches_once_its_truncation_is_on_disk_and_syncs_nothing_on_the_loop() -> None:
    async def scenario() -> None:
        threads = Threads()
        broker, partition = await cutting(threads)
        partition.assigned(Assignment(ME, 3, 3, (ME, OLD_LEADER), frozenset({ME}), 1))
        with pytest.raises(TruncationUnsynced):
            partition.append(batch_of("c"), NOW_MS)
        assert threads.on_loop == []
        await flush(broker)
        assert partition.append(batch_of("c"), NOW_MS).base_offset == 1
        await broker.leader_connection.close()

    run(scenario())


def test_a_follower_of_another_leader_asks_again_until_its_truncation_is_on_disk() -> None:
    async def scenario() -> None:
        threads = Threads()
        broker, partition = await cutting(threads)
        assert partition.assigned(Assignment(OLD_LEADER, 3, 3, (ME, OLD_LEADER), frozenset({OLD_LEADER}), 1))
        broker.leader_connection.follow(partition)
        await asyncio.sleep(0.01)
        data = stamped("c", 1, 3)
        (row,) = broker.asked()
        broker.answer(PushRow(row.stream, PushKind.DATA, 1, 0, len(data)), data=data)
        assert (partition.log.log_end, threads.on_loop) == (1, [])
        await flush(broker)
        await asyncio.sleep(1)
        row = next(row for row in broker.asked() if row.partition == 0)
        broker.answer(PushRow(row.stream, PushKind.DATA, 1, 0, len(data)), data=data)
        assert partition.log.log_end == 2
        await broker.leader_connection.close()

    run(scenario())


def test_a_failed_sync_of_the_marks_cuts_nothing_and_takes_the_directory_offline() -> None:
    async def scenario() -> None:
        broker, asked = await diverged(Threads())
        broker.disk.faults.fail_next_sync("/data0/flushed")
        broker.answer(*(PushRow(row.stream, PushKind.DIFFERS, 1, 1) for row in asked))
        await asyncio.sleep(1)
        assert [partition.log.log_end for partition in broker.replicas] == [2] * PARTITIONS
        assert broker.directories[0].is_offline
        await broker.leader_connection.close()

    run(scenario())


def test_a_log_that_starts_over_waits_for_no_disk_on_the_loop() -> None:
    async def scenario() -> None:
        threads = Threads()
        broker, asked = await diverged(threads)
        broker.answer(*(PushRow(row.stream, PushKind.TOO_OLD, 0, 50) for row in asked))
        await asyncio.sleep(1)
        ends = {(partition.log.log_start, partition.log.log_end) for partition in broker.replicas}
        assert ends == {(50, 50)}
        assert threads.on_loop == []
        await broker.leader_connection.close()

    run(scenario())


def test_cuts_for_which_there_was_no_thread_are_made_when_there_is_one() -> None:
    async def scenario() -> None:
        threads = Threads()
        broker, asked = await diverged(threads)
        refused: list[str] = []

        async def refuse(_function: Callable[..., object], *_arguments: object) -> object:
            refused.append("can't start new thread")
            raise RuntimeError("can't start new thread")

        broker.directories[0].run_blocking = refuse
        broker.answer(*(PushRow(row.stream, PushKind.DIFFERS, 1, 1) for row in asked))
        await asyncio.sleep(0.01)
        assert refused
        assert {partition.log.log_end for partition in broker.replicas} == {2}
        assert not any(partition.is_offline or partition.is_checkpoint_locked for partition in broker.replicas)
        broker.directories[0].run_blocking = threads.run
        await asyncio.sleep(1)
        broker.answer(*(PushRow(row.stream, PushKind.DIFFERS, 1, 1) for row in broker.asked()))
        await asyncio.sleep(1)
        assert {partition.log.log_end for partition in broker.replicas} == {1}
        await broker.leader_connection.close()

    run(scenario())


@pytest.mark.parametrize("offset", [0, 1], ids=["all of it", "its end"])
def test_a_damaged_end_is_given_up_without_a_sync_on_the_loop(offset: int) -> None:
    async def scenario() -> None:
        threads = Threads()
        broker = ReplicaFixture(run_blocking=threads.run)
        await broker.produce_and_flush("a", "b")
        partition = broker.partition()
        partition.assigned(Assignment(OLD_LEADER, 2, 2, (ME, OLD_LEADER), frozenset({OLD_LEADER}), 1))
        log = partition.log
        place = log.directory if offset == 0 else log.segments[0].path
        broker.disk.on_sync = threads.synced
        cut = truncation_at_damage(
            partition, [LostTail(place, log.segments[0].size // 2, "torn", offset)], lambda: True
        )
        assert cut is not None
        truncating = asyncio.ensure_future(Truncations().truncate(cut))
        await asyncio.sleep(1)
        assert (log.log_end, log.flushed_end, threads.on_loop) == (offset, offset, [])
        assert "/data0/flushed" in threads.beside
        broker.let_go()
        assert await truncating
        assert broker.values_after_a_power_cut() == ["a"][:offset]

    run(scenario())


def test_batches_that_an_unclean_truncation_needs_again_are_not_read_on_the_loop() -> None:
    async def scenario() -> None:
        threads = Threads()
        broker = ReplicaFixture(run_blocking=threads.run)
        partition = broker.partition()
        for sequence in (0, 1):
            write(partition, "a", sequence=sequence)
            decide(partition, commit=False)
        await broker.turn()
        broker.let_go()
        assert partition.high_watermark == 4
        partition.assigned(Assignment(OLD_LEADER, 2, 2, (ME, OLD_LEADER), frozenset({OLD_LEADER}), 1))
        cut = truncation_to(partition, 3, lambda: True)
        assert (cut.is_long, cut.state, cut.again) == (True, None, None)
        truncating = asyncio.ensure_future(Truncations().truncate(cut))
        await asyncio.sleep(1)
        broker.let_go()
        assert await truncating
        assert cut.again is not None
        log = partition.log
        assert (log.log_end, log.producers.transactions.first_undecided(3), log.aborted(0, 3)) == (
            3,
            2,
            [(PRODUCER, 0)],
        )

    run(scenario())


@pytest.mark.parametrize("is_long", [False, True])
def test_the_checkpoint_of_many_producers_before_a_truncation_is_not_made_on_the_loop(is_long: bool) -> None:
    async def scenario() -> None:
        broker = ReplicaFixture(run_blocking=Threads().run)
        await broker.produce_and_flush("a", "b")
        partition, count = broker.partition(), PRODUCERS_ON_LOOP_MAX + is_long
        log, header = partition.log, check(batch_of("a"))._replace(producer_epoch=0, base_sequence=0)
        for producer_id in range(count):
            log.producers.appended(header._replace(producer_id=producer_id), 0, 1, NOW_MS)
        log.checkpoint_written(log.state())
        partition.assigned(Assignment(OLD_LEADER, 2, 2, (ME, OLD_LEADER), frozenset({OLD_LEADER}), 1))
        cut = truncation_to(partition, 1, lambda: True)
        assert (cut.is_long, cut.state is None) == (is_long, is_long)
        truncating = asyncio.ensure_future(Truncations().truncate(cut))
        await asyncio.sleep(1)
        broker.let_go()
        assert await truncating
        assert cut.state is not None
        assert len(Producers.decode(cut.state.producers.encode())) == count

    run(scenario())


async def following(broker: ReplicaFixture) -> Partition:
    """Return a replica that has two flushed records, and has just become a follower."""
    await broker.produce_and_flush("a", "b")
    partition = broker.partition()
    partition.assigned(Assignment(OLD_LEADER, 2, 2, (ME, OLD_LEADER), frozenset({OLD_LEADER}), 1))
    return partition


def removing(partition: Partition) -> asyncio.Future[bool]:
    """Begin to remove the whole log of a replica, which is to begin again at offset 9."""
    return asyncio.ensure_future(Truncations().truncate(full_truncation(partition, 9, lambda: True)))


def mark_of(broker: ReplicaFixture) -> FlushedOffset | None:
    """Return the flush mark that a restart would find."""
    return FlushedOffsets(broker.directories[0].flushed_offsets.file).get(TOPIC_ID, 0)


@pytest.mark.parametrize("what", ["not wanted", "failed"])
def test_a_log_that_keeps_its_records_after_all_keeps_their_epochs_on_disk(what: str) -> None:
    async def scenario() -> None:
        broker = ReplicaFixture(run_blocking=Threads().run)
        partition = await following(broker)
        log = partition.log
        write_checkpoint(log.disk, log.directory, state := log.state())
        log.checkpoint_written(state)
        partition.directory.uncheckpointed.clear()
        cut = truncation_to(partition, 0, lambda: what != "not wanted")
        if what == "failed":
            broker.disk.faults.fail_next_write("recovery", code=errno.ENOSPC)
        assert not await Truncations().truncate(cut)
        assert partition in partition.directory.uncheckpointed
        assert list(load(log.disk, log.directory).epochs) == list(log.epochs) != []

    run(scenario())


def test_a_log_that_is_not_removed_after_all_is_found_by_a_restart_as_it_is() -> None:
    async def scenario() -> None:
        broker = ReplicaFixture(run_blocking=Threads().run)
        partition = await following(broker)
        truncation = full_truncation(partition, 9, lambda: False)
        assert not await Truncations().truncate(truncation)
        epochs = list(partition.log.epochs)
        broker.restart()
        log = broker.partition().log
        assert (log.log_start, log.log_end, list(log.epochs), log.damage) == (0, 2, epochs, [])

    run(scenario())


def test_a_truncation_in_which_the_process_was_killed_is_on_disk_after_the_next_start() -> None:
    async def scenario() -> None:
        broker = ReplicaFixture(run_blocking=Threads().run)
        partition = await following(broker)
        truncating = asyncio.ensure_future(Truncations().truncate(truncation_to(partition, 1, lambda: True)))
        await asyncio.sleep(1)
        assert partition.log.has_unsynced_truncation
        broker.restart()
        truncating.cancel()
        assert broker.partition().log.log_end == 1
        assert mark_of(broker) == FlushedOffset(1, 0)
        assert broker.values_after_a_power_cut() == ["a"]

    run(scenario())


def test_a_follower_asks_for_nothing_until_its_new_log_is_on_disk() -> None:
    async def scenario() -> None:
        broker = FollowerFixture()
        partition = broker.follow(0)
        partition.log.truncate_fully(9)
        await asyncio.sleep(0.2)
        broker.asked()
        broker.leader_connection.follow(partition)
        await asyncio.sleep(1)
        assert broker.asked() == []
        partition.log.begun_anew()
        await asyncio.sleep(30)
        assert [row.log_end for row in broker.asked()][:1] == [9]
        await broker.leader_connection.close()

    run(scenario())


@pytest.mark.parametrize("what", ["failed", "deleted"])
def test_no_replica_that_has_failed_or_is_deleted_stays_locked(what: str) -> None:
    async def scenario() -> None:
        broker = ReplicaFixture(run_blocking=Threads().run)
        partition = await following(broker)
        truncating = removing(partition)
        await asyncio.sleep(0.05)
        assert partition.log.begins_anew
        if what == "failed":
            partition.fail(RuntimeError("broken"))
        else:
            partition.is_deleted = True
        broker.let_go()
        assert not await truncating
        assert not partition.is_checkpoint_locked

    run(scenario())


def test_a_group_commit_before_a_truncation_does_not_leave_its_flush_mark() -> None:
    async def scenario() -> None:
        broker = ReplicaFixture(run_blocking=Threads().run)
        partition, found = await following(broker), list[FlushedOffset | None]()
        partition.log.discard = lambda _: found.append(mark_of(broker))
        truncating = removing(partition)
        await asyncio.sleep(0.005)
        partition.note_flushed()
        await asyncio.sleep(1)
        assert found == [FlushedOffset(0, NO_EPOCH, is_truncating=True)]
        broker.let_go()
        assert await truncating
        assert mark_of(broker) == FlushedOffset(9, NO_EPOCH)

    run(scenario())


def test_the_checkpoint_of_another_log_waits_until_the_removal_is_on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        broker = ReplicaFixture(run_blocking=Threads().run)
        partition = await following(broker)
        log, begin_flush = partition.log, partition.begin_flush

        def without_descriptors() -> PendingFlush:
            monkeypatch.setattr(partition, "begin_flush", begin_flush)
            raise OSError(errno.EMFILE, "too many open files")

        monkeypatch.setattr(partition, "begin_flush", without_descriptors)
        truncating = removing(partition)
        await asyncio.sleep(0.05)
        broker.let_go()
        await asyncio.sleep(0.05)
        assert (log.has_unsynced_truncation, load(log.disk, log.directory).log_start) == (True, 0)
        await asyncio.sleep(0.5)
        broker.let_go()
        assert await truncating
        assert load(log.disk, log.directory).log_start == 9

    run(scenario())


def test_the_checkpoint_of_another_log_is_written_again_after_an_error() -> None:
    async def scenario() -> None:
        broker = ReplicaFixture(run_blocking=Threads().run)
        partition = await following(broker)
        log = partition.log
        truncating = removing(partition)
        await asyncio.sleep(1)
        broker.disk.faults.fail_next_write("recovery", code=errno.ENOSPC)
        broker.let_go()
        await asyncio.sleep(0.5)
        assert (log.begins_anew, truncating.done()) == (True, False)
        # Other logs' checkpoints do not wait for it.
        await asyncio.wait_for(housekeeping_of(broker).checkpoints.write(partition), 0.1)
        with pytest.raises(TruncationUnsynced):
            log.append_stamped(data := stamped("c", 9, 2), headers(data), NOW_MS)
        assert await truncating
        log.append_stamped(data, headers(data), NOW_MS)
        assert (load(log.disk, log.directory).log_start, partition.is_checkpoint_locked) == (9, False)

    run(scenario())


def test_a_log_that_begins_after_the_end_of_its_truncation_by_now_stays_as_it_is() -> None:
    async def scenario() -> None:
        broker = ReplicaFixture(run_blocking=Threads().run)
        await broker.produce_and_flush("a", "b", "c")
        partition = broker.partition()
        partition.assigned(Assignment(OLD_LEADER, 2, 2, (ME, OLD_LEADER), frozenset({OLD_LEADER}), 1))
        truncating = asyncio.ensure_future(Truncations().truncate(truncation_to(partition, 1, lambda: True)))
        await asyncio.sleep(0.005)
        partition.log.raise_log_start(2)
        assert not await truncating
        assert (partition.log.log_start, partition.log.log_end, partition.is_offline) == (2, 3, False)
        broker.restart()
        assert broker.directories[0].flushed_offsets.get(TOPIC_ID, 0) == FlushedOffset(3, 0)

    run(scenario())


def test_the_mark_of_a_log_that_was_truncated_before_a_gap_is_that_of_its_new_end() -> None:
    """Before the truncation it is lower: the log could end anywhere before the gap."""

    async def scenario() -> None:
        broker = ReplicaFixture(run_blocking=Threads().run)
        partition = broker.partition()
        data = stamped("a", 3, 1) + stamped("b", 7, 1)
        partition.log.append_stamped(data, headers(data), NOW_MS)
        broker.flusher.touch(partition)
        await broker.turn()
        broker.let_go()
        partition.assigned(Assignment(OLD_LEADER, 2, 2, (ME, OLD_LEADER), frozenset({OLD_LEADER}), 1))
        truncating = asyncio.ensure_future(Truncations().truncate(truncation_to(partition, 7, lambda: True)))
        await asyncio.sleep(1)
        broker.restart()
        assert mark_of(broker) == FlushedOffset(partition.log.log_end, 1, is_truncating=True)
        truncating.cancel()

    run(scenario())


def test_a_checkpoint_does_not_come_between_a_truncation_and_what_is_written_for_it() -> None:
    async def scenario() -> None:
        broker = ReplicaFixture(run_blocking=Threads().run)
        await broker.produce_and_flush("a", "b")
        partition, log_maintenance = broker.partition(), housekeeping_of(broker)
        await log_maintenance.checkpoints.write(partition)
        partition.assigned(Assignment(OLD_LEADER, 2, 2, (ME, OLD_LEADER), frozenset({OLD_LEADER}), 1))
        truncating = asyncio.ensure_future(Truncations().truncate(truncation_to(partition, 1, lambda: True)))
        await asyncio.sleep(0.005)
        checkpointing = asyncio.ensure_future(log_maintenance.checkpoints.write(partition))
        await asyncio.sleep(1)
        broker.let_go()
        assert await truncating
        await checkpointing
        assert broker.values_after_a_power_cut() == ["a"]

    run(scenario())


def test_the_end_of_a_broker_waits_for_what_is_being_written_for_a_cut() -> None:
    async def scenario() -> None:
        threads = Threads()
        broker, asked = await diverged(threads)
        written: list[str] = []

        async def slow(function: Callable[..., object], *arguments: object) -> object:
            await asyncio.sleep(5)
            written.append("written")
            return function(*arguments)

        broker.directories[0].run_blocking = slow
        broker.answer(*(PushRow(row.stream, PushKind.DIFFERS, 1, 1) for row in asked))
        await asyncio.sleep(1)
        await broker.truncations.close()
        assert written == ["written"]
        assert {partition.log.log_end for partition in broker.replicas} == {2}
        await broker.leader_connection.close()

    run(scenario())
