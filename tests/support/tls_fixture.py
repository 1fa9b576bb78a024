"""A CA, certificate files, and a TLS server with a recording protocol, on this event loop."""

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import trustme

from cordwood.cluster.config.settings import Settings
from cordwood.cluster.config.sources import load
from cordwood.cluster.security.tls import Tls
from cordwood.cluster.security.tls_listener import TlsListener
from cordwood.cluster.security.tls_options import options_of
from cordwood.cluster.security.tls_transport import TlsTransport

NOW_MS = 1_800_000_000_000


def pem_of(certificate: trustme.LeafCert) -> bytes:
    """Return key and chain, as in a PEM keystore."""
    return certificate.private_key_pem.bytes() + b"".join(one.bytes() for one in certificate.cert_chain_pems)


class Stores:
    """A keystore and a truststore in a directory."""

    def __init__(self, directory: Path) -> None:
        self.ca = trustme.CA()
        self.keystore, self.truststore = directory / "broker.pem", directory / "ca.pem"
        self.ca.cert_pem.write_to_path(str(self.truststore))
        self.renew()

    def renew(self, **options: Any) -> None:
        self.keystore.write_bytes(pem_of(self.ca.issue_cert("localhost", "127.0.0.1", **options)))

    def settings(self, **overrides: str) -> Settings:
        keys = {
            "listeners": "SSL://127.0.0.1:0",
            "ssl.keystore.location": str(self.keystore),
            "ssl.truststore.location": str(self.truststore),
            **{key.replace("_", "."): value for key, value in overrides.items()},
        }
        return load(None, {}, [f"{key}={value}" for key, value in keys.items()])

    def tls(self, **overrides: str) -> Tls:
        return Tls(options_of(self.settings(**overrides), "SSL"), lambda: NOW_MS)

    def client_context(self, certificate: trustme.LeafCert | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.truststore))
        if certificate is not None:
            certificate.configure_cert(context)
        return context


class Recorder(asyncio.BufferedProtocol):
    """A protocol like a broker's connection: it takes bytes in a buffer of its own."""

    def __init__(self) -> None:
        self.received = bytearray()
        self.transport: Any = None
        self.made, self.lost = asyncio.Event(), asyncio.Event()
        self.is_paused = False
        self.on_data: Callable[[], None] = lambda: None
        self._room = bytearray(50_000)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.transport.set_write_buffer_limits(high=0)
        self.made.set()

    def get_buffer(self, _sizehint: int) -> memoryview:
        return memoryview(self._room)

    def buffer_updated(self, count: int) -> None:
        self.received += self._room[:count]
        self.on_data()

    def pause_writing(self) -> None:
        self.is_paused = True

    def resume_writing(self) -> None:
        self.is_paused = False

    def connection_lost(self, _error: Exception | None) -> None:
        self.lost.set()


class TlsServer:
    """A listener with a `Recorder` for each connection; it is the gate of its handshakes."""

    def __init__(self, tls: Tls) -> None:
        self.accepted: list[Recorder] = []
        self.in_handshake: list[TlsTransport] = []
        self.failures: list[str] = []
        self.listener = TlsListener("SSL", tls.server_context, self, asyncio.get_running_loop().time)
        self.port = 0

    async def start(self, host: str = "127.0.0.1") -> "TlsServer":
        self._server = await asyncio.get_running_loop().create_server(self._accept, host, 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    def close(self) -> None:
        self._server.close()
        self.listener.close()
        for recorder in self.accepted:
            if recorder.transport is not None:
                recorder.transport.abort()

    def _accept(self) -> TlsTransport:
        self.accepted.append(Recorder())
        return self.listener.wrap(self.accepted[-1])

    def shaking(self, transport: TlsTransport) -> None:
        self.in_handshake.append(transport)

    def shaken(self, transport: TlsTransport) -> None:
        self.in_handshake.remove(transport)

    def failed(self, _listener: str, _host: str, reason: str) -> None:
        self.failures.append(reason)


async def until(condition: Callable[[], bool]) -> None:
    """Return once the condition holds. Raises TimeoutError."""
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.005)
