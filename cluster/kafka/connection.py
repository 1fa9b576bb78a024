"""A client connection: zero-copy request parsing, and an ordered response queue with backpressure.

Each connection reuses one receive buffer. A request is parsed in place, in the protocol callback, and appends a slot to
the response queue. Its handler fills the slot. All responses that are ready at the head of the queue are sent in one
write. A slot may hold slices of a log; the connection reads a slice piece by piece as the client takes it.

The memory that a client makes the broker hold is counted in pools shared by all connections (docs/adr/0026).
"""

import asyncio
import mmap
import struct
from collections import deque
from collections.abc import Callable
from typing import Any, cast

import structlog

from cordwood.cluster.kafka.connection_owner import REQUEST_BYTES_MIN, Owner, why_not
from cordwood.cluster.kafka.fetch_sessions import NO_SESSION
from cordwood.cluster.kafka.slot import Slot
from cordwood.cluster.resources.memory import MemoryPool
from cordwood.replication.channel import Chunk
from cordwood.replication.frames import FIRST_KEY_BYTE
from cordwood.storage.errors import DamagedLog
from cordwood.storage.segment import NotInMemory
from cordwood.storage.slices import Slice

BUFFER_BYTES_MIN = 4 << 10
BUFFER_BYTES_USUAL = 256 << 10
BUFFER_BYTES_KEPT = 16 << 20
"""Up to this size a buffer stays as large as its largest request, since allocation is slow. A larger one is freed."""
BUFFER_BYTES_STEP = 4 << 20
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
LENGTH_BYTES = 4
_read_size = struct.Struct(">i").unpack_from
_events = structlog.get_logger("connection")


Handle = Callable[["Connection", memoryview, Slot], None]


