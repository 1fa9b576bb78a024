"""TLS between a TCP transport and a protocol: a transport for the protocol, and the protocol of the TCP transport.

It counts every byte that the kernel refuses, as `write_buffer_size`, sends TLS alerts to the client of a failed
handshake, and holds no buffer while it has nothing to read or write (docs/adr/0033).
"""

import asyncio
import contextlib
import ssl
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, cast

from cordwood.cluster.security.tls_errors import NOT_TLS, sentence_of
from cordwood.cluster.security.tls_owner import Owner, TlsState

RECORD_BYTES = 16 << 10
"""Plaintext of the largest TLS record."""
BURST_BYTES = 16 * RECORD_BYTES
"""Plaintext that is encrypted for one write to the socket."""
BULK_BYTES = 4 * RECORD_BYTES
"""Bytes that pass through a buffer of OpenSSL at once. The buffer keeps the size of the largest piece."""
BULK_FROM_BYTES = 1 << 20
"""A connection that has received so much is fed with BULK_BYTES, others with RECORD_BYTES: no client receives so much
before it is authenticated."""
SCRATCH_BYTES = 256 << 10
HELLO_BYTES_MAX = 16 << 10
"""OpenSSL allocates what the header of a ClientHello announces, up to 128 KiB."""
HANDSHAKE_BYTES_MAX = 64 << 10
NOTIFY_S = 1.0
"""Maximum time for the close_notify of an aborted connection to be sent."""
REPLY_BYTES_MAX, BARREN_BYTES_MAX, PER_PLAIN_BYTE = 8 << 10, 36 << 10, 128
"""Key updates take 30 µs each: bytes of answers to them, and received bytes without, and for each, decrypted byte."""
_HEADER_BYTES = 9
"""Header of a record, and of the handshake message in it."""

_scratch = memoryview(bytearray(SCRATCH_BYTES))
"""Ciphertext from the kernel, of all connections: it is consumed in the callback that receives it."""

Bytes = bytes | bytearray | memoryview


