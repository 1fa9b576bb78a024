"""Connections closed under memory pressure: those that hold much memory and make no progress, for any pool."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

from cordwood.chaos.sim.loop import run
from cordwood.cluster.kafka.connection_memory import HELD_BYTES_LARGE, HELD_S_MAX, ConnectionMemory
from cordwood.cluster.resources.memory import MIB, Memory, MemoryPool

LARGEST = 100 * MIB


@dataclass(eq=False)
class Connection:
    """A connection with an unanswered request or unread responses."""

    memory: Memory
    pending_bytes: int = 0
    unsent_bytes: int = 0
    held_bytes: int = 0
    is_broker: bool = False
    stalled_at: float = 0.0
    pending_since: float | None = 0.0
    waits_for: MemoryPool | None = None
    partial_since: float = 0.0
    waiting_bytes: int = 0
    is_arriving: bool = False
    reasons: list[str | None] = field(default_factory=list)

    @property
    def received(self) -> Any:
        """This object, with the names of a ReceiveBuffer."""
        return self

    answers = received

    def stalled_for(self, now: float) -> float:
        return now - self.stalled_at

    def shrink(self) -> None:
        """Do nothing: there is no buffer."""

    def try_again(self) -> None:
        """Do nothing: the connection does not wait."""

    def close(self, reason: str | None = None) -> None:
        self.reasons.append(reason)
        self.memory.pending.used -= self.pending_bytes
        self.memory.unsent.used -= self.unsent_bytes
        self.memory.receive.used -= self.held_bytes
        self.pending_bytes = self.unsent_bytes = self.held_bytes = self.waiting_bytes = 0
        self.pending_since = None


def closed(connections: list[Connection], memory: Memory) -> list[bool]:
    """Return which connections are closed once the largest request is received and a response has waited for room."""

    async def reported() -> list[bool]:
        pools = ConnectionMemory(memory, lambda: connections)
        for connection in connections:
            memory.pending.used += connection.pending_bytes
            memory.unsent.used += connection.unsent_bytes
            if connection.unsent_bytes:
                pools.stalled(connection)
        memory.receive.used = LARGEST + MIB
        assert memory.is_crowded
        for _ in range(40):
            pools.press(memory.answers)
            await asyncio.sleep(HELD_S_MAX / 10)
        return [bool(connection.reasons) for connection in connections]

    return run(reported())


def test_who_holds_much_makes_room_for_what_another_pool_lacks() -> None:
    memory = Memory.of(LARGEST, 1000)
    much, few = 2 * HELD_BYTES_LARGE, HELD_BYTES_LARGE // 4
    connections = [Connection(memory, pending_bytes=size) for size in (much, few)]
    connections += [Connection(memory, unsent_bytes=size) for size in (much, few)]
    connections.append(Connection(memory, pending_bytes=much, is_broker=True))
    assert closed(connections, memory) == [True, False, True, False, False]


def closed_in_full_pool(pool: str, guilty: list[Connection], bystanders: list[Connection], memory: Memory) -> None:
    """Fill the pool and let a connection wait for it. Check that guilty connections are closed, and no bystander."""

    async def reported() -> None:
        connections = [*bystanders, *guilty]
        pools = ConnectionMemory(memory, lambda: connections)
        memory.pending.used = sum(connection.pending_bytes for connection in connections)
        memory.receive.used = sum(connection.held_bytes for connection in connections)
        full: MemoryPool = getattr(memory, pool)
        full.limit = full.used

        class Waiting(Connection):
            def try_again(self) -> None:
                if not full.has_room(MIB):
                    pools.wait(self, full)

        Waiting(memory, pending_since=None).try_again()
        await asyncio.sleep(10 * HELD_S_MAX)
        assert full.has_room(MIB)
        assert any(connection.reasons for connection in guilty)
        assert not any(connection.reasons for connection in bystanders)

    run(reported())


def test_requests_that_hold_little_are_not_closed_for_those_that_hold_much() -> None:
    memory = Memory.of(LARGEST, 1000)
    hogs = [Connection(memory, pending_bytes=MIB) for _ in range(5)]
    long_polls = [Connection(memory, pending_bytes=30_000, pending_since=-30.0) for _ in range(5)]
    closed_in_full_pool("pending", hogs, long_polls, memory)


def test_a_part_of_a_small_request_is_not_closed_for_parts_of_large_ones() -> None:
    memory = Memory.of(LARGEST, 1000)
    hogs = [Connection(memory, held_bytes=MIB, waiting_bytes=MIB, is_arriving=True, partial_since=0.1) for _ in "ab"]
    slow = [Connection(memory, held_bytes=16_384, waiting_bytes=9_000, is_arriving=True, partial_since=-30.0)]
    closed_in_full_pool("receive", hogs, slow, memory)


def test_who_takes_little_of_its_answers_for_long_is_not_closed_for_those_that_leave_much() -> None:
    memory = Memory.of(LARGEST, 1000)
    slow = Connection(memory, unsent_bytes=20_000, stalled_at=-30.0)
    hogs = [Connection(memory, unsent_bytes=8 * MIB, stalled_at=5.0) for _ in range(8)]

    async def reported() -> None:
        pools = ConnectionMemory(memory, tuple)
        await asyncio.sleep(6)
        for connection in (slow, *hogs):
            memory.unsent.used += connection.unsent_bytes
            pools.stalled(connection)
        assert not slow.reasons
        assert memory.unsent.used <= memory.unsent.limit // 4 * 3
        assert sum(bool(hog.reasons) for hog in hogs) == 3

    run(reported())