class Connection(asyncio.BufferedProtocol):
    """An asyncio or uvloop protocol. `handle` is called with each frame and the slot for its response."""

    def __init__(self, owner: Owner, listener: str, handle: Handle) -> None:
        self._owner, self.listener, self._handle = owner, listener, handle
        self.end_of_tick = owner.end_of_tick
        self.client_host = ""
        self.last_active = self._opened_at = 0.0
        self.fetch_session = NO_SESSION
        """The fetch session that this connection created (`fetch_sessions.py`)."""
        self.is_broker = False
        """Whether the peer is a follower. The connection is then never closed to make room for clients."""
        self.on_closed: Callable[[], None] | None = None
        self._loop = asyncio.get_running_loop()
        self._memory, self._pools = owner.memory, owner.memory.pools
        self._transport: asyncio.Transport | None = None
        self._buffer: bytearray | mmap.mmap = bytearray()
        self._room = 0
        """Bytes of the buffer that may be written to: a large buffer is filled in steps."""
        self._room_wanted, self._whole_bytes = BUFFER_BYTES_MIN, 0
        """Room and size that the buffer gets before the next read; 0 if the room is sufficient."""
        self._start = self._end = self.receive_bytes = 0
        self._slots: deque[Slot] = deque()
        self._out: deque[Chunk] = deque()
        self.pending_bytes = 0
        self.unsent_bytes = 0
        """Unsent bytes of responses, counted while the client does not take them."""
        self.stalled_at = 0.0
        self.is_alone = self._is_frozen = False
        """Whether one request is handled exclusively, and whether it is still read from the receive buffer."""
        self.waits_for: MemoryPool | None = None
        self._is_reading, self._may_write, self._is_fetching_piece = True, True, False
        self.partial_since = 0.0

    @property
    def is_open(self) -> bool:
        return self._transport is not None

    @property
    def is_waited_for(self) -> bool:
        """Whether a response is pending. Such a connection is not idle."""
        return bool(self._slots or self._out)

    @property
    def is_arriving(self) -> bool:
        return self._is_reading and self._end > self._start

    @property
    def partial_bytes(self) -> int:
        """Bytes received of an incomplete request."""
        return self._end - self._start

    @property
    def pending_since(self) -> float | None:
        """Arrival time of the oldest pending request; None if there is none."""
        return self._slots[0].taken_at if self._slots else None

    def partial_for(self, now: float) -> float:
        """Return the seconds since `partial_since`; 0 if no request is incomplete, or the connection is not read."""
        return now - self.partial_since if self.partial_since and self._is_reading else 0.0

    def stalled_for(self, now: float) -> float:
        """Return the seconds since the client last took response bytes; 0 if the transport accepts writes."""
        if self._may_write:
            return 0.0
        before = self.unsent_bytes
        self._count_unsent()
        if self.unsent_bytes < before:
            self.stalled_at = now
        return now - self.stalled_at

    def idle_for(self, now: float) -> float:
        """Return the seconds since the last received byte; 0 while a response is pending."""
        return 0.0 if self.is_waited_for else now - self.last_active

    @property
    def is_silent(self) -> bool:
        """Whether the client never sent a byte."""
        return self.last_active == self._opened_at

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not subclasses of asyncio.Transport.
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self.client_host = str(peer[0]) if peer else ""
        self._opened_at = self.last_active = self._loop.time()
        # A limit of 0: bytes that the kernel refuses are counted, and nothing is written before they are gone.
        self._transport.set_write_buffer_limits(high=0)
        self._owner.opened(self)
        connected = transport.get_extra_info("socket")
        if connected is not None:
            self._owner.keep_alive.apply(connected)

    def connection_lost(self, _error: Exception | None) -> None:
        self._transport = None
        self._release()
        self._owner.closed(self)
        if self.on_closed is not None:
            self.on_closed()

    def close(self, reason: str | None = None) -> None:
        """Abort the connection. Log `reason` if there is one."""
        if self._transport is not None:
            if reason is not None:
                _events.warning("connection.closed", client=self.client_host, listener=self.listener, reason=reason)
            self._transport.abort()
            self._transport = None
            self._release()

    def admit_broker(self, refusal: str) -> None:
        """Accept only a follower's first frame: a connection limit is reached. Close on any other, with `refusal`."""
        handle = self._handle

        def introduced(connection: Connection, frame: memoryview, slot: Slot) -> None:
            if frame[0] < FIRST_KEY_BYTE:
                self.close(refusal)
            else:
                self._handle = handle
                handle(connection, frame, slot)

        self._handle = introduced

    def push(self, chunks: list[Chunk]) -> None:
        """Queue frames that answer no request. They leave in queue order, at the end of this event-loop iteration."""
        if self._transport is not None:
            slot = Slot(self, 0)
            self._slots.append(slot)
            slot.fill(chunks)

    def no_answer_is_due(self) -> None:
        """Remove the last slot: the frame being handled is no request and gets no response."""
        self.hold(-self._slots.pop().held_bytes)

    def reserve(self, slot: Slot, size: int, alone: bool) -> bool:
        """Implement `Slot.reserve`. The slot belongs to the request being handled."""
        is_first = self._slots[0] is slot
        pool = self._pools.pending
        size = min(size, pool.limit)
        if alone and not is_first:
            self.is_alone = True
        elif (is_first and size <= FREE_BYTES) or pool.has_room(size):
            self.is_alone |= alone
            slot.held_bytes += size
            self.hold(size)
            return True
        else:
            self._memory.wait(self, pool)
        self._start -= LENGTH_BYTES + slot.size
        self.no_answer_is_due()
        self._stop_reading()
        return False

    def freeze(self) -> None:
        """Keep the receive buffer unchanged, with the request being handled in it, until `thaw`."""
        self._is_frozen = True

    def keep(self, frame: memoryview) -> memoryview:
        """Return a stable view of the request being handled: a copy if small, else the frozen buffer until `thaw`."""
        if len(frame) <= BUFFER_BYTES_USUAL:
            return memoryview(bytes(frame))
        self.freeze()
        return frame

    def thaw(self, *, shrinks: bool = False) -> None:
        """Release the frozen buffer, and handle the next request if it may be handled."""
        if self._is_frozen:
            self._is_frozen = False
            if shrinks:
                self.shrink()
            self.wake()

    def hold(self, size: int) -> None:
        if self._transport is not None:
            self.pending_bytes += size
            self._pools.pending.used += size

    def try_again(self) -> None:
        """Retry the allocation that a full pool refused."""
        self.waits_for = None
        if self._transport is not None:
            self._make_room()
            if self.waits_for is None and self._has_room():
                self.partial_since = self.partial_since and self._loop.time()
                self._read_on()

    def get_buffer(self, _size_hint: int) -> memoryview:
        if self._room_wanted:
            self._resize()
        return memoryview(self._buffer)[self._end : self._room]

    def buffer_updated(self, count: int) -> None:
        self._end += count
        self.last_active = self._loop.time()
        filled = self._end == self._room
        self._take_frames()
        if filled and self._room < BUFFER_BYTES_USUAL and self._transport is not None:
            self._want(BUFFER_BYTES_USUAL)
        if self._end == self._start:
            self.partial_since = 0.0
        elif not self.partial_since:
            self.partial_since = self.last_active

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._may_write = False
        self.stalled_at = self._loop.time()

    def resume_writing(self) -> None:
        self._may_write = True
        self._pools.unsent.used -= self.unsent_bytes
        self.unsent_bytes = 0
        self.wake()

    def wake(self) -> None:
        """Send the responses that are ready at the head of the queue."""
        slots, out = self._slots, self._out
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
        self._pump()
        if not self._may_write:
            self._count_unsent()
        if not self._is_reading and self.waits_for is None and self._has_room():
            self._read_on()

    def fail(self, error: Exception) -> None:
        self.close(f"a response could not be sent: {error!r}")

    def shrink(self) -> None:
        """Free the receive buffer if it is empty."""
        if self._start == self._end and self._transport is not None and not self._is_frozen:
            self._buffer = bytearray()
            self._start = self._end = self._room = 0
            self._room_wanted = BUFFER_BYTES_MIN
            self._count_received(0)

    def _release(self) -> None:
        """Free all memory: a long poll may still reference the connection, and must not keep its buffers alive."""
        self._slots.clear()
        self._out.clear()
        self._buffer = bytearray()
        self._pools.pending.used -= self.pending_bytes
        self.pending_bytes = 0
        self._count_received(0)
        self._pools.unsent.used -= self.unsent_bytes
        self.unsent_bytes = 0
        self._memory.closed(self)

    def _read_on(self) -> None:
        self._is_reading = True
        if self._transport is not None:
            self._transport.resume_reading()
            self._take_frames()

    def _stop_reading(self) -> None:
        """Pause reading, so that the kernel's buffers fill and TCP flow control slows the client."""
        if self._is_reading and self._transport is not None:
            self._is_reading = False
            self._transport.pause_reading()

    def _take_frames(self) -> None:
        view = memoryview(self._buffer).toreadonly()
        while self._transport is not None and self._is_reading and self._end - self._start >= LENGTH_BYTES:
            size: int = _read_size(view, self._start)[0]
            begin = self._start + LENGTH_BYTES
            is_usual = REQUEST_BYTES_MIN <= size <= self._owner.other_bytes_max
            if not is_usual and (reason := why_not(self._owner, size, view[begin : self._end])):
                self.close(reason)
                return
            end = begin + size
            if end > self._end:
                break
            if not self._has_room():
                self._stop_reading()
                break
            self._start = end
            self._take(view[begin:end], size)
        self._make_room()

    def _take(self, frame: memoryview, size: int) -> None:
        self.partial_since = 0.0
        slot = Slot(self, size)
        slot.held_bytes = held_bytes = REQUEST_BYTES + (size >> SIZE_SHARE_SHIFT)
        self._slots.append(slot)
        self.pending_bytes += held_bytes
        self._pools.pending.used += held_bytes
        self._handle(self, frame, slot)

    def _has_room(self) -> bool:
        """Whether the next request may be handled."""
        if not self._may_write or self._is_frozen:
            # Handle no further request of a client that does not take its responses.
            return False
        if not self._slots:
            return True
        if self.is_alone or self.pending_bytes > PENDING_BYTES_MAX:
            return False
        pool = self._pools.pending
        return pool.used <= pool.own or pool.has_room(0)

    def _make_room(self) -> None:
        """Make room past the received bytes. The buffer grows as it fills, never by a frame's claimed length alone."""
        waiting = self._end - self._start
        if self._is_frozen or self._transport is None:
            self._stop_reading()
            return
        if waiting == 0:
            self._start = self._end = 0
            if len(self._buffer) > BUFFER_BYTES_KEPT:
                self.shrink()
            return
        need = LENGTH_BYTES
        if waiting >= LENGTH_BYTES:
            need += int.from_bytes(self._buffer[self._start : self._start + 4], "big", signed=True)
        if self._start and self._start + max(need, waiting + 1) > self._room:
            self._buffer[:waiting] = self._buffer[self._start : self._end]
            self._start, self._end = 0, waiting
        if waiting == self._room and need > waiting:
            size = max(BUFFER_BYTES_USUAL, min(4 * waiting, waiting + BUFFER_BYTES_STEP, need))
            if not self._want(size, need):
                self._memory.wait(self, self._pools.receive if size <= BUFFER_BYTES_USUAL else self._pools.large)
                self._stop_reading()

    def _want(self, size: int, whole: int = 0) -> bool:
        """Reserve a buffer of `size` bytes for a request of `whole` bytes. Return False if the pools are full."""
        if not self.is_broker and not self._may_receive(size, whole):
            self._memory.reclaim()
            if not self._may_receive(size, whole):
                return False
        self._room_wanted, self._whole_bytes = size, max(size, whole)
        self._count_received(size)
        return True

    def _may_receive(self, size: int, whole: int) -> bool:
        before, receive, large = self.receive_bytes, self._pools.receive, self._pools.large
        # A request that would not fit into the common limit beside the other pools may exceed it.
        above = receive.above if whole > large.limit - receive.above else 0
        return receive.has_room(size - before, above) and large.has_room(_large(size) - _large(before))

    def _resize(self) -> None:
        self._room, self._room_wanted = self._room_wanted, 0
        if self._room <= len(self._buffer):
            return
        before, end = self._buffer, self._end
        if self._room <= BUFFER_BYTES_USUAL:
            self._buffer = bytearray(self._room)
        else:
            # Pages that were never written take no memory, and munmap returns all pages immediately.
            self._buffer = mmap.mmap(-1, self._whole_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._buffer[:end] = before[:end]

    def _count_received(self, size: int) -> None:
        pools, before = self._pools, self.receive_bytes
        pools.receive.used += size - before
        pools.large.used += _large(size) - _large(before)
        self.receive_bytes = size

    def _count_unsent(self) -> None:
        if self._transport is None:
            return
        size = self._transport.get_write_buffer_size()
        for chunk in self._out:
            if chunk.__class__ is bytes:
                size += len(chunk)
        pool, before = self._pools.unsent, self.unsent_bytes
        pool.used += size - before
        self.unsent_bytes = size
        if not before or not pool.has_room(0):
            self._memory.stalled(self)

    def _pump(self) -> None:
        out = self._out
        while out and self._may_write and self._transport is not None and not self._is_fetching_piece:
            chunk = out[0]
            if len(out) == 1 and isinstance(chunk, bytes):
                out.clear()
                self._transport.write(chunk)
                return
            if isinstance(chunk, Slice):
                self._send_piece(chunk)
                continue
            texts: list[Any] = []
            while out and isinstance(out[0], bytes):
                texts.append(out.popleft())
            if out and isinstance(out[0], Slice) and out[0].size <= PIECES_BYTES:
                texts += self._take_piece(out[0])
                if self._transport is None:
                    return
            if sum(map(len, texts)) > JOINED_BYTES_MAX:
                self._transport.writelines(texts)
            else:
                self._transport.write(texts[0] if len(texts) == 1 else b"".join(texts))

    def _send_piece(self, chunk: Slice) -> None:
        piece = self._take_piece(chunk)
        if piece and self._transport is not None:
            self._transport.write(piece[0])

    def _take_piece(self, chunk: Slice) -> list[Any]:
        """Return the next piece of the head slice, or nothing if a thread must first read it from disk."""
        try:
            piece = chunk.next_piece(wait=False)
        except NotInMemory:
            self._is_fetching_piece = True
            self._loop.create_task(self._read_piece(chunk))
            return []
        except Exception as error:
            self._cannot_read(error)
            return []
        if not chunk.size:
            self._out.popleft()
        return [piece]

    async def _read_piece(self, chunk: Slice) -> None:
        try:
            piece = await self._owner.read_piece(chunk)
        except Exception as error:
            self._cannot_read(error)
            return
        self._is_fetching_piece = False
        if self._transport is not None:
            if not chunk.size:
                self._out.popleft()
            self._transport.write(piece)
            self._pump()
            if not self._may_write:
                self._count_unsent()

    def _cannot_read(self, error: Exception) -> None:
        """Close: a response was sent in part and cannot be completed. The client's retry gets an error code."""
        if isinstance(error, DamagedLog):
            self._owner.damaged(error)
        self.close(f"a response could not be read from the log: {error!r}")


def _large(size: int) -> int:
    return size if size > BUFFER_BYTES_USUAL else 0
