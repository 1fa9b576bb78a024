"""The audit log of a broker: what is written, what is counted together, and what happens without room."""

import asyncio
import json
import random
from collections.abc import Callable, Coroutine
from typing import Any

from quorum_fixture import run_here
from structlog.testing import capture_logs
from virtual_time import VirtualTimeLoop

from cordwood.chaos.sim.disk import SimulatedDisk
from cordwood.cluster.security.audit import log as audit_log
from cordwood.cluster.security.audit.event import AuditEvent
from cordwood.cluster.security.audit.files import AuditFiles, verify
from cordwood.cluster.security.audit.log import AuditLog
from cordwood.cluster.security.principal import Identity, Principal

FILE = "/audit/audit-0000000000000001.jsonl"
ALICE = Identity(Principal("User", "alice"), "10.0.0.1", "SCRAM-SHA-512")
CREATED = AuditEvent("CREATE_TOPICS", ALICE, "TOPIC:orders")


def refused(topic: str = "orders", identity: Identity = ALICE) -> AuditEvent:
    return AuditEvent("FETCH", identity, f"TOPIC:{topic}", "TOPIC_AUTHORIZATION_FAILED", is_refusal=True)


class Scene:
    """An audit log on a simulated disk, in virtual time."""

    def __init__(self) -> None:
        self.disk = SimulatedDisk(random.Random(1))

    def run(self, scene: Callable[[AuditLog], Coroutine[Any, Any, None]]) -> list[dict[str, Any]]:
        """Run the scene from start to close, and return the lines after the first, which says that the log begins."""

        async def whole() -> None:
            log = AuditLog(lambda: AuditFiles(self.disk, "/audit", 1 << 24, 10), 1, run_here, lambda: 1_000)
            await log.start()
            await scene(log)
            await log.close()

        with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
            runner.run(whole())
        assert verify(self.disk, "/audit")[2] is None
        first, *rows = map(json.loads, self.disk.content(FILE).splitlines())
        assert first["action"] == "AUDIT_BEGINS"
        return rows


def test_a_line_has_who_from_where_how_what_and_the_outcome() -> None:
    async def scene(log: AuditLog) -> None:
        log.note(CREATED)

    (row,) = Scene().run(scene)
    del row["hash"], row["previous"]
    assert row == {
        "sequence": 2,
        "time_ms": 1000,
        "broker": 1,
        "action": "CREATE_TOPICS",
        "principal": "User:alice",
        "host": "10.0.0.1",
        "mechanism": "SCRAM-SHA-512",
        "resource": "TOPIC:orders",
        "outcome": "NONE",
        "detail": "",
    }


def test_an_event_is_on_disk_soon_without_a_close() -> None:
    scene_of = Scene()

    async def scene(log: AuditLog) -> None:
        log.note(CREATED)
        for _ in range(5):
            await asyncio.sleep(0)
        assert b"CREATE_TOPICS" in scene_of.disk.durable_content(FILE)

    scene_of.run(scene)


def test_refusals_that_repeat_are_a_line_and_a_count_for_each_interval() -> None:
    async def scene(log: AuditLog) -> None:
        for _ in range(2):
            for number in range(100):
                log.note(refused(f"topic-{number}"))
            log.note(refused(identity=Identity(Principal("User", "bob"))))
            await asyncio.sleep(audit_log.INTERVAL_S + 0.1)

    rows = Scene().run(scene)
    seen = [(row["principal"], row.get("count", 1)) for row in rows]
    assert seen == [("User:alice", 1), ("User:bob", 1), ("User:alice", 99)] * 2


def test_acts_that_are_alike_are_a_line_each() -> None:
    async def scene(log: AuditLog) -> None:
        for _ in range(100):
            log.note(CREATED)

    assert len(Scene().run(scene)) == 100


def test_a_flood_of_different_refusals_takes_bounded_memory_and_loses_no_act() -> None:
    async def scene(log: AuditLog) -> None:
        for number in range(5 * audit_log.ALIKE_MAX):
            log.note(refused(identity=Identity(Principal("User", f"user-{number}"))))
        log.note(CREATED)

    rows = Scene().run(scene)
    assert len(rows) == audit_log.ALIKE_MAX + 2
    assert rows[-2]["action"] == "CREATE_TOPICS"
    assert (rows[-1]["action"], rows[-1]["count"]) == ("OTHER_REFUSALS", 4 * audit_log.ALIKE_MAX)


def test_on_a_full_disk_lines_wait_and_what_found_no_room_is_counted() -> None:
    scene_of = Scene()

    async def scene(log: AuditLog) -> None:
        await asyncio.sleep(0.1)
        scene_of.disk.leave_free(0)
        with capture_logs() as lines:
            for _ in range(audit_log.WAITING_MAX + 7):
                log.note(CREATED)
            await asyncio.sleep(10 * audit_log.RETRY_S)
            assert [line["event"] for line in lines] == ["audit.not_written"]
            assert "No space" in log.error
            scene_of.disk.leave_free(1 << 30)
            await asyncio.sleep(2 * audit_log.RETRY_S)
        assert (log.error, log.lost) == ("", 7)

    rows = scene_of.run(scene)
    assert len(rows) == audit_log.WAITING_MAX + 1
    assert {row["action"] for row in rows} == {"CREATE_TOPICS", "AUDIT_LINES_LOST"}
    (lost,) = (row for row in rows if row["action"] == "AUDIT_LINES_LOST")
    assert lost["count"] == 7


def test_ever_new_names_do_not_fill_the_files() -> None:
    intervals = 100

    async def scene(log: AuditLog) -> None:
        for interval in range(intervals):
            for number in range(500):
                log.note(refused(identity=Identity(Principal("User", f"user-{interval}-{number}"))))
            await asyncio.sleep(audit_log.INTERVAL_S)

    rows = Scene().run(scene)
    assert sum(row.get("count", 1) for row in rows) == intervals * 500
    assert len(rows) <= audit_log.ALIKE_MAX + (audit_log.ALIKE_PER_INTERVAL + 1) * (intervals + 1)


def test_refusals_leave_room_for_acts_while_the_disk_is_full() -> None:
    scene_of = Scene()

    async def scene(log: AuditLog) -> None:
        await asyncio.sleep(0.1)
        scene_of.disk.leave_free(0)
        for number in range(20 * audit_log.WAITING_MAX):
            log.note(refused(identity=Identity(Principal("User", f"user-{number % 900}"))))
            if number % 900 == 899:
                log._count_alike()
                log._free = audit_log.ALIKE_MAX
        for _ in range(100):
            log.note(CREATED)
        scene_of.disk.leave_free(1 << 30)
        await asyncio.sleep(2 * audit_log.RETRY_S)

    rows = scene_of.run(scene)
    assert [row["action"] for row in rows].count("CREATE_TOPICS") == 100
