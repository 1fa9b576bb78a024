"""Recovery of logs at broker start: off the event loop, in all log directories in parallel."""

import asyncio
import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from assignments_fixture import AssignmentsFixture, image_of
from replica_fixture import NOW_MS, TOPIC_ID, ReplicaFixture
from virtual_time import run

from cordwood.chaos.sim.disk import SimulatedDisk
from cordwood.chaos.sim.values import batch_of
from cordwood.cluster.metadata.commands import BrokerId
from cordwood.cluster.metadata.image import Image, PartitionImage
from cordwood.replication.partition import TopicIdPartition
from cordwood.replication.recovery import LOGS_PER_STEP, Recovery
from cordwood.replication.refusal import PartitionRefused
from cordwood.storage.batch import check
from cordwood.storage.config import LogConfig

WAIT_S = 30.0


async def killed_with(partitions: int, directories: int = 1) -> ReplicaFixture:
    """Return a broker that restarted after a kill, with one record in each partition."""
    broker = ReplicaFixture(directories=directories)
    waiting = [broker.produce("a", index=index) for index in range(partitions)]
    await broker.turn()
    broker.let_go()
    assert {one.outcome for one in waiting} == {"reached"}
    broker.restart()
    return broker


def wanted(broker: ReplicaFixture, partitions: int) -> list[tuple[TopicIdPartition, LogConfig]]:
    return [(TopicIdPartition("t", index, TOPIC_ID), broker.config) for index in range(partitions)]


def test_what_was_recovered_is_held_without_another_look_at_the_disk() -> None:
    async def scenario() -> None:
        broker = await killed_with(40, directories=2)
        await Recovery(broker.replicas, 2).run(wanted(broker, 40), NOW_MS)
        assert list(broker.replicas) == []
        broker.disk.faults.refuse_opens("/topics/")
        assert [broker.partition(index).log.log_end for index in range(40)] == [1] * 40

    run(scenario())


