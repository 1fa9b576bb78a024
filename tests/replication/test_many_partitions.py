"""Thousands of partitions on a broker: checkpoints, expiry of waiters and scrubbing in bounded steps."""

import asyncio
import tracemalloc
from collections.abc import Callable

import pytest
from peer_fixture import FollowerFixture
from replica_fixture import NOW_MS, ReplicaFixture
from virtual_time import run

from cordwood.replication.checkpoints import (
    CHECKPOINT_AGE_S,
    CHECKPOINT_BYTES,
    CHECKPOINTS_PER_ROUND,
    SMALL_BYTES,
    SMALL_CHECKPOINTS_PER_ROUND,
)
from cordwood.replication.log_maintenance import EXPIRY_INTERVAL_S, PARTITIONS_PER_EXPIRY, Intervals, LogMaintenance
from cordwood.replication.scrubber import FILE_BYTES, PARTITIONS_PER_STEP, PASS_S, Scrubber
from cordwood.replication.tasks import RunBlocking
from cordwood.storage.config import LogConfig
from cordwood.storage.scrub import PIECE_BYTES

MANY = 3 * CHECKPOINTS_PER_ROUND
SCRUB_BYTES_PER_SECOND = 8 << 20
REPLICA_BYTES_MAX = 3200
"""Memory of a replica without records and of its simulated disk: some 2,700 bytes."""


async def run_here(function: Callable[..., object], *arguments: object) -> object:
    return function(*arguments)


def housekeeping_of(broker: ReplicaFixture) -> LogMaintenance:
    return LogMaintenance(broker.replicas, lambda: NOW_MS, Intervals(1e9, 0, 1e9))


def flushed(count: int, run_blocking: RunBlocking = run_here) -> ReplicaFixture:
    """Return a broker with `count` partitions, each with one record that is not flushed yet."""
    broker = ReplicaFixture(run_blocking=run_blocking)
    for index in range(count):
        broker.produce(index=index)
    return broker


async def let_go(broker: ReplicaFixture) -> None:
    """Flush everything that was produced."""
    draining = asyncio.ensure_future(broker.flusher.drain())
    while not draining.done():
        if broker.syncer.groups:
            broker.syncer.let_go()
        await asyncio.sleep(0)


def uncheckpointed(broker: ReplicaFixture) -> int:
    return len(broker.directories[0].uncheckpointed)


def test_an_empty_replica_takes_little_memory() -> None:
    """An object of more than 30 attributes, without slots, has a table of their names of its own: 1,300 bytes more."""

    async def scenario() -> None:
        broker = FollowerFixture()
        for index in range(100):
            broker.follow(index)
        tracemalloc.start()
        try:
            before, _ = tracemalloc.get_traced_memory()
            for index in range(100, 300):
                broker.follow(index)
            after, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert after - before < 200 * REPLICA_BYTES_MAX

    run(scenario())


@pytest.mark.parametrize(
    ("new_bytes", "per_round"),
    [(SMALL_BYTES - 1, SMALL_CHECKPOINTS_PER_ROUND), (SMALL_BYTES, CHECKPOINTS_PER_ROUND)],
)
def test_checkpoints_of_many_logs_take_turns(new_bytes: int, per_round: int) -> None:
    async def scenario() -> None:
        broker = flushed(3 * per_round)
        await let_go(broker)
        for index in range(3 * per_round):
            broker.partition(index).log.uncheckpointed_bytes = new_bytes
        log_maintenance = housekeeping_of(broker)
        log_maintenance.start()
        await asyncio.sleep(CHECKPOINT_AGE_S + 1.5)
        left = [uncheckpointed(broker)]
        for _ in range(3):
            await asyncio.sleep(1)
            left.append(uncheckpointed(broker))
        assert left == [2 * per_round, per_round, 0, 0]
        await log_maintenance.stop()

    run(scenario())


def test_a_log_that_can_wait_for_its_checkpoint_does_not_when_a_segment_is_closed() -> None:
    async def scenario() -> None:
        broker = ReplicaFixture(LogConfig(segment_bytes=1))
        for index in range(SMALL_CHECKPOINTS_PER_ROUND + 1):
            broker.produce(index=index)
            broker.produce(index=index)
        await let_go(broker)
        log_maintenance = housekeeping_of(broker)
        log_maintenance.start()
        await asyncio.sleep(1.5)
        assert uncheckpointed(broker) == 0
        await log_maintenance.stop()

    run(scenario())


