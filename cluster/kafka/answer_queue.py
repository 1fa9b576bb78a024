"""The response queue of a connection: answered slots in, buffers out, in the order of the requests. No socket.

| state | condition | `next_output` | next request |
|---|---|---|---|
| idle | no slot, and nothing to send | None | is admitted |
| waiting | the first slot has no response | None | is admitted, within limits |
| sending | responses at the head | bytes to write, or a list of bytes to write together | is admitted, within limits |
| reading | the next piece of a slice is not in memory | the slice, once; then None until `piece_read` | as before |
| stalled | `may_write` is False: the client takes no bytes | None | waits |
| alone | one request is handled exclusively | as before | waits until all are answered |
"""

from collections import deque
from typing import TYPE_CHECKING, Any

from cordwood.cluster.kafka.request_measures import ApiMeasures
from cordwood.cluster.resources.memory import Memory
from cordwood.replication.channel import Chunk
from cordwood.storage.disk import Bytes
from cordwood.storage.errors import NotInMemory
from cordwood.storage.slices import Slice

if TYPE_CHECKING:
    from cordwood.cluster.kafka.connection import Connection

REQUEST_BYTES = 2 << 10
"""Memory counted for one pending request, in addition to a share of its size."""
SIZE_SHARE_SHIFT = 4
"""A share of 1/16: the batches of a Produce request are already in the log."""
PENDING_BYTES_MAX = 2 << 20
"""Above this, the connection is not read until some of its requests are answered."""
FREE_BYTES = 16 << 10
"""The oldest pending request of a connection may hold this much even if the pool is full."""
PIECES_BYTES = 512 << 10
JOINED_BYTES_MAX = 16 << 10
"""Up to this size one copy is cheaper than a gathering write."""


class Slot:
    """One request's place in its connection's queue of responses."""

    __slots__ = ("api", "began", "chunks", "connection", "held_bytes", "size", "taken_at", "throttle_ms")

    def __init__(self, connection: "Connection", size: int) -> None:
        self.connection = connection
        self.size = size
        self.taken_at = connection.last_active
        self.held_bytes = 0
        """Bytes counted for the request in the pool of pending requests."""
        self.chunks: list[Chunk] | None = None
        self.api: ApiMeasures | None = None
        """The metrics of the request's API, timed from `began`; None if the frame is no client request."""
        self.began = 0.0
        self.throttle_ms = 0
        """For how long the client is throttled: its response states it."""

    def fill(self, chunks: list[Chunk]) -> None:
        """Set the response, sent at the end of this event-loop iteration; no chunks if the client expects none."""
        self.chunks = chunks
        self.connection.end_of_tick.answered(self.connection)

    def reserve(self, size: int, *, alone: bool = False) -> bool:
        """Reserve `size` bytes until the response is sent.

        With `alone`, no other request of this connection is handled until then. Return False if the pool has no room,
        or with `alone` if earlier requests are pending: the request is put back and handled again later.
        """
        return self.connection.reserve(self, size, alone)

    def hold(self, size: int) -> None:
        """Count `size` bytes of the response while it waits for earlier responses."""
        self.held_bytes += size
        self.connection.answers.hold(size)

    def refused(self, code: int) -> None:
        """Count a Kafka error code in the response."""
        if self.api is not None:
            self.api.errors[code] += 1


