"""The log cleaner over real logs on a simulated disk: what it compacts, when it stops, and what its failures cost."""

import asyncio
import errno
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from cleaner_fixture import COMPACTED, KEYS, UNLIMITED, CleanerFixture
from replica_fixture import ME
from virtual_time import run

from cordwood.replication.assignment import Assignment
from cordwood.replication.file_removal import REMOVE_AGAIN_S
from cordwood.replication.log_cleaner import COORDINATED_ROLL_BYTES
from cordwood.replication.log_directory import STAGING
from cordwood.storage.batch import split
from cordwood.storage.config import LogConfig
from cordwood.storage.pins import NOT_PINNED, Pin
from cordwood.storage.records import decode


def tell(story: Callable[[CleanerFixture], Awaitable[None]], **changes: Any) -> None:
    async def scenario() -> None:
        await story(CleanerFixture(**changes))

    run(scenario())


def test_only_the_newest_value_of_each_key_is_left() -> None:
    async def story(broker: CleanerFixture) -> None:
        await broker.fill()
        before, end = broker.values(), broker.partition().log.log_end
        assert await broker.cleaner.clean_due() > 0
        assert broker.values() == before
        active = broker.partition().log.segments[-1]
        assert len(broker.contents()) <= len(KEYS) + (active.end_offset - active.base_offset) + 1
        assert broker.partition().log.log_end == end
        assert broker.partition().log.size < 2 * COMPACTED.segment_bytes + 61 * len(broker.partition().log.segments)
        assert broker.partition().log.clean_end == active.base_offset
        assert await broker.cleaner.clean_due() == 0, "there is nothing dirty any more"

    tell(story)


def test_a_compacted_log_is_read_from_any_offset_on_and_takes_more() -> None:
    async def story(broker: CleanerFixture) -> None:
        await broker.fill()
        await broker.cleaner.clean_due()
        log = broker.partition().log
        for offset in range(log.log_end):
            data = log.read(offset, 1, log.log_end)
            assert data
            last = list(split(data))[-1]
            assert [record.offset for record in decode(last)][-1:] >= [offset] or not list(decode(last))
        await broker.put(("a", "more"))
        assert broker.values()["a"] == "more"

    tell(story)


def test_what_is_replaced_goes_after_the_delay_and_a_restart_finds_what_was_compacted() -> None:
    async def story(broker: CleanerFixture) -> None:
        await broker.fill()
        before, files = broker.contents(), broker.files()
        await broker.cleaner.clean_due()
        after, clean_end = broker.contents(), broker.partition().log.clean_end
        assert len(after) < len(before)
        await asyncio.sleep(1)
        assert len(broker.files()) == len(broker.partition().log.segments)
        assert not set(files[:-1]) & set(broker.files())
        assert not [path for path in broker.disk.files() if f"/{STAGING}/" in path]
        await broker.log_maintenance.checkpoints.write(broker.partition())
        broker.restart()
        assert broker.contents() == after
        broker.start_cleaner()
        assert await broker.cleaner.clean_due() == 0
        assert broker.partition().log.clean_end == clean_end

    tell(story)


def test_a_tombstone_goes_after_its_time() -> None:
    async def story(broker: CleanerFixture) -> None:
        await broker.fill(3)
        await broker.put(("a", None))
        await broker.fill(keys=KEYS[1:])
        await broker.cleaner.clean_due()
        assert ("a", None) in broker.contents()
        broker.now_ms += COMPACTED.delete_retention_ms + 1
        await broker.fill(keys=KEYS[1:])
        await broker.cleaner.clean_due()
        assert "a" not in broker.values()

    tell(story)


def test_a_log_that_is_not_due_is_left_alone() -> None:
    async def story(broker: CleanerFixture) -> None:
        await broker.fill()
        assert await broker.cleaner.clean_due() == 1
        for config in (
            LogConfig(segment_bytes=400, compacted=False),
            LogConfig(segment_bytes=400, compacted=True, min_compaction_lag_ms=1),
        ):
            broker.partition().configure(config)
            await broker.fill(2)
            assert await broker.cleaner.clean_due() == 0

    tell(story)


def test_what_follows_a_cut_is_compacted_and_the_cut_is_left_as_it_is() -> None:
    async def story(broker: CleanerFixture) -> None:
        await broker.fill()
        log = broker.partition().log
        end = log.segments[4].base_offset + 1
        log.pinned = Pin(0, end)
        cut = broker.below(end)
        await broker.put(("a", None))
        await broker.fill(keys=("b", "c"))
        before = broker.values()
        for _ in range(3):
            await broker.fill(keys=("b", "c"))
            broker.now_ms += 1000
            assert await broker.cleaner.clean_due() > 0
        assert broker.below(end) == cut
        assert (log.clean_end, log.segments[4].generation, log.segments[5].generation > 0) == (0, 0, True)
        assert broker.values().keys() == before.keys()
        assert broker.contents().count(("a", None)) == 1, "the tombstone deletes a record of the cut"
        assert len(broker.contents()) < len(cut) + 20
        log.pinned = NOT_PINNED
        for _ in range(3):
            await broker.fill(keys=("b", "c"))
            broker.now_ms += 1000
            assert await broker.cleaner.clean_due() > 0
        assert "a" not in broker.values()
        assert len(broker.contents()) < len(cut)

    tell(story, config=replace(COMPACTED, delete_retention_ms=1))


