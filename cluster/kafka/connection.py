"""A client connection: the asyncio protocol around a `ReceiveBuffer` and an `AnswerQueue`.

A request is parsed in place in the receive buffer, in the protocol callback, and has a slot in the response queue. Its
handler fills the slot. All responses that are ready at the head of the queue are sent in one write. A slot may hold
slices of a log; the connection reads a slice piece by piece as the client takes it.

The memory that a client makes the broker hold is counted in pools shared by all connections (docs/adr/0026).
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, cast

import structlog

from cordwood.cluster.kafka.answer_queue import AnswerQueue, Slot
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import NO_SOFTWARE
from cordwood.cluster.kafka.connection_memory import ConnectionMemory
from cordwood.cluster.kafka.fetch_sessions import NO_SESSION
from cordwood.cluster.kafka.keep_alive import KeepAlive
from cordwood.cluster.kafka.receive_buffer import BUFFER_BYTES_USUAL, ReceiveBuffer
from cordwood.cluster.kafka.wire import Malformed
from cordwood.cluster.resources.memory import MemoryPool
from cordwood.cluster.security.principal import NO_IDENTITY, Identity
from cordwood.replication.channel import Chunk, ReadPiece
from cordwood.replication.frames import FIRST_KEY_BYTE
from cordwood.replication.waiters import EndOfTickScheduler
from cordwood.storage.errors import DamagedLog, StorageError
from cordwood.storage.slices import Slice

if TYPE_CHECKING:
    from cordwood.cluster.kafka.authenticator import Authenticator

SASL_APIS = (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)
"""APIs whose requests belong to the connection's authenticator, if it has one."""

_events = structlog.get_logger("connection")


Handle = Callable[["Connection", memoryview, Slot], None]


class ConnectionOwner(Protocol):
    """The server of a connection."""

    keep_alive: KeepAlive

    end_of_tick: EndOfTickScheduler
    read_piece: ReadPiece
    request_bytes_max: int
    other_bytes_max: int
    """Maximum size of a request of any API but Produce."""
    memory: ConnectionMemory

    def opened(self, connection: "Connection") -> None: ...

    def closed(self, connection: "Connection") -> None: ...

    def damaged(self, damage: DamagedLog) -> None: ...


def _ignore(_connection: "Connection", _frame: memoryview, _slot: Slot) -> None:
    """Handle no frame of a closed connection."""


def _forget(_connection: "Connection") -> None:
    """Do nothing at the end of a throttling."""


