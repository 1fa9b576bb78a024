"""A broken invariant fails one partition: group commits, clients and waiters of other partitions go on."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import pytest
from replica_fixture import NOW_MS, ReplicaFixture, Waiting
from virtual_time import run

from cordwood.chaos.sim.values import batch_of
from cordwood.replication.partition import Partition
from cordwood.replication.refusal import PartitionRefused, Refusal
from cordwood.replication.waiters import Waiter
from cordwood.storage.config import FlushPolicy, LogConfig

BEYOND = 1 << 40


def break_view(partition: Partition) -> None:
    """Set the leader's own flushed end past its log end, which breaks rule 1."""
    partition.leader.view.own_end = BEYOND


def break_watermark(partition: Partition) -> None:
    """Set the high watermark past the log end, which breaks promise 2."""
    partition.high_watermark = BEYOND


def break_group(partition: Partition) -> None:
    """Mark a group commit of the log as under way, so that the next one is a second at the same time."""
    partition.log.is_flushing = True


@dataclass
class Failures:
    """Errors that the event loop's exception handler received."""

    errors: list[BaseException] = field(default_factory=list)

    def __call__(self, _: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        error = context.get("exception")
        assert isinstance(error, BaseException)
        self.errors.append(error)


def tell(scenario: Callable[[ReplicaFixture, Failures], Awaitable[None]], config: LogConfig | None = None) -> None:
    async def reported() -> None:
        failures = Failures()
        asyncio.get_running_loop().set_exception_handler(failures)
        await scenario(ReplicaFixture(config), failures)

    run(reported())


@pytest.mark.parametrize("break_it", [break_view, break_watermark, break_group])
def test_the_neighbours_in_a_group_commit_are_acknowledged(break_it: Callable[[Partition], None]) -> None:
    async def scenario(broker: ReplicaFixture, failures: Failures) -> None:
        waiting = [broker.produce("a", index=index) for index in range(3)]
        broken = broker.partition(1)
        break_it(broken)
        await broker.turn()
        broker.syncer.let_go()
        assert [waiter.outcome for waiter in (waiting[0], waiting[2])] == ["reached", "reached"]
        assert isinstance(waiting[1].outcome, PartitionRefused)
        assert waiting[1].outcome.reason is Refusal.OFFLINE
        assert (broken.is_offline, broker.directories[0].is_offline) == (True, False)
        assert len(failures.errors) == 1
        # The next group commit acknowledges the neighbours too.
        again = broker.produce("b", index=0)
        await broker.turn()
        broker.syncer.let_go()
        assert again.outcome == "reached"

    tell(scenario)


def test_a_client_of_the_broken_partition_is_refused() -> None:
    async def scenario(broker: ReplicaFixture, failures: Failures) -> None:
        partition = broker.partition()
        break_view(partition)
        with pytest.raises(PartitionRefused) as refused:
            partition.append(batch_of("a"), NOW_MS)
        assert refused.value.reason is Refusal.OFFLINE
        assert len(failures.errors) == 1
        with pytest.raises(PartitionRefused):
            broker.replicas.led("t", 0)

    tell(scenario, LogConfig(flush_policy=FlushPolicy.OS))


class Broken(Waiting):
    """A waiter whose callbacks raise."""

    def reached(self) -> None:
        raise KeyError("a waiter's own")

    def failed(self, reason: Exception) -> None:
        raise KeyError("a waiter's own") from reason

    def wake(self) -> None:
        raise KeyError("a watcher's own")

    def fail(self, error: Exception) -> None:
        self.outcome = error


def await_commit(broker: ReplicaFixture, first: Waiter) -> tuple[Partition, Waiting]:
    """Append a record for which `first` and another waiter wait. Return the partition and the other."""
    partition, after = broker.partition(), Waiting()
    broker.produce("a")
    for waiter in (first, after):
        assert partition.leader.when_committed(1, waiter)
    return partition, after


def test_a_waiter_that_fails_takes_no_other_with_it() -> None:
    async def scenario(broker: ReplicaFixture, failures: Failures) -> None:
        partition, after = await_commit(broker, Broken())
        await broker.turn()
        broker.syncer.let_go()
        assert (after.outcome, partition.is_offline) == ("reached", False)
        assert [type(error) for error in failures.errors] == [KeyError]

    tell(scenario)


def test_waiters_that_fail_when_they_are_refused_take_no_other_with_them() -> None:
    async def scenario(broker: ReplicaFixture, failures: Failures) -> None:
        partition, after = await_commit(broker, Broken())
        partition.deleted()
        assert isinstance(after.outcome, PartitionRefused)
        assert len(failures.errors) == 1

    tell(scenario)


def test_a_watcher_that_fails_takes_no_other_with_it() -> None:
    async def scenario(broker: ReplicaFixture, _failures: Failures) -> None:
        woken: list[str] = []

        class Watcher(Broken):
            def wake(self) -> None:
                woken.append("woken")

        broken = Broken()
        for watcher in (broken, Watcher()):
            broker.end_of_tick.due(watcher)
            broker.end_of_tick.answered(watcher)
        await broker.turn()
        assert woken == ["woken", "woken"]
        assert isinstance(broken.outcome, KeyError), "it was asked to end its work"

    tell(scenario)


def test_what_was_taken_for_a_broken_partition_is_of_no_more_use() -> None:
    """A sync that ends after its partition has failed changes nothing."""

    async def scenario(broker: ReplicaFixture, failures: Failures) -> None:
        waiting = broker.produce("a")
        await broker.turn()
        broker.partition().fail(AssertionError("an invariant"))
        broker.syncer.let_go()
        assert isinstance(waiting.outcome, PartitionRefused)
        assert len(failures.errors) == 1

    tell(scenario)
