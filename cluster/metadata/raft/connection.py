"""One quorum connection: length-prefixed frames, first of the handshake, then of messages."""

import asyncio
from collections.abc import Callable
from struct import Struct
from typing import Protocol, cast

from cordwood.cluster.metadata.commands import BrokerId
from cordwood.cluster.metadata.raft.handshake import (
    FRAME_BYTES_MAX as HANDSHAKE_BYTES_MAX,
)
from cordwood.cluster.metadata.raft.handshake import (
    Handshake,
    HandshakeRefused,
    Peer,
    RefusedByPeer,
    refusal,
)
from cordwood.cluster.metadata.raft.messages import MalformedMessage, Message, decode, encode
from cordwood.cluster.metadata.raft.tls import FIRST_BYTE, CertificateRefused, RaftTlsFailed, TlsStream

FRAME_BYTES_MAX = 64 << 20
"""The largest frame of a voter: an image of some hundred thousand partitions."""
OBSERVER_FRAME_BYTES_MAX = 4 << 20
"""The largest frame of an observer, which sends no image: a command or a heartbeat."""
UNSENT_BYTES_MAX = 4 << 20
"""The limit of the send buffer. Above it, no message is sent until the peer has read."""

_LENGTH = Struct("<I")
_KEEP_ALIVE = _LENGTH.pack(0)


class FrameReceiver(Protocol):
    """The owner of the connections."""

    def shake_hands(self, connection: "RaftConnection", send: Callable[[bytes], None]) -> Handshake: ...

    def tls_for(self, connection: "RaftConnection") -> TlsStream | None:
        """Return the TLS of a new connection; None for one without TLS."""
        ...

    def may_be_plaintext(self) -> bool:
        """Return whether an incoming connection may do without TLS, though this broker uses it."""
        ...

    def established(self, connection: "RaftConnection") -> None: ...

    def received(self, connection: "RaftConnection", message: Message) -> None:
        """Take a message. Raises MalformedMessage if it is invalid from this peer."""
        ...

    def ended(self, connection: "RaftConnection", reason: Exception | None) -> None:
        """Handle the end of a connection.

        `reason` is HandshakeRefused, RefusedByPeer, MalformedMessage, TlsFailed or CertificateRefused; None for a
        connection that broke.
        """
        ...


class RaftConnection(asyncio.Protocol):
    """One connection. `peer` is None during the handshake; `dialled` is the dialled broker, None if incoming."""

    def __init__(self, owner: FrameReceiver, dialled: BrokerId | None = None) -> None:
        self._owner = owner
        self.dialled = dialled
        self._buffer = bytearray()
        self._is_closed = False
        self._is_first = True
        self._tls: TlsStream | None = None
        self._loop = asyncio.get_running_loop()
        self.peer: Peer | None = None
        self.address = "?"
        self.heard_at_s = self._loop.time()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do not derive from asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        host, port, *_ = transport.get_extra_info("peername") or ("?", 0)
        self.address = f"{host}:{port}"
        self._handshake = self._owner.shake_hands(self, self._write)
        self._tls = self._owner.tls_for(self)
        if self._tls is None:
            self._handshake.begin()
        elif self.dialled is not None:
            self._tls.begin()
            self._transport.write(self._tls.take_unsent())

    def data_received(self, data: bytes) -> None:
        if self.peer is not None:
            # Before the end of the handshake, received bytes do not extend the idle timeout.
            self.heard_at_s = self._loop.time()
        try:
            self._buffer += data if self._tls is None else self._decrypted(data, self._tls)
            self._take_frames()
        except (HandshakeRefused, CertificateRefused) as reason:
            self._write(refusal(str(reason)))
            self.close(reason)
        except (RefusedByPeer, MalformedMessage, RaftTlsFailed) as reason:
            self.close(reason)

    def connection_lost(self, _error: Exception | None) -> None:
        self.close(None)

    def send(self, message: Message) -> bool:
        """Send a message. Return False, and send nothing, if the peer does not keep up."""
        if self._is_closed or self._transport.get_write_buffer_size() > UNSENT_BYTES_MAX:
            return False
        self._write(encode(message))
        return True

    def keep_alive(self) -> None:
        if not self._is_closed and self._transport.get_write_buffer_size() == 0:
            self._send(_KEEP_ALIVE)

    def close(self, reason: Exception | None = None) -> None:
        """Close the connection after sending the buffered bytes."""
        if not self._is_closed:
            self._is_closed = True
            self._buffer.clear()
            self._transport.close()
            self._owner.ended(self, reason)

    def abort(self) -> None:
        """Close the connection without sending the buffered bytes: the peer is down, or has a newer connection."""
        self._transport.abort()
        self.close()

    def _write(self, frame: bytes) -> None:
        self._send(_LENGTH.pack(len(frame)) + frame)

    def _send(self, data: bytes) -> None:
        self._transport.write(data if self._tls is None else self._tls.encrypt(data))

    def _decrypted(self, data: bytes, tls: TlsStream) -> bytes:
        """Take bytes for TLS, and return the decrypted ones. An incoming connection may turn out to be without."""
        is_first, self._is_first = self._is_first, False
        if is_first and self.dialled is None and data[:1] != FIRST_BYTE and self._owner.may_be_plaintext():
            self._tls = None
            return data
        was_ready = tls.is_ready
        try:
            received = tls.receive(data)
        finally:
            # After a failure this is an alert.
            if unsent := tls.take_unsent():
                self._transport.write(unsent)
        if tls.is_ready and not was_ready:
            self._handshake.begin()
        return received

    def _take_frames(self) -> None:
        buffer, position = self._buffer, 0
        while not self._is_closed and len(buffer) - position >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(buffer, position)
            if length > self._frame_bytes_max:
                raise MalformedMessage(f"a frame of {length} bytes")
            end = position + _LENGTH.size + length
            if end > len(buffer):
                break
            if length:
                self._take(bytes(memoryview(buffer)[position + _LENGTH.size : end]))
            position = end
        if not self._is_closed:
            del buffer[:position]

    @property
    def _frame_bytes_max(self) -> int:
        if self.peer is None:
            return HANDSHAKE_BYTES_MAX
        return FRAME_BYTES_MAX if self.peer.keeps_log else OBSERVER_FRAME_BYTES_MAX

    def _take(self, frame: bytes) -> None:
        if self.peer is not None:
            self._owner.received(self, decode(frame))
            return
        peer = self._handshake.receive(frame)
        if peer is not None:
            self.peer = peer
            self._owner.established(self)
