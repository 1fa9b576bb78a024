"""Background maintenance of logs: checkpoints, flush marks, idle producers, and the files of removed segments."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

from replica_fixture import ME, NOW_MS, TOPIC_ID, ReplicaFixture, housekeeping_of
from transactions import decide, write
from virtual_time import run

from cordwood.cluster.broker.log_care import close_logs
from cordwood.replication.archive_view import NoArchive
from cordwood.replication.assignment import Assignment
from cordwood.replication.checkpoints import CHECKPOINT_AGE_S, CHECKPOINT_INTERVAL_S
from cordwood.replication.file_removal import REMOVE_AGAIN_S
from cordwood.replication.partition import Partition
from cordwood.storage.config import FlushPolicy, LogConfig
from cordwood.storage.errors import DamagedLog
from cordwood.storage.flushed_offsets import FlushedOffset
from cordwood.storage.state import RECOVERY_FILE

Story = Callable[[ReplicaFixture], Awaitable[None]]
A_WHILE_S = 2 * CHECKPOINT_AGE_S
TWO_SEGMENTS = LogConfig(segment_bytes=200, retention_bytes=1, delete_delay_ms=0)


def tell(story: Story, config: LogConfig | None = None) -> None:
    async def scenario() -> None:
        await story(ReplicaFixture(config))

    run(scenario())


async def kept_for_a_while(broker: ReplicaFixture, seconds: float = A_WHILE_S) -> None:
    """Let the background tasks run; by default until every log that is due has been checkpointed."""
    log_maintenance = housekeeping_of(broker)
    log_maintenance.start()
    await asyncio.sleep(seconds)
    await log_maintenance.stop()


def test_a_power_cut_finds_the_checkpoint_and_the_mark_of_what_was_flushed_a_while_ago() -> None:
    async def story(broker: ReplicaFixture) -> None:
        await broker.produce_and_flush("a", "b")
        await kept_for_a_while(broker)
        assert broker.values_after_a_power_cut() == ["a", "b"]
        assert broker.partition().log.recovery_point == 2
        assert broker.directories[0].flushed_offsets.get(TOPIC_ID, 0) == FlushedOffset(2, 0)

    tell(story)


def ends_after_a_lost_write_and_a_power_cut(broker: ReplicaFixture) -> tuple[int, bool]:
    """Shorten the first segment and cut the power. Return the log's end, and whether recovery found damage."""
    first = broker.partition().log.segments[0]
    broker.disk.shorten(first.path, first.size // 2)
    broker.disk.power_cut(keep=0)
    broker.restart()
    log = broker.partition().log
    return log.log_end, bool(log.damage)


def test_damage_to_a_closed_segment_is_not_taken_for_a_torn_write() -> None:
    """Without a manifest that lists it, recovery would remove it from there on, with all segments after it."""

    async def story(broker: ReplicaFixture) -> None:
        await broker.produce_and_flush(*"abcdef")
        await kept_for_a_while(broker, 1.5 * CHECKPOINT_INTERVAL_S)
        assert ends_after_a_lost_write_and_a_power_cut(broker) == (6, True)

    tell(story, LogConfig(segment_bytes=200))


def test_a_log_that_was_recovered_is_checkpointed_before_anything_is_appended() -> None:
    async def story(broker: ReplicaFixture) -> None:
        await broker.produce_and_flush("a", "b")
        broker.restart()
        assert broker.partition().log.log_end == 2
        await kept_for_a_while(broker)
        assert ends_after_a_lost_write_and_a_power_cut(broker) == (2, True)

    tell(story)


def test_a_log_of_which_only_an_index_is_damaged_is_checkpointed_too() -> None:
    async def story(broker: ReplicaFixture) -> None:
        await broker.produce_and_flush(*"abcdef")
        broker.disk.flip(broker.partition().log.segments[0].index_path, 3, 0)
        broker.restart()
        assert broker.partition().log.damage != []
        await kept_for_a_while(broker)
        assert broker.partition().log.recovery_point == 6
        assert ends_after_a_lost_write_and_a_power_cut(broker) == (6, True)

    tell(story, LogConfig(segment_bytes=200))


def test_damage_that_a_start_has_found_is_no_torn_write_after_a_power_cut() -> None:
    """A damaged log gets no checkpoint, and its mark may be only in memory."""

    async def story(broker: ReplicaFixture) -> None:
        await broker.produce_and_flush(*"abcdef")
        first = broker.partition().log.segments[0]
        broker.disk.zero(first.path, 0, first.size)
        for _ in range(2):
            broker.restart()
            log = broker.partition().log
            assert (log.log_end, bool(log.damage)) == (6, True)
            await kept_for_a_while(broker, 1.5 * CHECKPOINT_INTERVAL_S)
            broker.disk.power_cut(keep=0)

    tell(story)


def test_the_marks_of_many_damaged_logs_are_synced_once_and_not_as_they_are_opened() -> None:
    async def story(broker: ReplicaFixture) -> None:
        for index in range(3):
            broker.produce("a", index=index)
            broker.produce("b", index=index)
        await broker.turn()
        broker.syncer.let_go()
        for index in range(3):
            first = broker.partition(index).log.segments[0]
            broker.disk.zero(first.path, 0, first.size)
        marks = broker.directories[0].flushed_offsets.file.path
        synced: list[str] = []
        broker.disk.on_sync = synced.append
        broker.restart()
        assert all(broker.partition(index).log.damage for index in range(3))
        assert marks not in synced
        await kept_for_a_while(broker, 3 * CHECKPOINT_INTERVAL_S)
        assert synced.count(marks) == 1

    tell(story)


def test_marks_are_synced_although_no_checkpoint_can_be_written() -> None:
    async def story(broker: ReplicaFixture) -> None:
        broker.produce("a")
        for value in "abcdef":
            broker.produce(value, index=1)
        await broker.turn()
        broker.syncer.let_go()
        first = broker.partition().log.segments[0]
        broker.disk.zero(first.path, 0, first.size)
        broker.restart()
        assert broker.partition(0).log.damage
        assert not broker.partition(1).log.damage
        marks = broker.directories[0].flushed_offsets.file.path
        synced: list[str] = []
        broker.disk.on_sync = synced.append
        broker.disk.capacity_bytes = 0
        await kept_for_a_while(broker)
        assert broker.partition(1).log.has_unlisted_segments, "there is no room"
        assert synced.count(marks) == 1

    tell(story, LogConfig(segment_bytes=200))


def test_what_a_failed_replica_has_in_memory_is_never_checkpointed() -> None:
    """It may be wrong. This includes a group commit under way, retention, and the end of the broker."""

    async def story(broker: ReplicaFixture) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)
        await broker.produce_and_flush(*"abcdef")
        broker.produce("g")
        before = segments_on(broker)
        await broker.turn()
        broker.partition().fail(AssertionError("an invariant"))
        broker.syncer.let_go()
        await kept_for_a_while(broker)
        await close_logs(broker.replicas)
        broker.restart()
        assert (broker.partition().log.recovery_point, segments_on(broker)) == (0, before)

    tell(story, TWO_SEGMENTS)


