"""Memory reservation for responses during encoding: a large response grows only while its pool has room.

A small response needs no reservation. Every large response but the oldest leaves as much room free as the oldest may
still need, so that responses never deadlock. If even the oldest finds no room because other pools hold the memory, the
largest response is cancelled and its connection closed; of equals, the newest.
"""

import asyncio
from collections.abc import Callable

from cordwood.cluster.kafka.answer_queue import Slot
from cordwood.cluster.kafka.message_writer import ANSWER_BYTES_MAX, CHUNK_BYTES, Answer
from cordwood.cluster.resources.memory import MemoryPool
from cordwood.cluster.resources.turns import Turns
from cordwood.storage.steps import Steps

RETRY_INTERVAL_S = 0.05
RETRIES_MAX = 40
"""Retries of the oldest response before the largest is cancelled."""
LARGEST_BYTES = ANSWER_BYTES_MAX + 2 * CHUNK_BYTES
"""Memory of the largest response, its next chunk included."""


class GrowingAnswer:
    """One response during encoding."""

    __slots__ = ("answer", "reserved", "room", "slot", "task")

    def __init__(self, slot: Slot) -> None:
        self.slot, self.answer = slot, Answer()
        self.task = asyncio.current_task()
        self.reserved = 0
        self.room: asyncio.Future[None] | None = None
        """Completed once the pool has room; None if the response is not waiting."""

    @property
    def wanted(self) -> int:
        """Bytes to reserve for the encoded part and the next chunk."""
        return max(0, self.answer.size + CHUNK_BYTES - self.reserved)


class AnswerMemory:
    """The memory reservations of all large responses of a broker."""

    def __init__(self, pool: MemoryPool, press: Callable[[MemoryPool], None]) -> None:
        """`press` makes other pools give memory back: all pools share one limit."""
        self._pool, self._press = pool, press
        self._growing: dict[GrowingAnswer, None] = {}
        """Responses during encoding, the oldest first."""
        self._timer: asyncio.TimerHandle | None = None
        self._retries = 0

    async def write(self, slot: Slot, encoding: Callable[[Answer], Steps[list[bytes]]], turns: Turns) -> list[bytes]:
        """Encode a response and return its chunks. Raises AnswerTooLarge, and CancelledError if memory runs out."""
        growing = GrowingAnswer(slot)
        try:
            return await turns.run(encoding(growing.answer), lambda: self._take(growing) if growing.wanted else None)
        finally:
            self._growing.pop(growing, None)
            # A cancellation leads to this frame by its traceback: with the task it would be a reference cycle.
            growing.task = None
            self._pool.used -= growing.reserved
            self._grant()

    def _take(self, growing: GrowingAnswer) -> asyncio.Future[None] | None:
        """Reserve the wanted bytes. Return a future to await if there is no room."""
        self._growing[growing] = None
        if not growing.slot.connection.is_open:
            # The client has disconnected.
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
        """Grant reservations while there is room, the oldest first."""
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
            largest = max(reversed(self._growing), key=lambda growing: growing.reserved)
            self._pool.closes += 1
            largest.slot.connection.close("no memory for its response: the pool is full")
            self._give_up(largest)

    def _give_up(self, growing: GrowingAnswer) -> None:
        assert growing.task is not None, "answers are written by tasks"
        growing.task.cancel()