def test_a_log_with_much_to_read_again_does_not_wait_for_its_turn() -> None:
    async def scenario() -> None:
        broker = flushed(MANY)
        await let_go(broker)
        last = broker.partition(MANY - 1)
        log_maintenance = housekeeping_of(broker)
        log_maintenance.start()
        await asyncio.sleep(CHECKPOINT_AGE_S + 0.5)
        last.log.uncheckpointed_bytes = CHECKPOINT_BYTES
        await asyncio.sleep(1)
        assert last not in broker.directories[0].uncheckpointed
        assert uncheckpointed(broker) > 0
        await log_maintenance.stop()

    run(scenario())


def test_a_small_log_gets_its_turn_beside_many_large_ones() -> None:
    async def scenario() -> None:
        broker = flushed(MANY)
        await let_go(broker)
        for index in range(MANY - 1):
            broker.partition(index).log.uncheckpointed_bytes = SMALL_BYTES
        log_maintenance = housekeeping_of(broker)
        log_maintenance.start()
        await asyncio.sleep(CHECKPOINT_AGE_S + 1.5)
        assert broker.partition(MANY - 1) not in broker.directories[0].uncheckpointed
        assert uncheckpointed(broker) > 0
        await log_maintenance.stop()

    run(scenario())


def test_what_a_log_has_to_read_again_outlasts_a_crash_and_a_checkpoint_that_fails() -> None:
    async def scenario() -> None:
        broker = flushed(1)
        await let_go(broker)
        new_bytes = broker.partition().log.uncheckpointed_bytes
        assert new_bytes > 0
        broker.restart()
        assert broker.partition().log.uncheckpointed_bytes == new_bytes
        # Enough for the index, and not for the checkpoint.
        broker.disk.leave_free(64)
        log_maintenance = housekeeping_of(broker)
        log_maintenance.start()
        await asyncio.sleep(CHECKPOINT_AGE_S + 1.5)
        assert broker.partition().log.uncheckpointed_bytes == new_bytes
        await log_maintenance.stop()

    run(scenario())


class Late:
    """A waiter whose deadline has passed."""

    deadline = 0.0
    spans_epochs = False

    def __init__(self) -> None:
        self.is_refused = False

    def reached(self) -> None:
        raise AssertionError("nothing is committed here")

    def failed(self, _reason: Exception) -> None:
        self.is_refused = True


def test_waiters_are_refused_wherever_they_wait() -> None:
    async def scenario() -> None:
        broker, waiters = ReplicaFixture(), [Late(), Late()]
        partitions = [broker.partition(index) for index in range(PARTITIONS_PER_EXPIRY + 1)]
        for partition, waiter in zip((partitions[0], partitions[-1]), waiters, strict=True):
            partition.leader.when_committed(1, waiter)
        log_maintenance = housekeeping_of(broker)
        log_maintenance.start()
        await asyncio.sleep(2 * EXPIRY_INTERVAL_S + 0.1)
        assert [waiter.is_refused for waiter in waiters] == [True, True]
        await log_maintenance.stop()

    run(scenario())


def test_scrubbing_many_empty_logs_lets_other_work_run() -> None:
    async def scenario() -> None:
        broker, count = ReplicaFixture(), 4 * PARTITIONS_PER_STEP
        for index in range(count):
            broker.partition(index)

        async def nothing() -> None:
            pass

        scrubber = Scrubber(broker.replicas, SCRUB_BYTES_PER_SECOND, nothing, lambda *_: None)
        scrubbing, turns = asyncio.ensure_future(scrubber.scrub()), 0
        while not scrubbing.done():
            turns += 1
            await asyncio.sleep(0)
        assert turns >= count // PARTITIONS_PER_STEP

    run(scenario())


def test_scrubbing_many_small_logs_is_paced_by_their_files_and_takes_a_thread_for_many_of_them() -> None:
    async def scenario() -> None:
        count, steps = 500, 0

        async def in_a_thread(function: Callable[..., object], *arguments: object) -> object:
            nonlocal steps
            steps += 1
            return function(*arguments)

        broker = flushed(count, in_a_thread)
        await let_go(broker)
        steps = 0

        async def nothing() -> None:
            pass

        scrubber = Scrubber(broker.replicas, SCRUB_BYTES_PER_SECOND, nothing, lambda *_: None)
        now = asyncio.get_running_loop().time
        began = now()
        await scrubber.scrub()
        # Each log has two checkpoints, an index and a segment to read. The scrubber makes up for at most 1 s of delay.
        assert now() - began > 3 * count * FILE_BYTES / SCRUB_BYTES_PER_SECOND - 1 > PASS_S / 4
        assert steps == -(-count // (PIECE_BYTES // FILE_BYTES))

    run(scenario())