def test_a_silent_producer_is_forgotten_while_the_broker_runs() -> None:
    async def story(broker: ReplicaFixture) -> None:
        broker.produce("a", sequence=0)
        producers, expiry_ms = broker.partition().log.producers, broker.config.producer_expiry_ms
        for silent_ms, known in ((expiry_ms, 1), (expiry_ms + 1, 0)):
            now_ms = NOW_MS + silent_ms
            await housekeeping_of(broker, lambda now_ms=now_ms: now_ms).retain(broker.directories[0])
            assert len(producers) == known

    tell(story)


def test_a_marker_that_is_committed_in_memory_alone_is_in_no_checkpoint() -> None:
    """A power cut takes the marker, and its transaction is ongoing again."""

    async def story(broker: ReplicaFixture) -> None:
        partition = broker.partition()
        write(partition, "a")
        broker.flusher.touch(partition)
        await broker.turn()
        broker.let_go()
        decide(partition, commit=True)
        assert (partition.last_stable_offset, partition.log.flushed_end) == (2, 1)
        await housekeeping_of(broker).checkpoints.write(partition)
        assert broker.values_after_a_power_cut() == ["a"]
        assert broker.partition().log.producers.transactions.ongoing == 1
        assert broker.partition().last_stable_offset == 0

    tell(story, LogConfig(flush_policy=FlushPolicy.OS))


