"""A lack of descriptors or memory: the operation is refused and tried again, and the log directory stays online."""

import asyncio
import errno
from collections.abc import Awaitable, Callable

import pytest
from replica_fixture import NOW_MS, TOPIC_ID, ReplicaFixture, housekeeping_of
from structlog.testing import capture_logs

from cordwood.replication.refusal import PartitionRefused, Refusal
from cordwood.replication.scrubber import Scrubber
from cordwood.storage import checkpoint, state
from cordwood.storage.config import LogConfig
from cordwood.storage.errors import OutOfResources

Story = Callable[[ReplicaFixture], Awaitable[None]]
LARGE = "x" * 4000
"""Three of these values fill a segment."""


def tell(scenario: Story, config: LogConfig | None = None, directories: int = 1) -> None:
    async def reported() -> None:
        broker = ReplicaFixture(config, directories)
        await scenario(broker)
        assert not broker.failed

    asyncio.run(reported())


def test_a_log_that_cannot_roll_refuses_and_goes_on_later() -> None:
    async def scenario(broker: ReplicaFixture) -> None:
        await broker.produce_and_flush(LARGE, LARGE)
        broker.disk.faults.refuse_opens()
        for _ in range(2):
            with pytest.raises(OutOfResources):
                broker.produce(LARGE)
        broker.disk.faults.heal()
        await broker.produce_and_flush(LARGE, "small")
        log = broker.partition().log
        assert [segment.base_offset for segment in log.segments] == [0, 2]
        assert broker.values_after_a_power_cut() == [LARGE, LARGE, LARGE, "small"]

    tell(scenario)


@pytest.mark.parametrize("part", [".index", ".log"])
def test_a_roll_that_fails_half_way_leaves_no_append_in_a_sealed_segment(part: str) -> None:
    async def scenario(broker: ReplicaFixture) -> None:
        await broker.produce_and_flush(LARGE, LARGE)
        broker.disk.faults.refuse_opens(part)
        with pytest.raises(OutOfResources):
            broker.produce(LARGE)
        broker.disk.faults.heal()
        # The old segment has room for this record, but may be sealed by now.
        await broker.produce_and_flush("small")
        *sealed, active = broker.partition().log.segments
        assert not active.is_sealed
        assert all(segment.is_sealed and segment.end_offset == 2 for segment in sealed)
        assert broker.values_after_a_power_cut() == [LARGE, LARGE, "small"]

    tell(scenario)


def test_a_write_without_memory_is_refused_and_the_next_one_taken() -> None:
    async def scenario(broker: ReplicaFixture) -> None:
        await broker.produce_and_flush("a")
        broker.disk.faults.fail_next_write(".log", after=20, code=errno.ENOMEM)
        with pytest.raises(OutOfResources):
            broker.produce("b")
        await broker.produce_and_flush("c")
        assert broker.values_after_a_power_cut() == ["a", "c"]

    tell(scenario)


def test_a_partition_that_cannot_be_opened_is_opened_later() -> None:
    async def scenario(broker: ReplicaFixture) -> None:
        await broker.produce_and_flush("a")
        broker.restart()
        broker.disk.faults.refuse_opens("/topics/")
        with pytest.raises(PartitionRefused) as refused:
            broker.partition()
        assert refused.value.reason is Refusal.OFFLINE
        assert broker.replicas.not_opened() == [("t", 0)]
        broker.disk.faults.heal()
        assert broker.partition().log.log_end == 1

    tell(scenario)


@pytest.mark.parametrize("part", [".index", "recovery", "leader-epochs"])
def test_a_checkpoint_without_descriptors_is_written_later(part: str) -> None:
    async def scenario(broker: ReplicaFixture) -> None:
        log_maintenance = housekeeping_of(broker)
        await broker.produce_and_flush("a")
        partition = broker.partition()
        broker.disk.faults.refuse_opens(part)
        with pytest.raises(OutOfResources):
            await log_maintenance.checkpoints.write(partition)
        assert partition in partition.directory.uncheckpointed
        assert partition.log.recovery_point == 0
        broker.disk.faults.heal()
        await log_maintenance.checkpoints.write(partition)
        assert partition not in partition.directory.uncheckpointed
        broker.restart()
        assert broker.partition().log.recovery_point == 1
        assert broker.partition().log.epochs.latest == 0

    tell(scenario)


def test_retention_without_descriptors_is_done_later() -> None:
    async def scenario(broker: ReplicaFixture) -> None:
        log_maintenance = housekeeping_of(broker, lambda: NOW_MS + 10**9)
        await broker.produce_and_flush(LARGE, LARGE)
        broker.disk.faults.refuse_opens()
        await log_maintenance.retain(broker.directories[0])
        assert broker.partition().log.log_start == 0
        broker.disk.faults.heal()
        await log_maintenance.retain(broker.directories[0])
        assert broker.partition().log.log_start == 2

    tell(scenario, LogConfig(segment_bytes=10_000, retention_ms=1000))


@pytest.mark.parametrize(("retention_ms", "is_read"), [(-1, False), (1000, True)])
def test_retention_reads_indexes_only_for_an_age_that_no_manifest_has(retention_ms: int, is_read: bool) -> None:
    async def scenario(broker: ReplicaFixture) -> None:
        await broker.produce_and_flush(LARGE, LARGE, LARGE, LARGE, LARGE)
        await housekeeping_of(broker).checkpoints.write(broker.partition())
        log = broker.partition().log
        kept, path = log.state(), f"{log.directory}/{state.RECOVERY_FILE}"
        head = state.HEAD.pack(kept.log_start, kept.recovery_point)
        checkpoint.write(broker.disk, path, head, version=1)
        broker.restart()
        log = broker.partition().log
        assert [segment.is_timed for segment in log.segments[:2]] == [False, False]
        threads: list[object] = []
        beside = broker.partition().directory.run_blocking

        def noted(function: Callable[..., object], *arguments: object) -> Awaitable[object]:
            threads.append(getattr(function, "__name__", ""))
            return beside(function, *arguments)

        broker.partition().directory.run_blocking = noted
        await housekeeping_of(broker).retain(broker.directories[0])
        assert threads.count("load_max_timestamp") == (2 if is_read else 0)
        assert [segment.is_timed for segment in log.segments[:2]] == [is_read, is_read]

    tell(scenario, LogConfig(segment_bytes=10_000, retention_ms=retention_ms))


def test_a_log_that_cannot_be_scrubbed_now_holds_up_no_other() -> None:
    async def scenario(broker: ReplicaFixture) -> None:
        waiting = [broker.produce("a", index=index) for index in range(3)]
        await broker.turn()
        broker.syncer.let_go()
        assert {one.outcome for one in waiting} == {"reached"}
        rest: list[str] = []

        async def scrub_the_rest() -> None:
            rest.append("scrubbed")

        scrubber = Scrubber(broker.replicas, 1 << 30, scrub_the_rest, lambda *_: None)
        broker.disk.faults.refuse_opens(f"{TOPIC_ID}/1/")
        with capture_logs() as lines:
            await scrubber.scrub()
        assert [(line["event"], line["partition"]) for line in lines] == [("scrub.skipped", 1)]
        assert rest == ["scrubbed"]

    tell(scenario)
