"""Outgoing TLS connections."""

import asyncio
import ssl
from collections.abc import Callable

from cordwood.cluster.security.tls_errors import TlsRefused
from cordwood.cluster.security.tls_owner import TlsState
from cordwood.cluster.security.tls_transport import TlsTransport


class _Dial:
    """The owner of one outgoing connection."""

    def __init__(self, context: ssl.SSLContext, where: str) -> None:
        self._context, self._where = context, where
        self.made: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def arrived(self, transport: TlsTransport) -> None:
        transport.begin(self._context)

    def hello(self, _transport: TlsTransport) -> None:
        raise AssertionError("a client gets no ClientHello")

    def failed(self, _transport: TlsTransport, sentence: str) -> float:
        self.made.set_exception(TlsRefused(f"{self._where}: {sentence}"))
        return 0.0

    def done(self, transport: TlsTransport) -> None:
        if self.made.done():
            return
        if transport.state is TlsState.OPEN:
            self.made.set_result(None)
        else:
            self.made.set_exception(TlsRefused(f"{self._where}: the connection was closed during the TLS handshake"))


async def connect(
    factory: Callable[[], asyncio.BaseProtocol],
    host: str,
    port: int,
    context: ssl.SSLContext,
    *,
    timeout_s: float,
) -> tuple[TlsTransport, asyncio.BaseProtocol]:
    """Connect with TLS. The certificate is checked for `host` if the context requires it. Raises OSError."""
    dial, protocol = _Dial(context, f"{host}:{port}"), factory()
    loop = asyncio.get_running_loop()
    transport: TlsTransport
    _, transport = await loop.create_connection(lambda: TlsTransport(dial, protocol, host), host, port)
    try:
        async with asyncio.timeout(timeout_s):
            await dial.made
    except TimeoutError:
        transport.abort()
        raise TlsRefused(f"{host}:{port}: no TLS handshake within {timeout_s:g} s") from None
    except BaseException:
        transport.abort()
        raise
    return transport, protocol
