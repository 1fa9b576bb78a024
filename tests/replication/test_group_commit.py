"""Group commit: acks wait for the fdatasync, one fdatasync serves many batches, and a failed one is final."""

import asyncio
import errno
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from replica_fixture import TOPIC_ID, ReplicaFixture

from cordwood.replication.refusal import PartitionRefused, Refusal
from cordwood.storage.config import FlushPolicy, LogConfig
from cordwood.storage.errors import DiskFull

Story = Callable[[ReplicaFixture], Awaitable[None]]


def tell(scenario: Story, config: LogConfig | None = None, directories: int = 1) -> None:
    async def reported() -> None:
        await scenario(ReplicaFixture(config, directories))

    asyncio.run(reported())


def test_no_member_is_answered_before_the_sync() -> None:
    async def scenario(broker: ReplicaFixture) -> None:
        waiting = broker.produce("a")
        await broker.turn()
        assert (waiting.outcome, broker.partition().high_watermark) == ("waits", 0)
        broker.syncer.let_go()
        assert (waiting.outcome, broker.partition().high_watermark) == ("reached", 1)

    tell(scenario)


def test_one_sync_serves_all_that_came_while_another_was_under_way() -> None:
    async def scenario(broker: ReplicaFixture) -> None:
        first = broker.produce("a")
        await broker.turn()
        later = [broker.produce(str(number), index=number % 3) for number in range(30)]
        await broker.turn()
        broker.syncer.let_go()
        assert first.outcome == "reached"
        assert {waiting.outcome for waiting in later} == {"waits"}
        broker.syncer.let_go()
        assert {waiting.outcome for waiting in later} == {"reached"}
        assert broker.syncer.count == 2

    tell(scenario)


def test_what_came_during_a_sync_is_not_covered_by_it() -> None:
    async def scenario(broker: ReplicaFixture) -> None:
        broker.produce("a")
        await broker.turn()
        second = broker.produce("b")
        broker.syncer.let_go()
        assert (second.outcome, broker.partition().high_watermark) == ("waits", 1)

    tell(scenario)


def test_a_batch_sent_again_waits_for_the_sync_of_the_first() -> None:
    async def scenario(broker: ReplicaFixture) -> None:
        first, again = broker.produce("a", sequence=0), broker.produce("a", sequence=0)
        await broker.turn()
        assert (first.outcome, again.outcome, broker.partition().log.log_end) == ("waits", "waits", 1)
        broker.syncer.let_go()
        assert (first.outcome, again.outcome) == ("reached", "reached")
        assert broker.produce("a", sequence=0).outcome == "at once"

    tell(scenario)


def test_with_the_policy_of_the_operating_system_no_write_waits() -> None:
    async def scenario(broker: ReplicaFixture) -> None:
        assert broker.produce("a").outcome == "at once"
        await broker.turn()
        assert broker.syncer.count == 0
        drained = asyncio.ensure_future(broker.flusher.drain())
        await broker.turn()
        broker.syncer.let_go()
        await drained
        assert broker.partition().log.flushed_end == 1

    tell(scenario, replace(LogConfig(), flush_policy=FlushPolicy.OS))


def test_what_was_kept_in_memory_goes_on_to_count_when_the_policy_changes() -> None:
    async def scenario(broker: ReplicaFixture) -> None:
        broker.produce("in memory")
        broker.partition().configure(LogConfig(flush_policy=FlushPolicy.GROUP))
        assert broker.partition().ack_end == 1
        await broker.turn()
        # The record in memory is flushed now, and not only with the next record, which waits for its flush.
        assert broker.syncer.count == 1
        waiting = broker.produce("on disk")
        broker.syncer.let_go()
        assert (waiting.outcome, broker.partition().ack_end) == ("waits", 1)
        await broker.turn()
        broker.syncer.let_go()
        assert (waiting.outcome, broker.partition().ack_end) == ("reached", 2)

    tell(scenario, LogConfig(flush_policy=FlushPolicy.OS))