def test_a_log_that_a_cut_pins_whole_is_left_alone_also_in_the_middle_of_a_round() -> None:
    async def story(broker: CleanerFixture) -> None:
        await broker.fill()
        before, log = broker.contents(), broker.partition().log
        log.pinned = Pin(0, log.log_end)
        assert await broker.cleaner.clean_due() == 0
        log.pinned = NOT_PINNED

        def pin(name: str) -> None:
            if name == "_next_part":
                log.pinned = Pin(0, log.log_end)

        broker.at_step = pin
        assert await broker.cleaner.clean_due() == 0
        assert broker.contents() == before
        assert not [path for path in broker.disk.files() if f"/{STAGING}/" in path]

    tell(story)


def test_no_segment_is_replaced_while_a_truncation_is_pending() -> None:
    async def story(broker: CleanerFixture) -> None:
        await broker.fill()
        before, partition = broker.contents(), broker.partition()

        def lock(name: str) -> None:
            if name == "_next_part":
                partition.is_checkpoint_locked = True

        broker.at_step = lock
        cleaning = asyncio.ensure_future(broker.cleaner.clean_due())
        await asyncio.sleep(5)
        assert broker.contents() == before
        broker.at_step = lambda _name: None
        partition.is_checkpoint_locked = False
        assert await cleaning > 0
        assert len(broker.contents()) < len(before)

    tell(story)


def test_a_new_role_ends_a_round_and_the_next_one_is_complete() -> None:
    async def story(broker: CleanerFixture) -> None:
        await broker.fill()
        before, partition = broker.contents(), broker.partition()

        def elect(name: str) -> None:
            if name == "_next_part":
                epoch = partition.leader_epoch + 1
                partition.assigned(Assignment(ME, epoch, epoch, (ME,), frozenset({ME}), 1))

        broker.at_step = elect
        assert await broker.cleaner.clean_due() == 0
        assert broker.contents() == before
        broker.at_step = lambda _name: None
        assert await broker.cleaner.clean_due() == 0, "it waits for the backoff"
        await asyncio.sleep(UNLIMITED.backoff_s)
        assert await broker.cleaner.clean_due() > 0
        assert len(broker.contents()) < len(before)

    tell(story)


@pytest.mark.parametrize("step", range(12))
def test_a_lack_of_resources_at_any_step_costs_a_pause(step: int) -> None:
    async def story(broker: CleanerFixture) -> None:
        await broker.fill()
        before, left = broker.values(), step

        def fail(_name: str) -> None:
            nonlocal left
            left -= 1
            if left == -1:
                raise OSError(errno.EMFILE, "too many open files")

        broker.at_step = fail
        await broker.cleaner.clean_due()
        assert broker.values() == before
        assert not broker.failed
        await broker.put(("a", "more"))
        await asyncio.sleep(UNLIMITED.backoff_s)
        await broker.cleaner.clean_due()
        assert len(broker.contents()) < 20
        assert broker.values() == {**before, "a": "more"}
        broker.restart()
        assert broker.values() == {**before, "a": "more"}

    tell(story)


def test_what_is_replaced_stays_until_a_checkpoint_has_committed_that() -> None:
    async def story(broker: CleanerFixture) -> None:
        await broker.fill()
        before, files, checkpoints = broker.contents(), broker.files(), 0

        def fail(name: str) -> None:
            nonlocal checkpoints
            checkpoints += name == "write_checkpoint"
            if name == "write_checkpoint" and checkpoints > 1:
                raise OSError(errno.EMFILE, "too many open files")

        broker.at_step = fail
        await broker.cleaner.clean_due()
        after = broker.contents()
        assert len(after) < len(before)
        await asyncio.sleep(REMOVE_AGAIN_S + 1)
        assert set(broker.files()) >= set(files)
        broker.at_step = lambda _name: None
        await asyncio.sleep(REMOVE_AGAIN_S)
        assert broker.files() == [segment.path for segment in broker.partition().log.segments]
        broker.restart()
        assert broker.contents() == after

    tell(story)


def test_an_unexpected_error_ends_the_compaction_of_this_log_and_of_no_other() -> None:
    async def story(broker: CleanerFixture) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)
        broker.partition(0)
        await broker.fill()

        def fail(name: str) -> None:
            if name == "_next_part":
                raise ZeroDivisionError

        broker.at_step = fail
        assert await broker.cleaner.clean_due() == 0
        broker.at_step = lambda _name: None
        await asyncio.sleep(UNLIMITED.backoff_s)
        assert await broker.cleaner.clean_due() == 0
        assert (broker.cleaner.measures.failures, broker.cleaner.measures.uncleanable) == (1, 1)
        assert broker.partition().is_leader, "the replica is served as before"

    tell(story)


