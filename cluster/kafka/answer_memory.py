"""Memory of answers that are being written: a large one goes on only where there is room for its next piece.

Small answers are written in one go and need none. The others leave as much room as the oldest of them may still need,
so that they never wait for each other alone. Where even the oldest lacks room, which other pools hold, the answer that
was begun last is given up and its connection closed.
"""

import asyncio
from collections.abc import Callable

from cordwood.cluster.kafka.message_writer import ANSWER_BYTES_MAX, CHUNK_BYTES, Answer
from cordwood.cluster.kafka.slot import Slot
from cordwood.cluster.kafka.turns import Steps, Turns
from cordwood.cluster.memory import MemoryPool

RETRY_INTERVAL_S = 0.05
RETRIES_MAX = 40
"""So often the oldest answer looks for room before the newest is given up."""
LARGEST_BYTES = ANSWER_BYTES_MAX + 2 * CHUNK_BYTES
"""What the largest answer takes, its next piece included."""


class GrowingAnswer:
    """One answer, from its first byte to its last."""

    __slots__ = ("answer", "reserved", "room", "slot", "task")

    def __init__(self, slot: Slot) -> None:
        self.slot, self.answer = slot, Answer()
        self.task = asyncio.current_task()
        self.reserved = 0
        self.room: asyncio.Future[None] | None = None
        """Done once there is room for more, where it waits for that."""

    @property
    def wanted(self) -> int:
        """Bytes that it lacks for what it has and its next piece."""
        return max(0, self.answer.size + CHUNK_BYTES - self.reserved)


class AnswerMemory:
    """The answers of one broker that take more than a few steps."""

    def __init__(self, pool: MemoryPool, press: Callable[[MemoryPool], None]) -> None:
        """`press` asks others to make room: the pool has a limit in common with theirs."""
        self._pool, self._press = pool, press
        self._growing: dict[GrowingAnswer, None] = {}
        """In the order in which they were begun."""
        self._timer: asyncio.TimerHandle | None = None
        self._retries = 0

    async def write(self, slot: Slot, encoding: Callable[[Answer], Steps[list[bytes]]], turns: Turns) -> list[bytes]:
        """The chunks of an answer. Raises AnswerTooLarge; CancelledError where it is given up."""
        growing = GrowingAnswer(slot)
        try:
            return await turns.run(encoding(growing.answer), lambda: self._take(growing) if growing.wanted else None)
        finally:
            self._growing.pop(growing, None)
            self._pool.used -= growing.reserved
            self._grant()

    def _take(self, growing: GrowingAnswer) -> asyncio.Future[None] | None:
        """Reserve what it wants. Where there is no room, what is to be waited for."""
        self._growing[growing] = None
        if not growing.slot.connection.is_open:
            # The client has gone.
            self._give_up(growing)
        elif self._may_take(growing):
            self._reserve(growing)
            return None
        else:
            self._pool.waits += 1
            self._schedule()
        growing.room = asyncio.get_running_loop().create_future()
        return growing.room

    def _may_take(self, growing: GrowingAnswer) -> bool:
        oldest = next(iter(self._growing))
        kept = 0 if growing is oldest else max(0, LARGEST_BYTES - oldest.reserved)
        return self._pool.has_room(growing.wanted + kept)

    def _reserve(self, growing: GrowingAnswer) -> None:
        size = growing.wanted
        growing.reserved += size
        self._pool.used += size

    def _grant(self) -> None:
        """Let those go on that there is room for, the oldest first."""
        for growing in self._growing:
            if growing.room is not None and not growing.room.done():
                if not self._may_take(growing):
                    return
                self._reserve(growing)
                growing.room.set_result(None)

    def _schedule(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(RETRY_INTERVAL_S, self._retry)

    def _retry(self) -> None:
        self._timer = None
        self._grant()
        waiting = [growing for growing in self._growing if growing.room is not None and not growing.room.done()]
        if not waiting:
            self._retries = 0
            return
        self._schedule()
        if waiting[0] is not next(iter(self._growing)):
            self._retries = 0
            return
        self._press(self._pool)
        self._retries += 1
        if self._retries >= RETRIES_MAX:
            self._retries = 0
            newest = next(reversed(self._growing))
            self._pool.closes += 1
            newest.slot.connection.close("there is no room for its answer: others hold the memory")
            self._give_up(newest)

    def _give_up(self, growing: GrowingAnswer) -> None:
        assert growing.task is not None, "answers are written by tasks"
        growing.task.cancel()