class AnswerQueue:
    """Pending requests and unsent responses, counted in the pools."""

    def __init__(self, pools: Memory) -> None:
        self._pools = pools
        self.slots: deque[Slot] = deque()
        self.chunks: deque[Chunk] = deque()
        self.may_write = True
        self.pending_bytes = 0
        self.unsent_bytes = 0
        """Unsent bytes of responses, counted while the client does not take them."""
        self.is_alone = False
        """Whether one request is handled exclusively, or the next one is to be."""
        self._is_reading = self._is_closed = False

    @property
    def pending_since(self) -> float | None:
        """Arrival time of the oldest pending request; None if there is none."""
        return self.slots[0].taken_at if self.slots else None

    def has_room(self) -> bool:
        """Return whether the next request may be handled."""
        if not self.may_write:
            # Handle no further request of a client that does not take its responses.
            return False
        if not self.slots:
            return True
        if self.is_alone or self.pending_bytes > PENDING_BYTES_MAX:
            return False
        pool = self._pools.pending
        return pool.used <= pool.own or pool.has_room(0)

    def admit(self, connection: "Connection", size: int) -> Slot | None:
        """Return a slot for the next request, of `size` bytes; None if the request has to wait."""
        if (self.slots or not self.may_write) and not self.has_room():
            return None
        slot = Slot(connection, size)
        slot.held_bytes = held_bytes = REQUEST_BYTES + (size >> SIZE_SHARE_SHIFT)
        self.slots.append(slot)
        self.pending_bytes += held_bytes
        self._pools.pending.used += held_bytes
        return slot

    def withdraw(self) -> None:
        """Remove the last slot: its frame gets no response, or is handled again."""
        self.hold(-self.slots.pop().held_bytes)

    def reserve(self, slot: Slot, size: int, *, alone: bool) -> bool:
        """Implement `Slot.reserve` for the last slot. If it returns False, `is_alone` is set, or the pool is full."""
        is_first, pool = self.slots[0] is slot, self._pools.pending
        size = min(size, pool.limit)
        is_early = alone and not is_first
        if is_early or not ((is_first and size <= FREE_BYTES) or pool.has_room(size)):
            self.is_alone |= is_early
            return False
        self.is_alone |= alone
        slot.held_bytes += size
        self.hold(size)
        return True

    def hold(self, size: int) -> None:
        if not self._is_closed:
            self.pending_bytes += size
            self._pools.pending.used += size

    def take_answered(self) -> Bytes | list[Bytes] | Slice | None:
        """Take the answered slots at the head, and return as `next_output`."""
        slots, out = self.slots, self.chunks
        now: float | None = None
        answered_bytes = 0
        while slots and (chunks := slots[0].chunks) is not None:
            out.extend(chunks)
            slot = slots.popleft()
            answered_bytes += slot.held_bytes
            if (api := slot.api) is not None:
                if now is None:
                    now = api.clock()
                api.done(slot.size, chunks, now - slot.began)
        self.pending_bytes -= answered_bytes
        self._pools.pending.used -= answered_bytes
        if not slots:
            self.is_alone = False
        if len(out) == 1 and self.may_write and out[0].__class__ is bytes:
            return out.popleft()
        return self.next_output()

    def next_output(self) -> Bytes | list[Bytes] | Slice | None:
        """Return what comes next: bytes, a list to write together, or a slice to read in a thread; None to wait.

        Raises as Slice.next_piece.
        """
        out = self.chunks
        if not out or self._is_reading or not self.may_write:
            return None
        texts: list[Any] = []
        while out and out[0].__class__ is bytes:
            texts.append(out.popleft())
        if out and isinstance(chunk := out[0], Slice) and (not texts or chunk.size <= PIECES_BYTES):
            try:
                piece = chunk.next_piece(wait=False)
            except NotInMemory:
                if not texts:
                    self._is_reading = True
                    return chunk
            else:
                if not chunk.size:
                    out.popleft()
                if not texts:
                    return piece
                texts.append(piece)
        return texts if sum(map(len, texts)) > JOINED_BYTES_MAX else b"".join(texts)

    def piece_read(self, chunk: Slice) -> None:
        """Go on after a thread has read the next piece of the slice at the head."""
        self._is_reading = False
        if not chunk.size and not self._is_closed:
            self.chunks.popleft()

    def count_unsent(self, written: int) -> None:
        """Count the bytes that the client has not taken: `written` by the transport's count, and those queued here."""
        size = written
        for chunk in self.chunks:
            if chunk.__class__ is bytes:
                size += len(chunk)
        self._pools.unsent.used += size - self.unsent_bytes
        self.unsent_bytes = size

    def resume(self) -> None:
        """Go on after the client has taken all written bytes."""
        self.may_write = True
        self._pools.unsent.used -= self.unsent_bytes
        self.unsent_bytes = 0

    def release(self) -> None:
        """Drop everything, for a closed connection."""
        self._is_closed = True
        self.slots.clear()
        self.chunks.clear()
        self._pools.pending.used -= self.pending_bytes
        self._pools.unsent.used -= self.unsent_bytes
        self.pending_bytes = self.unsent_bytes = 0