class Connection(asyncio.BufferedProtocol):
    """An asyncio or uvloop protocol. `handle` is called with each frame and the slot for its response."""

    def __init__(self, owner: ConnectionOwner, listener: str, handle: Handle) -> None:
        self._owner, self.listener, self._handle = owner, listener, handle
        self.end_of_tick = owner.end_of_tick
        self.client_host = ""
        self.identity = NO_IDENTITY
        """Who the client is. The authenticator of the listener replaces it."""
        self.software = NO_SOFTWARE
        """Name and version of the client's library, from its ApiVersions request (KIP-511)."""
        self.must_authenticate = False
        """Whether its listener has SASL."""
        self.authenticator: Authenticator | None = None
        """The SASL authentication of this connection; None on a listener without SASL."""
        self.is_authenticating = False
        self._is_on_behalf = False
        """Whether the identity is that of a user for whom a broker sends the requests."""
        self._refusal: str | None = None
        """The reason for which only a broker is admitted, once it is authenticated."""
        self.number = 0
        """Rises with each connection that the server accepts; 0 for others."""
        self.last_active = self.opened_at = 0.0
        self.fetch_session = NO_SESSION
        """The fetch session that this connection created (`fetch_sessions.py`)."""
        self.is_broker = False
        """Whether the peer is a follower. The connection is then never closed to make room for clients."""
        self.on_closed: Callable[[], None] | None = None
        self.ended: dict[Callable[[Connection], None], None] = {}
        """Called once the connection has ended, by those that hold something for it."""
        self._loop = asyncio.get_running_loop()
        self._memory, self._pools = owner.memory, owner.memory.pools
        self._transport: asyncio.Transport | None = None
        self.is_open = False
        self.received = ReceiveBuffer(self._pools, owner.request_bytes_max, owner.other_bytes_max)
        self.answers = AnswerQueue(self._pools)
        self.stalled_at = 0.0
        self.waits_for: MemoryPool | None = None
        self._is_reading = True
        self.partial_since = 0.0
        self._muted: asyncio.TimerHandle | None = None
        """The end of the time for which no request is handled; None if the client is not throttled."""
        self._on_unmuted: Callable[[Connection], None] = _forget

    @property
    def is_waited_for(self) -> bool:
        """Whether a response is pending. Such a connection is not idle."""
        return bool(self.answers.slots or self.answers.chunks)

    @property
    def is_arriving(self) -> bool:
        return self._is_reading and self.received.waiting_bytes > 0

    def partial_for(self, now: float) -> float:
        """Return the seconds since `partial_since`; 0 if no request is incomplete, or the connection is not read."""
        return now - self.partial_since if self.partial_since and self._is_reading else 0.0

    def stalled_for(self, now: float) -> float:
        """Return the seconds since the client last took response bytes; 0 if the transport accepts writes."""
        if self.answers.may_write:
            return 0.0
        before = self.answers.unsent_bytes
        self._count_unsent()
        if self.answers.unsent_bytes < before:
            self.stalled_at = now
        return now - self.stalled_at

    def idle_for(self, now: float) -> float:
        """Return the seconds since the last received byte; 0 while a response is pending."""
        return 0.0 if self.is_waited_for else now - self.last_active

    @property
    def is_unused(self) -> bool:
        """Whether the client never sent a byte, or is not authenticated."""
        return self.is_authenticating or self.last_active == self.opened_at

    @property
    def peer_certificate(self) -> bytes | None:
        """The certificate (DER) that the client has proved, on a TLS listener that asks for one."""
        tls = None if self._transport is None else self._transport.get_extra_info("ssl_object")
        certificate: bytes | None = None if tls is None else tls.getpeercert(binary_form=True)
        return certificate

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not subclasses of asyncio.Transport.
        self._transport = cast(asyncio.Transport, transport)
        self.is_open = True
        peer = transport.get_extra_info("peername")
        self.client_host = str(peer[0]) if peer else ""
        self.identity = Identity(host=self.client_host)
        self.opened_at = self.last_active = self._loop.time()
        # A limit of 0: bytes that the kernel refuses are counted, and nothing is written before they are sent.
        self._transport.set_write_buffer_limits(high=0)
        self._owner.opened(self)
        connected = transport.get_extra_info("socket")
        if connected is not None:
            self._owner.keep_alive.apply(connected)

    def connection_lost(self, _error: Exception | None) -> None:
        self._release()
        self._owner.closed(self)
        if self.on_closed is not None:
            self.on_closed()
        for on_end in self.ended:
            on_end(self)
        self.ended.clear()

    def close(self, reason: str | None = None) -> None:
        """Abort the connection. Log `reason` if there is one."""
        if self._transport is not None:
            if reason is not None:
                _events.warning("connection.closed", client=self.client_host, listener=self.listener, reason=reason)
                if self.is_authenticating and self.authenticator is not None:
                    self.authenticator.note(reason)
            self._transport.abort()
            self._release()

    def finish(self) -> None:
        """Take no further request, and close once the responses that are ready have been sent."""
        self._is_reading = True
        self.wake()
        if self._transport is not None:
            self._transport.close()

    def guard(self, authenticator: "Authenticator", frame_bytes_max: int) -> None:
        """Let the authenticator handle all frames, of at most that size, until the client is authenticated."""
        self.authenticator, self.is_authenticating = authenticator, True
        self.received.limit(frame_bytes_max, frame_bytes_max, guarded=True)
        self.handle_by(authenticator.gate)

    def authenticated(self, identity: Identity, handle: Handle) -> None:
        """Handle the requests of a client that has proved its identity."""
        self.is_authenticating = False
        if not self._is_on_behalf:
            # A broker that authenticates again continues with the requests of its user.
            self.identity = identity
        self.received.limit(self._owner.request_bytes_max, self._owner.other_bytes_max)
        self.handle_by(handle)
        if self._refusal is not None:
            self.admit_broker(self._refusal)

    def act_for(self, identity: Identity) -> None:
        """Handle all further requests as those of a user for whom a broker sends them."""
        self.identity, self._is_on_behalf = identity, True

    def handle_by(self, handle: Handle) -> None:
        """Handle the next frames with another function."""
        self._handle = handle

    def admit_broker(self, refusal: str) -> None:
        """Accept only a follower's first frame: a connection limit is reached. Close on any other, with `refusal`."""
        if self.is_authenticating:
            self._refusal = refusal
            return
        self._refusal = None
        handle = self._handle

        def introduced(connection: Connection, frame: memoryview, slot: Slot) -> None:
            if frame[0] < FIRST_KEY_BYTE:
                self.close(refusal)
            else:
                self._handle = handle
                handle(connection, frame, slot)

        self._handle = introduced

    def intercept(self, first: "Callable[[Connection, memoryview, Slot, Handle], None]") -> None:
        """Let `first` take the next frame, with the function that would have handled it."""
        handle = self._handle

        def intercepted(connection: Connection, frame: memoryview, slot: Slot) -> None:
            self._handle = handle
            first(connection, frame, slot, handle)

        self._handle = intercepted

    def mute(self, seconds: float, on_unmuted: "Callable[[Connection], None]") -> None:
        """Handle no further request for some time. `on_unmuted` is called at its end, or when the connection closes."""
        if self._muted is None or self._muted.when() < self._loop.time() + seconds:
            if self._muted is not None:
                self._muted.cancel()
            self._muted, self._on_unmuted = self._loop.call_later(seconds, self.unmute), on_unmuted
        self._stop_reading()

    def unmute(self) -> None:
        """Handle requests again."""
        if self._muted is not None:
            self._muted.cancel()
            self._muted = None
            self._on_unmuted(self)
            self.wake()

    def put_back(self, slot: Slot) -> None:
        """Handle the request of the last slot again, once reading resumes."""
        self.received.put_back(slot.size)
        self.answers.withdraw()

    def push(self, chunks: list[Chunk]) -> None:
        """Queue frames that answer no request. They leave in queue order, at the end of this event-loop iteration."""
        if self._transport is not None:
            slot = Slot(self, 0)
            slot.chunks = chunks
            self.answers.slots.append(slot)
            self.end_of_tick.answered(self)

    def reserve(self, slot: Slot, size: int, alone: bool) -> bool:
        """Implement `Slot.reserve`. The slot belongs to the request being handled."""
        if self.answers.reserve(slot, size, alone=alone):
            return True
        if not self.answers.is_alone:
            self._memory.wait(self, self._pools.pending)
        self.put_back(slot)
        self._stop_reading()
        return False

    def freeze(self) -> None:
        """Keep the receive buffer unchanged, with the request being handled in it, until `thaw`."""
        self.received.is_frozen = True

    def keep(self, frame: memoryview) -> memoryview:
        """Return a stable view of the request being handled: a copy if small, else the frozen buffer until `thaw`."""
        if len(frame) <= BUFFER_BYTES_USUAL:
            return memoryview(bytes(frame))
        self.freeze()
        return frame

    def thaw(self, *, shrinks: bool = False) -> None:
        """Release the frozen buffer, and handle the next request if it may be handled."""
        if self.received.is_frozen:
            self.received.is_frozen = False
            if shrinks:
                self.received.shrink()
            self.wake()

    def try_again(self) -> None:
        """Retry the allocation that a full pool refused."""
        self.waits_for = None
        if self._transport is not None:
            self.received.make_room()
            self._grow_if_wanted()
            if self._may_handle():
                self.partial_since = self.partial_since and self._loop.time()
                self._read_on()

    def get_buffer(self, _sizehint: int) -> memoryview:
        # Not a method of the buffer, as with `end` below: that would be one more call for each read.
        received = self.received
        if received.room_wanted:
            received.resize()
        return received.space[received.end : received.room]

    def buffer_updated(self, count: int) -> None:
        received = self.received
        received.end += count
        self.last_active = self._loop.time()
        filled = received.end == received.room
        self._take_frames()
        if filled and received.room < received.bytes_usual and self._transport is not None:
            self._may_grow(received.bytes_usual)
        if received.end == received.start:
            self.partial_since = 0.0
        elif not self.partial_since:
            self.partial_since = self.last_active

    def pause_writing(self) -> None:
        self.answers.may_write = False
        self.stalled_at = self._loop.time()

    def resume_writing(self) -> None:
        self.answers.resume()
        self.wake()

    def wake(self) -> None:
        """Send the responses that are ready at the head of the queue."""
        answers, slots = self.answers, self.answers.slots
        try:
            output = answers.take_answered() if slots and slots[0].chunks is not None else answers.next_output()
            while output is not None and self._transport is not None:
                if not isinstance(output, (list, Slice)):
                    self._transport.write(output)
                elif isinstance(output, list):
                    self._transport.writelines(output)
                else:
                    self._loop.create_task(self._read_piece(output))
                output = answers.next_output() if answers.chunks and answers.may_write else None
        except (StorageError, OSError) as error:
            self._cannot_read(error)
        if not answers.may_write:
            self._count_unsent()
        if not self._is_reading and self._may_handle():
            self._read_on()

    def fail(self, error: Exception) -> None:
        self.close(f"a response could not be sent: {error!r}")

    def _release(self) -> None:
        """Free all memory: a long poll may still reference the connection, and must not keep its buffers alive."""
        self._transport = None
        self.is_open = False
        self.received.release()
        self.answers.release()
        self.unmute()
        if self.authenticator is not None:
            self.authenticator.closed()
            # They refer to each other, and would stay until the garbage collector looks for old cycles.
            self.authenticator, self._handle = None, _ignore
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
        """Handle the requests that have arrived, until one has to wait."""
        received, answers = self.received, self.answers
        while self._is_reading and self._transport is not None:
            try:
                frame = received.next_frame()
            except Malformed as malformed:
                self.close(str(malformed))
                return
            if frame is None:
                if received.is_frozen or received.wanted_bytes:
                    self._grow_if_wanted()
                return
            size = len(frame)
            slot = answers.admit(self, size)
            if slot is None:
                received.put_back(size)
                self._stop_reading()
                return
            self.partial_since = 0.0
            self._handle(self, frame, slot)

    def _may_handle(self) -> bool:
        """Return whether the next request may be handled."""
        may_take = self.waits_for is None and self._muted is None and not self.received.is_frozen
        return may_take and self.answers.has_room()

    def _grow_if_wanted(self) -> None:
        """Grow the receive buffer if an incomplete request fills it. Stop reading if it cannot grow, or is frozen."""
        size = self.received.wanted_bytes
        if size and not self._may_grow(size):
            self._memory.wait(self, self._pools.receive if size <= BUFFER_BYTES_USUAL else self._pools.large)
        if self.received.is_frozen or self.received.wanted_bytes:
            self._stop_reading()

    def _may_grow(self, size: int) -> bool:
        """Grow the receive buffer, if need be after all connections have freed their empty ones."""
        if self.received.grow(size, by_force=self.is_broker):
            return True
        self._memory.reclaim()
        return self.received.grow(size)

    def _count_unsent(self) -> None:
        if self._transport is not None:
            before = self.answers.unsent_bytes
            self.answers.count_unsent(self._transport.get_write_buffer_size())
            if not before or not self._pools.unsent.has_room(0):
                self._memory.stalled(self)

    async def _read_piece(self, chunk: Slice) -> None:
        try:
            piece = await self._owner.read_piece(chunk)
        except Exception as error:
            self._cannot_read(error)
            return
        self.answers.piece_read(chunk)
        if self._transport is not None:
            self._transport.write(piece)
            self.wake()

    def _cannot_read(self, error: Exception) -> None:
        """Close: a response was sent in part and cannot be completed. The client's retry gets an error code."""
        if isinstance(error, DamagedLog):
            self._owner.damaged(error)
        self.close(f"a response could not be read from the log: {error!r}")