def test_who_waits_for_the_disk_is_answered_when_the_policy_no_longer_asks_for_it() -> None:
    async def scenario(broker: ReplicaFixture) -> None:
        waiting = broker.produce("a")
        await broker.turn()
        broker.partition().configure(LogConfig(flush_policy=FlushPolicy.OS))
        assert (waiting.outcome, broker.partition().high_watermark) == ("reached", 1)

    tell(scenario)


def test_a_failed_sync_takes_the_directory_offline_for_good() -> None:
    async def scenario(broker: ReplicaFixture) -> None:
        waiting = broker.produce("a")
        await broker.turn()
        broker.disk.faults.fail_next_sync()
        broker.syncer.let_go()
        assert isinstance(waiting.outcome, PartitionRefused)
        assert waiting.outcome.reason is Refusal.OFFLINE
        assert broker.failed == broker.directories
        with pytest.raises(PartitionRefused) as refused:
            broker.produce("b")
        assert refused.value.reason is Refusal.OFFLINE
        with pytest.raises(PartitionRefused):
            broker.replicas.led("t", 0)
        assert broker.partition().high_watermark == 0

    tell(scenario)


def test_a_sync_that_fails_while_more_has_gathered_stops_no_other() -> None:
    async def scenario(broker: ReplicaFixture) -> None:
        first = broker.produce("a", index=0)
        await broker.turn()
        gathered = [broker.produce("b", index=0), broker.produce("c", index=1)]
        broker.disk.faults.fail_next_sync()
        broker.let_go()
        assert isinstance(first.outcome, PartitionRefused)
        assert isinstance(gathered[0].outcome, PartitionRefused)
        await broker.turn()
        broker.let_go()
        assert gathered[1].outcome == "reached"
        await broker.directories[1].flusher.drain()

    tell(scenario, directories=2)


def test_a_failed_directory_leaves_the_others_alone() -> None:
    async def scenario(broker: ReplicaFixture) -> None:
        waiting = [broker.produce("a", index=0), broker.produce("b", index=1)]
        assert broker.partition(0).directory is not broker.partition(1).directory
        broker.partition(0).directory.fail(OSError(5, "gone"))
        await broker.turn()
        broker.let_go()
        assert isinstance(waiting[0].outcome, PartitionRefused)
        assert waiting[1].outcome == "reached"
        assert broker.produce("c", index=1).outcome == "waits"

    tell(scenario, directories=2)


def test_a_full_disk_refuses_and_goes_on_when_there_is_room_again() -> None:
    async def scenario(broker: ReplicaFixture) -> None:
        broker.produce("a")
        await broker.turn()
        broker.syncer.let_go()
        broker.disk.capacity_bytes, room = 0, broker.disk.capacity_bytes
        with pytest.raises(DiskFull):
            broker.produce("x" * (200 << 10))
        assert not broker.failed
        broker.disk.capacity_bytes = room
        assert broker.produce("b").outcome == "waits"

    tell(scenario)


def test_a_waiter_of_a_deleted_partition_gets_an_error() -> None:
    async def scenario(broker: ReplicaFixture) -> None:
        waiting = broker.produce("a")
        await broker.turn()
        for partition in broker.replicas.remove("t"):
            broker.replicas.forget(partition)
        assert isinstance(waiting.outcome, PartitionRefused)
        assert waiting.outcome.reason is Refusal.DELETED
        broker.syncer.let_go()
        assert broker.replicas.get("t", 0) is None

    tell(scenario)


def test_a_waiter_of_a_partition_that_moves_to_other_brokers_looks_for_the_leader() -> None:
    async def scenario(broker: ReplicaFixture) -> None:
        waiting = broker.produce("a")
        await broker.turn()
        broker.replicas.remove_one("t", 0)
        assert isinstance(waiting.outcome, PartitionRefused)
        assert waiting.outcome.reason is Refusal.NOT_LEADER
        broker.syncer.let_go()

    tell(scenario)


class Poll:
    """A long poll that counts its wake-ups, with the acknowledgements sent before each."""

    def __init__(self, seen: Callable[[], object]) -> None:
        self.seen = seen
        self.woken: list[object] = []

    def wake(self) -> None:
        self.woken.append(self.seen())

    def fail(self, error: Exception) -> None:
        raise error