def test_a_log_whose_beginning_only_the_archive_has_keeps_its_tombstones() -> None:
    async def story(broker: CleanerFixture) -> None:
        await broker.fill()
        await broker.put(("a", None))
        await broker.fill(keys=("b", "c"))
        log = broker.partition().log
        log.log_start -= 1
        for _ in range(3):
            broker.now_ms += 1000
            await broker.put(*(("b", f"{number}") for number in range(20)))
            assert await broker.cleaner.clean_due() > 0
            assert ("a", None) in broker.contents()
        log.log_start += 1
        broker.now_ms += 1000
        await broker.put(*(("b", f"{number}") for number in range(20)))
        assert await broker.cleaner.clean_due() > 0
        assert ("a", None) not in broker.contents()

    tell(story, config=replace(COMPACTED, delete_retention_ms=1))


def parts_of_a_round(**changes: Any) -> int:
    """Return how often a round of the same log is interrupted."""
    parts: list[str] = []

    async def story(broker: CleanerFixture) -> None:
        broker.partition(0)
        await broker.fill()
        broker.at_step = lambda name: parts.append(name) if name == "_next_part" else None
        assert await broker.cleaner.clean_due() == 1

    tell(story, **changes)
    return len(parts)


def test_a_part_of_a_round_is_large_but_no_more_than_a_low_rate_allows() -> None:
    assert parts_of_a_round(limits=UNLIMITED._replace(bytes_per_second=100.0)) > 2 * parts_of_a_round()


def test_the_rate_is_kept() -> None:
    async def story(broker: CleanerFixture) -> None:
        await broker.fill()
        now = asyncio.get_running_loop().time
        began = now()
        await broker.cleaner.clean_due()
        measures = broker.cleaner.measures
        assert now() - began >= (measures.bytes_read + measures.bytes_written) / 100 - 1

    tell(story, limits=UNLIMITED._replace(bytes_per_second=100.0))


def test_a_record_that_must_be_compacted_does_not_wait_for_the_next_one() -> None:
    async def story(broker: CleanerFixture) -> None:
        await broker.put(("a", "1"), ("a", "2"))
        assert await broker.cleaner.clean_due() == 0
        broker.now_ms += 1001
        assert await broker.cleaner.clean_due() == 1
        assert broker.contents() == [("a", "2")]

    tell(story, config=LogConfig(compacted=True, max_compaction_lag_ms=1000, min_cleanable_dirty_ratio=1.0))


def test_the_active_segment_of_a_coordinated_topic_is_sealed_by_its_size() -> None:
    async def story(broker: CleanerFixture) -> None:
        value = "v" * 1000
        for _ in range(1 + COORDINATED_ROLL_BYTES // 1000):
            await broker.put(("a", value), topic="internal")
        assert await broker.cleaner.clean_due() == 1
        assert broker.contents("internal") == [("a", value)]

    tell(story, config=LogConfig(compacted=True))


def test_the_service_compacts_by_itself_and_stops() -> None:
    async def story(broker: CleanerFixture) -> None:
        await broker.fill()
        before = broker.values()
        broker.cleaner.start()
        while broker.cleaner.measures.dirty_bytes or not broker.cleaner.measures.rounds:
            await asyncio.sleep(1)
        await broker.cleaner.close()
        assert broker.values() == before
        assert len(broker.contents()) < 20
        assert broker.cleaner.measures.bytes_read > broker.cleaner.measures.bytes_written > 0
        assert broker.cleaner.measures.records_read > broker.cleaner.measures.records_kept > 0

    tell(story)


def test_without_threads_nothing_is_compacted() -> None:
    async def story(broker: CleanerFixture) -> None:
        await broker.fill()
        before = broker.contents()
        broker.cleaner.start()
        await asyncio.sleep(100)
        assert broker.contents() == before
        await broker.cleaner.close()

    tell(story, limits=UNLIMITED._replace(threads=0))


def test_limits_that_change_take_effect_after_a_pause() -> None:
    """Threads, backoff and rate are those of the moment, as dynamic configs of Kafka's log cleaner are."""

    async def story(broker: CleanerFixture) -> None:
        backoff_s = UNLIMITED.backoff_s
        await broker.fill()
        broker.cleaner.start()
        await asyncio.sleep(backoff_s)
        assert not broker.cleaner.measures.rounds
        broker.limits = UNLIMITED._replace(threads=2, bytes_per_second=100.0)
        began = asyncio.get_running_loop().time()
        await asyncio.sleep(backoff_s)
        assert not broker.cleaner.measures.rounds
        while not broker.cleaner.measures.rounds:
            await asyncio.sleep(1)
        measures = broker.cleaner.measures
        assert asyncio.get_running_loop().time() - began >= (measures.bytes_read + measures.bytes_written) / 100 - 1
        broker.limits = UNLIMITED._replace(threads=0)
        await asyncio.sleep(backoff_s)
        await broker.fill()
        rounds = measures.rounds
        await asyncio.sleep(10 * backoff_s)
        assert measures.rounds == rounds
        await broker.cleaner.close()

    tell(story, limits=UNLIMITED._replace(threads=0))
