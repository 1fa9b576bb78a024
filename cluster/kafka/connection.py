"""One client's connection: frames handled where they arrive, answers sent in the order of their requests.

One receive buffer a connection, used again and again; a request is read in place, in the callback, and leaves a slot
in the queue. Whoever completes it fills the slot; what is ready at the head of the queue is sent in one write. A slot
may hold slices of a log, which are read piece by piece as the client takes them, so that a slow reader costs no memory.
"""

import asyncio
import socket
import struct
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, cast

import structlog

from cordwood.cluster.kafka.request_measures import ApiMeasures
from cordwood.replication.channel import Chunk
from cordwood.replication.housekeeping import RunBlocking
from cordwood.replication.waiters import Wakeups
from cordwood.storage.errors import DamagedLog
from cordwood.storage.segment import NotInMemory
from cordwood.storage.slices import Slice

BUFFER_BYTES_MIN = 4 << 10
BUFFER_BYTES_USUAL = 256 << 10
BUFFER_BYTES_KEPT = 16 << 20
"""A buffer grows to the largest request and stays, since fresh memory is dear; one larger than this goes at once."""
SLOTS_MAX = 1000
"""So many unanswered requests stop the reading of more."""
WRITE_BUFFER_BYTES = 512 << 10
JOINED_BYTES_MAX = 16 << 10
"""Up to here one copy is cheaper than a gathering write."""

_read_size = struct.Struct(">i").unpack_from
_events = structlog.get_logger("connection")


class Slot:
    """One request's place in its connection's queue of answers."""

    __slots__ = ("api", "began", "chunks", "connection", "size")

    def __init__(self, connection: "Connection", size: int) -> None:
        self.connection = connection
        self.size = size
        self.chunks: list[Chunk] | None = None
        self.api: ApiMeasures | None = None
        """Where the request is counted, from `began` on by the clock of that; None for what is no client's request."""
        self.began = 0.0

    def fill(self, chunks: list[Chunk]) -> None:
        """The answer, to be sent at the end of this turn; no chunks where the client expects none."""
        self.chunks = chunks
        self.connection.wakeups.answered(self.connection)

    def refused(self, code: int) -> None:
        """The answer has an error of Kafka's."""
        if self.api is not None:
            self.api.errors[code] += 1


class KeepAlive(NamedTuple):
    """When the system finds out about a peer that vanished without a word: seconds of silence, then so many probes."""

    idle_s: int
    interval_s: int
    probes: int


class Owner(Protocol):
    """The server, as a connection sees it."""

    keep_alive: KeepAlive

    wakeups: Wakeups
    run_blocking: RunBlocking
    request_bytes_max: int
    queued_bytes_max: int

    def opened(self, connection: "Connection") -> bool: ...

    def closed(self, connection: "Connection") -> None: ...

    def damaged(self, damage: DamagedLog) -> None: ...


Handle = Callable[["Connection", memoryview, Slot], None]


