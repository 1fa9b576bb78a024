"""Connections closed under memory pressure: those that hold much memory and make no progress, for any pool."""

import asyncio
from dataclasses import dataclass, field

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
    receive_bytes: int = 0
    is_broker: bool = False
    stalled_at: float = 0.0
    pending_since: float | None = 0.0
    waits_for: MemoryPool | None = None
    partial_since: float = 0.0
    partial_bytes: int = 0
    is_arriving: bool = False
    reasons: list[str | None] = field(default_factory=list)

    def shrink(self) -> None:
        """Do nothing: there is no buffer."""

    def try_again(self) -> None:
        """Do nothing: the connection does not wait."""

    def close(self, reason: str | None = None) -> None:
        self.reasons.append(reason)
        self.memory.pending.used -= self.pending_bytes
        self.memory.unsent.used -= self.unsent_bytes
        self.pending_bytes = self.unsent_bytes = 0


def closed(connections: list[Connection], memory: Memory) -> list[bool]:
    """Return which connections are closed once the largest request is received and a response has waited for room."""

    async def told() -> list[bool]:
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

    return run(told())


def test_who_holds_much_makes_room_for_what_another_pool_lacks() -> None:
    memory = Memory.of(LARGEST, 1000)
    much, few = 2 * HELD_BYTES_LARGE, HELD_BYTES_LARGE // 4
    connections = [Connection(memory, pending_bytes=size) for size in (much, few)]
    connections += [Connection(memory, unsent_bytes=size) for size in (much, few)]
    connections.append(Connection(memory, pending_bytes=much, is_broker=True))
    assert closed(connections, memory) == [True, False, True, False, False]