def test_the_mark_has_the_epoch_of_the_last_record_that_was_flushed() -> None:
    async def story(broker: ReplicaFixture) -> None:
        broker.produce("a")
        await broker.turn()
        broker.partition().assigned(Assignment(ME, 3, 3, (ME,), frozenset({ME}), 1))
        broker.produce("b")
        broker.let_go()
        broker.restart()
        assert broker.directories[0].flushed_offsets.get(TOPIC_ID, 0) == FlushedOffset(1, 0)

    tell(story)


def test_the_files_of_removed_segments_stay_until_a_manifest_without_them_is_written() -> None:
    async def story(broker: ReplicaFixture) -> None:
        await broker.produce_and_flush(*"abcdef")
        log_maintenance, log = housekeeping_of(broker), broker.partition().log
        await log_maintenance.checkpoints.write(broker.partition())
        before = segments_on(broker)
        broker.disk.faults.refuse_opens("recovery")
        await log_maintenance.retain(broker.directories[0])
        assert len(log.segments) < len(before)
        await asyncio.sleep(REMOVE_AGAIN_S + 1)
        assert segments_on(broker) == before
        broker.disk.faults.heal()
        await asyncio.sleep(REMOVE_AGAIN_S)
        assert segments_on(broker) == [segment.path for segment in log.segments]
        await log_maintenance.stop()

    tell(story, TWO_SEGMENTS)


class ArchiveOfAll(NoArchive):
    """An archive of all committed records."""

    def end_of(self, partition: Partition) -> int:
        return partition.high_watermark


def test_local_retention_waits_for_a_second_look_at_the_batches_here() -> None:
    async def story(broker: ReplicaFixture) -> None:
        await broker.produce_and_flush(*"abcdefgh")
        partition, reported = broker.partition(), list[DamagedLog]()
        log, retain = partition.log, housekeeping_of(broker).retain
        partition.context = replace(
            partition.context, archive=ArchiveOfAll(), found_damage=lambda _, damage: reported.append(damage)
        )
        log.config = replace(log.config, is_archived=True, retention_bytes=-1, local_retention_bytes=log.size // 2)
        # The lost end of an earlier leader, which others have archived.
        log.has_not_seen(0, 1)
        await retain(broker.directories[0])
        local_start = log.local_start
        assert 0 < local_start < log.log_end
        assert [damage.path for damage in reported] == [f"{log.directory}/{RECOVERY_FILE}"]
        log.config = replace(log.config, local_retention_bytes=0)
        await retain(broker.directories[0])
        assert log.local_start == local_start
        log.unseen = None
        await retain(broker.directories[0])
        assert log.local_start > local_start

    tell(story, TWO_SEGMENTS)


def segments_on(broker: ReplicaFixture) -> list[str]:
    return sorted(path for path in broker.disk.files() if path.endswith(".log"))


def test_no_follower_lags_at_the_first_append_after_a_long_pause() -> None:
    """The follower has had nothing to report meanwhile."""

    async def story(broker: ReplicaFixture) -> None:
        await broker.produce_and_flush("a")
        partition = broker.partition()
        partition.assigned(Assignment(ME, 1, 1, (ME, 2), frozenset({ME, 2}), 1))
        partition.leader.follower_attached(2, 1, 0, partition.context.now())
        await kept_for_a_while(broker)
        broker.produce("b")
        assert partition.leader.propose_isr(lambda _: True) is None

    tell(story)
