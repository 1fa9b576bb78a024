"""Readiness: a broker is not ready if every log directory is full or offline, and the reason names them."""

import asyncio
import errno
from collections.abc import Awaitable, Callable

import pytest
from replica_fixture import NOW_MS, ReplicaFixture
from virtual_time import run

from cordwood.cluster.broker.lifecycle import why_not_writable
from cordwood.replication.log_directory import PROBE, PROBE_BYTES
from cordwood.replication.log_maintenance import ROOM_INTERVAL_S, Intervals, LogMaintenance
from cordwood.storage.errors import DiskFull

HEADROOM_BYTES = 1000
PLENTY_BYTES = 1 << 24


def tell(story: Callable[[ReplicaFixture], Awaitable[None]], directories: int = 1) -> None:
    async def reported() -> None:
        await story(ReplicaFixture(directories=directories))

    asyncio.run(reported())


def reason(broker: ReplicaFixture) -> str | None:
    return why_not_writable(broker.directories, HEADROOM_BYTES)


def test_directories_with_room_are_nothing_to_speak_of() -> None:
    async def story(broker: ReplicaFixture) -> None:
        assert reason(broker) is None
        broker.disk.leave_free(HEADROOM_BYTES)
        assert reason(broker) is None

    tell(story)


def test_a_directory_with_less_than_its_headroom_is_full_before_it_has_refused_anything() -> None:
    async def story(broker: ReplicaFixture) -> None:
        broker.disk.leave_free(HEADROOM_BYTES - 1)
        said = reason(broker) or ""
        assert "/data0" in said
        assert "no room" in said
        broker.disk.leave_free(PLENTY_BYTES)
        assert reason(broker) is None

    tell(story)


def test_a_directory_that_has_refused_a_write_is_full_until_more_is_free() -> None:
    async def story(broker: ReplicaFixture) -> None:
        home = broker.partition().directory
        broker.disk.leave_free(2 * HEADROOM_BYTES)
        with pytest.raises(DiskFull):
            broker.produce("v" * 3 * HEADROOM_BYTES)
        assert f"{home.path} has no room" in (reason(broker) or "")
        broker.disk.leave_free(PLENTY_BYTES)
        assert reason(broker) is None
        broker.produce("v" * 3 * HEADROOM_BYTES)

    tell(story)


def test_a_directory_that_takes_a_write_again_is_full_no_more() -> None:
    async def story(broker: ReplicaFixture) -> None:
        home = broker.partition().directory
        broker.disk.leave_free(PLENTY_BYTES)
        home.write_failed(OSError(errno.ENOSPC, "room was made since"))
        assert "no room" in (reason(broker) or "")
        broker.produce("v")
        assert reason(broker) is None

    tell(story)


def test_an_idle_directory_is_full_until_there_is_room() -> None:
    async def story() -> None:
        broker = ReplicaFixture()
        home = broker.partition().directory
        broker.disk.leave_free(PROBE_BYTES - 1)
        home.write_failed(OSError(errno.ENOSPC, "a quota is not in the free space"))
        log_maintenance = LogMaintenance(broker.replicas, lambda: NOW_MS, Intervals(1e9, 1e9, 10))
        log_maintenance.start()
        await asyncio.sleep(2 * ROOM_INTERVAL_S)
        assert "no room" in (reason(broker) or "")
        broker.disk.capacity_bytes += 1
        home.free_bytes_at_refusal = home.free_bytes()
        assert "no room" in (reason(broker) or "")
        await asyncio.sleep(2 * ROOM_INTERVAL_S)
        assert reason(broker) is None
        assert not broker.disk.exists(f"{home.path}/{PROBE}")
        await log_maintenance.stop()

    run(story())


def test_a_disk_that_fails_while_room_is_looked_for_is_offline() -> None:
    async def story() -> None:
        broker = ReplicaFixture()
        home = broker.partition().directory
        home.write_failed(OSError(errno.ENOSPC, "full"))
        broker.disk.faults.refuse_opens(PROBE, code=errno.EIO)
        log_maintenance = LogMaintenance(broker.replicas, lambda: NOW_MS, Intervals(1e9, 1e9, 10))
        log_maintenance.start()
        await asyncio.sleep(2 * ROOM_INTERVAL_S)
        assert home.is_offline
        await log_maintenance.stop()

    run(story())


def test_of_several_directories_one_that_takes_writes_is_enough() -> None:
    async def story(broker: ReplicaFixture) -> None:
        broker.directories[0].fail(OSError(errno.EIO, "the platters are gone"))
        assert reason(broker) is None
        broker.directories[1].fail(OSError(errno.EIO, "so are these"))
        said = reason(broker) or ""
        assert "/data0" in said
        assert "the platters are gone" in said

    tell(story, directories=2)


def test_a_directory_that_cannot_say_how_full_it_is_takes_writes_for_all_that_is_known() -> None:
    async def story(broker: ReplicaFixture) -> None:
        broker.disk.remove_tree("/data0")
        assert reason(broker) is None

    tell(story)
