"""A hanging disk: checkpoints, retention, truncation and scrubbing go on in the other log directories."""

import asyncio
from collections.abc import Callable

from replica_fixture import NOW_MS, ReplicaFixture, housekeeping_of
from virtual_time import run

from cordwood.replication.partition import Partition
from cordwood.replication.scrubber import Scrubber
from cordwood.replication.truncation import Truncations, truncation_to
from cordwood.storage.config import LogConfig
from cordwood.storage.errors import DamagedLog


async def hang(_function: Callable[..., object], *_arguments: object) -> object:
    return await asyncio.get_running_loop().create_future()


async def with_a_hanging_disk(config: LogConfig | None = None) -> tuple[ReplicaFixture, Partition, Partition]:
    """Return a broker and two partitions with three flushed records each: the disk of the first hangs from now on."""
    broker = ReplicaFixture(config, directories=2)
    for value in ("a", "b", "c"):
        for index in (0, 1):
            broker.produce(value, index=index)
        await broker.turn()
        broker.let_go()
    hanging, served = broker.partition(0), broker.partition(1)
    assert hanging.directory is not served.directory
    hanging.directory.run_blocking = hang
    return broker, hanging, served


def test_checkpoints_go_on() -> None:
    async def scenario() -> None:
        broker, hanging, served = await with_a_hanging_disk()
        log_maintenance = housekeeping_of(broker)
        for partition in (hanging, served):
            log_maintenance.checkpoints.write_soon(partition)
        await asyncio.sleep(1)
        assert (hanging.log.recovery_point, served.log.recovery_point) == (0, 3)

    run(scenario())


def test_retention_goes_on() -> None:
    async def scenario() -> None:
        config = LogConfig(segment_bytes=100, retention_ms=1000)
        broker, hanging, served = await with_a_hanging_disk(config)
        log_maintenance = housekeeping_of(broker, lambda: NOW_MS + 10**9)
        log_maintenance.start()
        await asyncio.sleep(10)
        assert served.log.log_start == 3
        assert not any("/data1/topics" in path and path.endswith("0.log") for path in broker.disk.files())
        assert hanging.log.log_end == 3

    run(scenario())


def test_cuts_go_on() -> None:
    async def scenario() -> None:
        broker, hanging, served = await with_a_hanging_disk()
        truncations = Truncations()
        waiting = [
            asyncio.ensure_future(truncations.truncate(truncation_to(partition, 1, lambda: True)))
            for partition in (hanging, served)
        ]
        await asyncio.sleep(1)
        broker.let_go()
        await asyncio.sleep(1)
        assert [one.done() for one in waiting] == [False, True]
        assert (hanging.log.log_end, served.log.log_end) == (3, 1)

    run(scenario())


def test_scrubbing_goes_on() -> None:
    async def scenario() -> None:
        broker, _, served = await with_a_hanging_disk()
        found: list[DamagedLog] = []
        served.report_damage = found.append  # type: ignore[method-assign]

        async def nothing() -> None:
            pass

        scrubber = Scrubber(broker.replicas, 1 << 20, nothing, lambda *_: None)
        scrubber.start()
        path = served.log.segments[0].path
        broker.disk.flip(path, 100, 3)
        await asyncio.sleep(60)
        assert {damage.path for damage in found} == {path}
        await scrubber.close()

    run(scenario())