class TlsTransport(asyncio.Transport, asyncio.BufferedProtocol):
    """One TLS connection. `protocol` gets `connection_made` after the handshake."""

    __slots__ = (
        "_app",
        "_backlog",
        "_backlog_bytes",
        "_barren",
        "_hello",
        "_high",
        "_incoming",
        "_is_app_paused",
        "_is_buffered",
        "_is_closing",
        "_is_plain_paused",
        "_is_reading",
        "_low",
        "_outgoing",
        "_owner",
        "_plain",
        "_received",
        "_replied",
        "_server_hostname",
        "_ssl",
        "client_host",
        "on_failure",
        "state",
    )

    def __init__(self, owner: Owner, protocol: asyncio.BaseProtocol, server_hostname: str | None = None) -> None:
        super().__init__()
        self._owner, self._server_hostname = owner, server_hostname
        self.on_failure: Callable[[str], None] | None = None
        """Called with a sentence if TLS fails after the handshake: in TLS 1.3 a server refuses certificates then."""
        self._set_app(protocol)
        self.state = TlsState.HELLO
        self.client_host = ""
        self._plain: asyncio.Transport | None = None
        self._ssl: ssl.SSLObject | None = None
        self._hello = b""
        self._received = self._replied = self._barren = 0
        self._is_reading, self._is_closing = True, False
        self._is_plain_paused = self._is_app_paused = False
        self._backlog: deque[Bytes] = deque()
        self._backlog_bytes = 0
        self.set_write_buffer_limits()

    # The protocol of the TCP transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._plain = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self.client_host = str(peer[0]) if peer else ""
        self._plain.set_write_buffer_limits(high=0)
        self._owner.arrived(self)

    def get_buffer(self, _sizehint: int) -> memoryview:
        return _scratch

    def buffer_updated(self, count: int) -> None:
        if self.state is TlsState.OPEN:
            if count <= RECORD_BYTES:
                self._barren += count
                self._incoming.write(_scratch[:count])
                self._drain()
            else:
                self._feed(_scratch[:count])
        elif self.state is TlsState.HANDSHAKE:
            self._received += count
            self._incoming.write(_scratch[:count])
            self._shake()
        elif self.state is TlsState.HELLO:
            self._take_hello(bytes(_scratch[:count]))

    def eof_received(self) -> None:
        if self.state is TlsState.OPEN:
            self._app.eof_received()

    def pause_writing(self) -> None:
        self._is_plain_paused = True

    def resume_writing(self) -> None:
        self._is_plain_paused = False
        if self.state is TlsState.OPEN:
            self._send()

    def connection_lost(self, error: Exception | None) -> None:
        was, self.state = self.state, TlsState.CLOSED
        self._plain = self._ssl = None
        self._hello = b""
        self._backlog.clear()
        self._backlog_bytes = 0
        if was is TlsState.OPEN:
            self._app.connection_lost(error)
        else:
            self._owner.done(self)

    # The handshake.

    def begin(self, context: ssl.SSLContext) -> None:
        """Start the handshake, with the ClientHello that has arrived if this is the server."""
        if self._plain is None or self.state is TlsState.CLOSED:
            return
        is_server, queued = self._server_hostname is None, self.state is TlsState.QUEUED
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._ssl = context.wrap_bio(
            self._incoming, self._outgoing, server_side=is_server, server_hostname=self._server_hostname or None
        )
        self.state = TlsState.HANDSHAKE
        self._incoming.write(self._hello)
        self._hello = b""
        self._shake()
        if queued and self._plain is not None and self._is_reading:
            self._plain.resume_reading()

    def refuse(self, sentence: str) -> None:
        """End a handshake, with an alert to the other side if OpenSSL has one."""
        if self.state in (TlsState.OPEN, TlsState.CLOSED) or self._plain is None:
            return
        self.state = TlsState.CLOSED
        self._hello = b"" if self._ssl is None else self._outgoing.read()
        self._ssl = None
        delay_s = self._owner.failed(self, sentence)
        if delay_s:
            self._plain.pause_reading()
            asyncio.get_running_loop().call_later(delay_s, self._close_refused)
        else:
            self._close_refused()

    def _close_refused(self) -> None:
        if self._plain is not None:
            self._plain.write(self._hello)
            self._plain.close()
        self._owner.done(self)

    def _take_hello(self, data: bytes) -> None:
        self._hello += data
        if not self._hello.startswith(b"\x16\x03"[: len(self._hello)]):
            self.refuse(NOT_TLS)
        elif len(self._hello) >= _HEADER_BYTES:
            if self._hello[5] != 1 or int.from_bytes(self._hello[6:9]) > HELLO_BYTES_MAX:
                self.refuse("the client's first message is not a ClientHello, or it is too long")
                return
            assert self._plain is not None
            self.state = TlsState.QUEUED
            self._plain.pause_reading()
            self._owner.hello(self)

    def _shake(self) -> None:
        assert self._ssl is not None
        try:
            self._ssl.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            if self._received > HANDSHAKE_BYTES_MAX:
                self.refuse("the handshake is too long")
            return
        except (ssl.SSLError, ValueError) as error:
            self.refuse(sentence_of(error, is_server=self._server_hostname is None))
            return
        self.state = TlsState.OPEN
        self._flush()
        self._owner.done(self)
        if self.state is TlsState.OPEN:
            self._app.connection_made(self)
            self._drain()

    # Reading.

    def _feed(self, data: memoryview) -> None:
        """Decrypt. Bytes that the protocol does not take stay in the buffer of OpenSSL until reading resumes."""
        self._received += len(data)
        step = BULK_BYTES if self._received > BULK_FROM_BYTES else RECORD_BYTES
        for start in range(0, len(data), step):
            if not self._is_reading or self.state is not TlsState.OPEN:
                self._incoming.write(data[start:])
                return
            if self._is_flooded:
                return
            self._barren += min(step, len(data) - start)
            self._incoming.write(data[start : start + step])
            self._drain()

    def _drain(self) -> None:
        """Pass the decrypted bytes to the protocol, as long as there are some and it reads."""
        try:
            if self._is_buffered:
                self._drain_into_buffers()
            else:
                self._drain_as_bytes()
        except ssl.SSLWantReadError:
            if self._outgoing.pending:
                self._replied += self._outgoing.pending
                self._flush()
            if self._is_flooded:
                self.abort()
        except ssl.SSLError as error:
            # The bytes were changed on their way, or an alert has arrived.
            self._flush()
            self._abort(error)

    @property
    def _is_flooded(self) -> bool:
        """Whether the other side has sent too many key updates."""
        return self._barren > BARREN_BYTES_MAX or self._replied > REPLY_BYTES_MAX

    def _drain_into_buffers(self) -> None:
        app, tls, incoming = self._app, self._ssl, self._incoming
        while self._is_reading and self.state is TlsState.OPEN:
            room = app.get_buffer(-1)
            size = len(room)
            if not size:
                return
            assert tls is not None
            count: int = tls.read(size, room)  # type: ignore[assignment]
            if not count:
                self._ended()
                return
            while count < size and incoming.pending:
                try:
                    more: int = tls.read(size - count, room[count:])  # type: ignore[assignment]
                except ssl.SSLWantReadError:
                    break
                if not more:
                    break
                count += more
            self._barren = max(0, self._barren - PER_PLAIN_BYTE * count)
            app.buffer_updated(count)
            if not incoming.pending and not tls.pending():
                return

    def _drain_as_bytes(self) -> None:
        while self._is_reading and self.state is TlsState.OPEN:
            assert self._ssl is not None
            data = self._ssl.read(RECORD_BYTES)
            if not data:
                self._ended()
                return
            self._barren = max(0, self._barren - PER_PLAIN_BYTE * len(data))
            self._app.data_received(data)
            if not self._incoming.pending and not (self._ssl is not None and self._ssl.pending()):
                return

    def _ended(self) -> None:
        """Close after the other side's close_notify."""
        if self.state is TlsState.OPEN:
            self._app.eof_received()
            self.close()

    # The transport of the protocol.

    def write(self, data: Bytes) -> None:
        if self._backlog or self._is_plain_paused or len(data) > RECORD_BYTES:
            self.writelines((data,))
        elif data and self.state is TlsState.OPEN and not self._is_closing:
            self._write_record(data)

    def writelines(self, list_of_data: Iterable[Bytes]) -> None:
        if self.state is not TlsState.OPEN or self._is_closing:
            return
        for data in list_of_data:
            if data:
                self._backlog.append(data)
                self._backlog_bytes += len(data)
        if not self._is_plain_paused:
            self._send()
        if self._backlog:
            # The caller may change buffers that are not readonly after the call.
            self._backlog = deque(data if memoryview(data).readonly else bytes(data) for data in self._backlog)
            self._pace_app()

    def _write_record(self, data: Bytes) -> None:
        """Encrypt and write a short message at once: most responses are one."""
        assert self._ssl is not None
        assert self._plain is not None
        try:
            self._ssl.write(data)
        except ssl.SSLError as error:
            self._abort(error)
            return
        self._plain.write(self._outgoing.read())
        if self._is_plain_paused:
            self._pace_app()

    def _send(self) -> None:
        """Encrypt and write, until the kernel takes no more."""
        assert self._plain is not None
        try:
            while self._backlog and not self._is_plain_paused:
                self._plain.writelines(self._encrypted_burst())
        except ssl.SSLError as error:
            self._abort(error)
            return
        if self._is_closing and not self._backlog:
            self._finish()
        if self._is_plain_paused or self._is_app_paused:
            self._pace_app()

    def _encrypted_burst(self) -> list[bytes]:
        """Take up to BURST_BYTES from the backlog. Small pieces are joined: each record costs 22 bytes and a call."""
        assert self._ssl is not None
        backlog, encrypt, outgoing = self._backlog, self._ssl.write, self._outgoing
        encrypted, size = list[bytes](), 0
        while backlog and size < BURST_BYTES:
            data = backlog.popleft()
            if backlog and len(data) + len(backlog[0]) <= RECORD_BYTES:
                data = self._joined(data)
            view, end = memoryview(data), min(len(data), BURST_BYTES)
            for start in range(0, end, RECORD_BYTES):
                encrypt(view[start : start + RECORD_BYTES])
                if outgoing.pending >= BULK_BYTES:
                    encrypted.append(outgoing.read())
            if end < len(view):
                backlog.appendleft(view[end:])
            size += end
        encrypted.append(outgoing.read())
        self._backlog_bytes -= size
        return encrypted

    def _joined(self, first: Bytes) -> bytes:
        """Take more pieces from the backlog, as many as fit into a record with the first."""
        backlog, pieces, size = self._backlog, [first], len(first)
        while backlog and size + len(backlog[0]) <= RECORD_BYTES:
            pieces.append(backlog.popleft())
            size += len(pieces[-1])
        return b"".join(pieces)

    def _pace_app(self) -> None:
        size = self.get_write_buffer_size()
        if size > self._high and not self._is_app_paused:
            self._is_app_paused = True
            self._app.pause_writing()
        elif size <= self._low and self._is_app_paused:
            self._is_app_paused = False
            self._app.resume_writing()

    def _flush(self) -> None:
        if self._ssl is not None and self._plain is not None and self._outgoing.pending:
            self._plain.write(self._outgoing.read())

    def get_write_buffer_size(self) -> int:
        unsent = 0 if self._plain is None else self._plain.get_write_buffer_size()
        return self._backlog_bytes + unsent

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = (64 << 10 if low is None else 4 * low) if high is None else high
        self._low = self._high // 4 if low is None else low

    def is_reading(self) -> bool:
        return self._is_reading and self.state is TlsState.OPEN

    def pause_reading(self) -> None:
        if self._is_reading:
            self._is_reading = False
            if self._plain is not None:
                self._plain.pause_reading()

    def resume_reading(self) -> None:
        if not self._is_reading:
            self._is_reading = True
            if self._plain is not None:
                self._plain.resume_reading()
                if self._incoming.pending or (self._ssl is not None and self._ssl.pending()):
                    asyncio.get_running_loop().call_soon(self._drain)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "ssl_object" or name == "sslcontext":
            if self._ssl is None:
                return default
            return self._ssl if name == "ssl_object" else self._ssl.context
        return default if self._plain is None else self._plain.get_extra_info(name, default)

    def is_closing(self) -> bool:
        return self._is_closing or self._plain is None or self._plain.is_closing()

    def close(self) -> None:
        """Close once everything is sent."""
        if self.state is not TlsState.OPEN:
            self.abort()
        elif not self._is_closing:
            self._is_closing = True
            if not self._backlog:
                self._finish()

    def abort(self) -> None:
        """Close at once. A peer that has read everything so far gets a close_notify, as from Kafka."""
        is_first, self._is_closing = not self._is_closing, True
        if self._plain is None:
            return
        has_sent_all = not self._backlog and not self._plain.get_write_buffer_size()
        if is_first and has_sent_all and self.state is TlsState.OPEN:
            self._finish()
            asyncio.get_running_loop().call_later(NOTIFY_S, self._plain.abort)
        else:
            self._plain.abort()

    def _finish(self) -> None:
        """Send the close_notify. The other side's is not waited for."""
        assert self._ssl is not None
        assert self._plain is not None
        with contextlib.suppress(ssl.SSLError):
            self._ssl.unwrap()
        self._flush()
        self._plain.close()

    def _abort(self, error: Exception) -> None:
        """Close after an error of TLS, with the alert that has been written."""
        self._is_closing = True
        if self.on_failure is not None:
            self.on_failure(sentence_of(error, is_server=self._server_hostname is None))
        if self._plain is not None:
            self._plain.close()

    def can_write_eof(self) -> bool:
        return False

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._set_app(protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        return cast(asyncio.BaseProtocol, self._app)

    def _set_app(self, protocol: asyncio.BaseProtocol) -> None:
        self._app = cast(Any, protocol)
        self._is_buffered = isinstance(protocol, asyncio.BufferedProtocol)