def test_a_directory_that_hangs_holds_up_no_other() -> None:
    async def scenario() -> None:
        broker = await killed_with(40, directories=2)
        hanging, served = broker.directories
        answered = asyncio.Event()
        opened: list[str] = []

        async def hang(function: Callable[..., object], *arguments: object) -> object:
            await answered.wait()
            return function(*arguments)

        async def serve(function: Callable[..., object], *arguments: object) -> object:
            opened.append("some")
            return function(*arguments)

        hanging.run_blocking, served.run_blocking = hang, serve
        recovering = asyncio.ensure_future(Recovery(broker.replicas, 1).run(wanted(broker, 40), NOW_MS))
        await asyncio.sleep(1)
        assert len(opened) == -(-served.partition_count // LOGS_PER_STEP)
        assert not recovering.done()
        answered.set()
        await recovering

    run(scenario())


def test_as_many_logs_of_a_directory_are_opened_at_once_as_configured() -> None:
    async def scenario() -> None:
        count = 10 * LOGS_PER_STEP
        broker = await killed_with(count)
        at_once: list[int] = []
        running = 0

        async def beside(function: Callable[..., object], *arguments: object) -> object:
            nonlocal running
            running += 1
            at_once.append(running)
            await asyncio.sleep(1)
            running -= 1
            return function(*arguments)

        broker.directories[0].run_blocking = beside
        await Recovery(broker.replicas, 3).run(wanted(broker, count), NOW_MS)
        assert max(at_once) == 3

    run(scenario())


def test_a_log_that_cannot_be_opened_is_offline_alone() -> None:
    async def scenario() -> None:
        broker = await killed_with(3)
        broker.disk.faults.refuse_opens(f"{TOPIC_ID}/1/")
        await Recovery(broker.replicas, 2).run(wanted(broker, 3), NOW_MS)
        broker.disk.faults.heal()
        assert broker.partition(0).log.log_end == broker.partition(2).log.log_end == 1
        with pytest.raises(PartitionRefused):
            broker.partition(1)
        assert broker.replicas.not_opened() == [("t", 1)]
        assert not broker.failed
        # The next access opens the log.
        assert broker.partition(1).log.log_end == 1

    run(scenario())


def test_a_start_that_is_given_up_leaves_no_thread_at_work() -> None:
    """SIGTERM cancels a start like this; another process may open the log directories next."""
    began, may_go_on = threading.Event(), threading.Event()
    at_work: set[int] = set()

    def held(function: Callable[..., object], *arguments: object) -> object:
        at_work.add(threading.get_ident())
        began.set()
        assert may_go_on.wait(WAIT_S)
        try:
            return function(*arguments)
        finally:
            at_work.discard(threading.get_ident())

    async def scenario() -> None:
        count = 4 * LOGS_PER_STEP
        broker = await killed_with(count)
        loop, executor = asyncio.get_running_loop(), ThreadPoolExecutor(2)

        async def beside(function: Callable[..., object], *arguments: object) -> object:
            return await loop.run_in_executor(executor, held, function, *arguments)

        broker.directories[0].run_blocking = beside
        recovering = asyncio.ensure_future(Recovery(broker.replicas, 2).run(wanted(broker, count), NOW_MS))
        await loop.run_in_executor(None, began.wait, WAIT_S)
        handles = broker.disk.open_count
        recovering.cancel()
        for _ in range(10):
            await asyncio.sleep(0)
        assert at_work
        assert not recovering.done()
        may_go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await recovering
        assert not at_work
        # Recovery opened no further log.
        assert broker.disk.open_count == handles
        executor.shutdown()

    asyncio.run(scenario())


class Restarted(AssignmentsFixture):
    """Broker 1 after a restart: one record in topic "t", no open log, and metadata changes during recovery."""

    @classmethod
    def after_a_kill(cls) -> "Restarted":
        disk = SimulatedDisk(random.Random(1))
        before = cls(disk)
        before.follow("t")
        partition = before.replicas.get("t", 0)
        assert partition is not None
        batch = batch_of("a")
        partition.log.append(batch, check(batch), 0, NOW_MS)
        partition.close()
        disk.kill()
        return cls(disk)

    async def recover(self, image: Image, *meanwhile: Image) -> Image:
        """Recover the logs of `image` while the metadata changes. Return the newest image."""
        is_open = asyncio.Event()

        async def beside(function: Callable[..., object], *arguments: object) -> object:
            result = function(*arguments)
            await is_open.wait()
            return result

        for directory in self.directories:
            directory.run_blocking = beside
        recovering = asyncio.ensure_future(Recovery(self.replicas, 2).run(self.assignments.assigned(image), NOW_MS))
        await asyncio.sleep(0)
        newest = (image, *meanwhile)[-1]
        is_open.set()
        await recovering
        return newest


def moved(image: Image, *replicas: int, epoch: int) -> Image:
    """Return the image with topic "t" on these brokers."""
    before = image.topics_by_name["t"]
    members = tuple(map(BrokerId, replicas))
    after = replace(before, partitions=(PartitionImage(members, members, members[0], epoch, epoch),))
    return replace(image, topics_by_name={"t": after}, topics_by_id={after.id: after})


def test_a_partition_that_was_moved_away_and_back_as_it_was_opened_goes_on_with_what_it_had() -> None:
    async def scenario() -> None:
        broker, image = Restarted.after_a_kill(), image_of("t")
        newest = await broker.recover(image, moved(image, 2, epoch=1), moved(image, 1, 2, epoch=2))
        broker.assignments.begin(newest)
        partition = broker.replicas.get("t", 0)
        assert partition is not None
        assert (partition.log.log_end, partition.leader_epoch, partition.is_leader) == (1, 2, True)
        await asyncio.sleep(1)
        assert any(path.endswith(".log") for path in broker.disk.files())

    run(scenario())


@pytest.mark.parametrize("is_deleted", [False, True], ids=["moved", "deleted"])
def test_a_partition_that_went_away_as_it_was_opened_is_closed_and_removed(is_deleted: bool) -> None:
    async def scenario() -> None:
        broker, image = Restarted.after_a_kill(), image_of("t")
        handles = broker.disk.open_count
        newest = await broker.recover(image, image_of() if is_deleted else moved(image, 2, epoch=1))
        assert broker.disk.open_count > handles
        broker.assignments.begin(newest)
        assert broker.replicas.get("t", 0) is None
        await asyncio.sleep(1)
        assert broker.disk.open_count == handles
        assert not any("/topics/" in path for path in broker.disk.files())

    run(scenario())