class Connection(asyncio.BufferedProtocol):
    """A protocol for asyncio or uvloop. `handle` is given each frame with the slot for its answer."""

    def __init__(self, owner: Owner, listener: str, handle: Handle) -> None:
        self._owner, self.listener, self._handle = owner, listener, handle
        self.wakeups = owner.wakeups
        self.client_host = ""
        self.last_active = 0.0
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray(BUFFER_BYTES_MIN)
        self._start = self._end = 0
        self._slots: deque[Slot] = deque()
        self._out: deque[Chunk] = deque()
        self._queued_bytes = 0
        self._is_reading = True
        self._may_write = True
        self._is_fetching_piece = False
        self._partial_since = 0.0
        self.on_closed: Callable[[], None] | None = None
        self.generic: deque[Callable[[], None]] = deque()
        """Requests that are handled one at a time, in order: the first is under way (`dispatch.py`)."""

    @property
    def is_open(self) -> bool:
        return self._transport is not None

    @property
    def is_waited_for(self) -> bool:
        """Whether an answer is still owed: such a connection is not idle."""
        return bool(self._slots or self._out)

    def partial_for(self, now: float) -> float:
        """Seconds since the first byte of a request that has not arrived whole; 0 where there is none."""
        return now - self._partial_since if self._partial_since and self._is_reading else 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are of no class of asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self.client_host = str(peer[0]) if peer else ""
        self.last_active = self._loop.time()
        if not self._owner.opened(self):
            return
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        connected = transport.get_extra_info("socket")
        if connected is not None:
            _keep_alive(connected, self._owner.keep_alive)

    def connection_lost(self, _error: Exception | None) -> None:
        self._transport = None
        self._slots.clear()
        self._out.clear()
        self.generic.clear()
        # Whoever still holds the connection, a long poll for one, does not hold its memory.
        self._buffer = bytearray()
        self._owner.closed(self)
        if self.on_closed is not None:
            self.on_closed()

    def close(self, reason: str | None = None) -> None:
        """End the connection; a `reason` becomes the one line that the log has about it."""
        if self._transport is not None:
            if reason is not None:
                _events.warning("connection.closed", client=self.client_host, listener=self.listener, reason=reason)
            self._transport.abort()
            self._transport = None

    def push(self, chunks: list[Chunk]) -> None:
        """Send what nobody asked for just now, at the end of this turn and behind the answers that are due before."""
        if self._transport is not None:
            slot = Slot(self, 0)
            self._slots.append(slot)
            slot.fill(chunks)

    def no_answer_is_due(self) -> None:
        """The frame that is being handled is no request: it gives up its place in the queue of answers."""
        self._queued_bytes -= self._slots.pop().size

    def get_buffer(self, _size_hint: int) -> memoryview:
        return memoryview(self._buffer)[self._end :]

    def buffer_updated(self, count: int) -> None:
        self._end += count
        self.last_active = self._loop.time()
        filled = self._end == len(self._buffer)
        self._take_frames()
        if filled and len(self._buffer) < BUFFER_BYTES_USUAL and self._transport is not None:
            self._resize(BUFFER_BYTES_USUAL)
        if self._end == self._start:
            self._partial_since = 0.0
        elif not self._partial_since:
            self._partial_since = self.last_active

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._may_write = False

    def resume_writing(self) -> None:
        self._may_write = True
        self.wake()

    def wake(self) -> None:
        """Send what is ready at the head of the queue."""
        slots, out = self._slots, self._out
        now: float | None = None
        while slots and (chunks := slots[0].chunks) is not None:
            out.extend(chunks)
            slot = slots.popleft()
            self._queued_bytes -= slot.size
            if (api := slot.api) is not None:
                if now is None:
                    now = api.clock()
                api.done(slot.size, chunks, now - slot.began)
        self._pump()
        if not self._is_reading and self._has_room():
            self._is_reading = True
            if self._transport is not None:
                self._transport.resume_reading()
                self._take_frames()

    def fail(self, error: Exception) -> None:
        self.close(f"an answer could not be sent: {error!r}")

    def shrink(self) -> None:
        """Give back a large receive buffer that is not in use."""
        if self._start == self._end and len(self._buffer) > BUFFER_BYTES_MIN:
            self._buffer = bytearray(BUFFER_BYTES_MIN)
            self._start = self._end = 0

    def _take_frames(self) -> None:
        view = memoryview(self._buffer).toreadonly()
        while self._transport is not None and self._is_reading and self._end - self._start >= 4:
            size: int = _read_size(view, self._start)[0]
            if not 8 <= size <= self._owner.request_bytes_max:
                self.close(f"a request of {size} bytes, where 8 to {self._owner.request_bytes_max} are taken")
                return
            begin = self._start + 4
            end = begin + size
            if end > self._end:
                break
            self._start = end
            self._take(view[begin:end], size)
        self._make_room()

    def _take(self, frame: memoryview, size: int) -> None:
        self._partial_since = 0.0
        slot = Slot(self, size)
        self._slots.append(slot)
        self._queued_bytes += size
        self._handle(self, frame, slot)
        if not self._has_room() and self._is_reading and self._transport is not None:
            # The kernel's buffers fill up, and TCP slows the client down.
            self._is_reading = False
            self._transport.pause_reading()

    def _has_room(self) -> bool:
        # A client that does not take its answers asks no more questions.
        return self._may_write and self._queued_bytes <= self._owner.queued_bytes_max and len(self._slots) <= SLOTS_MAX

    def _make_room(self) -> None:
        """Have room for more behind what has arrived. The buffer grows as it fills, not by what a frame claims."""
        waiting = self._end - self._start
        if waiting == 0:
            self._start = self._end = 0
            if len(self._buffer) > BUFFER_BYTES_KEPT:
                self._buffer = bytearray(BUFFER_BYTES_USUAL)
            return
        need = 4
        if waiting >= 4:
            need += int.from_bytes(self._buffer[self._start : self._start + 4], "big", signed=True)
        if self._start + max(need, waiting + 1) > len(self._buffer):
            self._buffer[:waiting] = self._buffer[self._start : self._end]
            self._start, self._end = 0, waiting
        if waiting == len(self._buffer):
            self._resize(max(BUFFER_BYTES_USUAL, min(4 * waiting, 1 << (need - 1).bit_length())))

    def _resize(self, size: int) -> None:
        waiting = self._end - self._start
        larger = bytearray(size)
        larger[:waiting] = memoryview(self._buffer)[self._start : self._end]
        self._buffer, self._start, self._end = larger, 0, waiting

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
            if out and isinstance(out[0], Slice) and out[0].size <= WRITE_BUFFER_BYTES:
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
        """The next piece of the slice at the head, or nothing if it has first to be read from the disk."""
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
            piece = await self._owner.run_blocking(chunk.next_piece)
        except Exception as error:
            self._cannot_read(error)
            return
        self._is_fetching_piece = False
        if self._transport is not None:
            if not chunk.size:
                self._out.popleft()
            self._transport.write(piece)
            self._pump()

    def _cannot_read(self, error: Exception) -> None:
        """The answer has begun and cannot be ended, whatever the reason: the client asks again, and is then told."""
        if isinstance(error, DamagedLog):
            self._owner.damaged(error)
        self.close(f"an answer could not be read from the log: {error!r}")


def _keep_alive(connected: socket.socket, limits: KeepAlive) -> None:
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, limit in zip(("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT"), limits, strict=True):
        if hasattr(socket, option):
            connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), limit)