def test_long_polls_are_woken_once_and_after_the_answers() -> None:
    async def scenario(broker: ReplicaFixture) -> None:
        waiting = [broker.produce("a"), broker.produce("b"), broker.produce("c", index=1)]
        poll = Poll(lambda: [one.outcome for one in waiting])
        broker.partition(0).watchers[poll] = None
        broker.partition(1).watchers[poll] = None
        await broker.turn()
        broker.syncer.let_go()
        assert poll.woken == [["reached", "reached", "reached"]]

    tell(scenario)


def test_a_replica_whose_directory_cannot_be_opened_stands_back_alone_and_loses_nothing() -> None:
    async def scenario(broker: ReplicaFixture) -> None:
        await broker.produce_and_flush("a")
        broker.restart()
        refused, served = broker.produce("b", index=0), broker.produce("c", index=1)
        broker.disk.faults.refuse_opens(f"{TOPIC_ID}/0")
        await broker.turn()
        broker.syncer.let_go()
        assert (refused.outcome, served.outcome) == ("waits", "reached")
        assert not broker.failed
        broker.disk.faults.heal()
        await broker.synced_by_itself()
        broker.syncer.let_go()
        assert refused.outcome == "reached"
        assert broker.values_after_a_power_cut() == ["a", "b"]

    tell(scenario)


def test_new_names_that_could_not_be_synced_are_synced_before_anybody_is_answered() -> None:
    async def scenario(broker: ReplicaFixture) -> None:
        waiting = broker.produce("a")
        broker.disk.faults.refuse_opens("/topics/")
        await broker.turn()
        broker.syncer.let_go()
        assert waiting.outcome == "waits"
        broker.disk.faults.heal()
        later = broker.produce("b")
        await broker.turn()
        broker.syncer.let_go()
        assert (waiting.outcome, later.outcome) == ("reached", "reached")
        assert broker.values_after_a_power_cut() == ["a", "b"]

    tell(scenario)


def test_a_directory_that_is_gone_costs_its_own_replicas_alone() -> None:
    async def scenario(broker: ReplicaFixture) -> None:
        waiting = [broker.produce("a", index=0), broker.produce("b", index=1)]
        broker.disk.faults.refuse_opens("/data0/topics", code=errno.EIO)
        await broker.turn()
        broker.let_go()
        assert isinstance(waiting[0].outcome, PartitionRefused)
        assert waiting[1].outcome == "reached"
        assert broker.failed == broker.directories[:1]

    tell(scenario, directories=2)


def test_a_flush_whose_mark_cannot_be_written_is_noted_later() -> None:
    async def scenario(broker: ReplicaFixture) -> None:
        waiting = broker.produce("a")
        await broker.turn()
        broker.disk.faults.fail_next_write("/flushed", code=errno.ENOMEM)
        broker.syncer.let_go()
        assert not broker.failed
        await broker.synced_by_itself()
        broker.syncer.let_go()
        assert waiting.outcome == "reached"
        broker.restart()
        mark = broker.directories[0].flushed_offsets.get(TOPIC_ID, 0)
        assert mark is not None
        assert mark.end_offset == 1

    tell(scenario)


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.ENOMEM])
def test_a_sync_that_failed_is_not_tried_again_whatever_the_reason(code: int) -> None:
    async def scenario(broker: ReplicaFixture) -> None:
        waiting = broker.produce("a")
        await broker.turn()
        broker.disk.faults.fail_next_sync(code=code)
        broker.syncer.let_go()
        assert isinstance(waiting.outcome, PartitionRefused)
        assert broker.failed == broker.directories

    tell(scenario)


def test_a_hanging_disk_holds_up_no_other_directory() -> None:
    async def scenario(broker: ReplicaFixture) -> None:
        hanging, served = broker.produce("a", index=0), broker.produce("b", index=1)
        for _ in range(3):
            await broker.turn()
            broker.syncers[1].let_go()
            assert (hanging.outcome, served.outcome) == ("waits", "reached")
            served = broker.produce("c", index=1)
        broker.let_go()
        assert hanging.outcome == "reached"

    tell(scenario, directories=2)
