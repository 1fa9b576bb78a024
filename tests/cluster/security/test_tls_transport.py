"""TLS between a TCP transport and a protocol: bytes, backpressure, failed handshakes and the end of connections."""

import _ssl
import asyncio
import ctypes
import os
import random
import socket
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import uvloop
from tls_fixture import Recorder, Stores, TlsServer, until

from cordwood.cluster.security import tls_listener
from cordwood.cluster.security.tls_dial import connect
from cordwood.cluster.security.tls_errors import NOT_TLS, TlsRefused
from cordwood.cluster.security.tls_transport import BARREN_BYTES_MAX, RECORD_BYTES, REPLY_BYTES_MAX, TlsTransport

BIG = random.Random(7).randbytes(3_000_000)


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Stores:
    return Stores(tmp_path_factory.mktemp("tls"))


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Awaitable[None]], None]:
    def runs(work: Awaitable[None]) -> None:
        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(work)  # type: ignore[arg-type]

    return runs


async def connected(server: TlsServer, stores: Stores) -> tuple[Recorder, Recorder]:
    """Return the client's and the server's end of a new connection."""
    client = Recorder()
    await connect(lambda: client, "127.0.0.1", server.port, stores.client_context(), timeout_s=30)
    await server.accepted[-1].made.wait()
    return client, server.accepted[-1]


def test_bytes_arrive_in_order_in_both_directions(stores: Stores, run: Callable[[Awaitable[None]], None]) -> None:
    async def scenario() -> None:
        server = await TlsServer(stores.tls()).start()
        client, accepted = await connected(server, stores)
        pieces = [BIG[:1], BIG[1:200], b"", BIG[200:20_000], memoryview(BIG)[20_000:2_000_000], BIG[2_000_000:]]
        client.transport.writelines(pieces)
        client.transport.write(b"end")
        changed = bytearray(BIG)
        accepted.transport.write(changed)
        changed[:] = bytes(len(changed))
        await until(lambda: len(accepted.received) == len(BIG) + 3 and len(client.received) == len(BIG))
        assert (bytes(accepted.received), bytes(client.received)) == (BIG + b"end", BIG)
        assert not server.in_handshake
        server.close()

    run(scenario())


def test_bytes_that_the_client_does_not_take_are_counted(
    stores: Stores, run: Callable[[Awaitable[None]], None]
) -> None:
    async def scenario() -> None:
        server = await TlsServer(stores.tls()).start()
        client, accepted = await connected(server, stores)
        client.transport.pause_reading()
        size = 0
        while not accepted.is_paused:
            accepted.transport.write(BIG)
            size += len(BIG)
        for _ in range(3):
            accepted.transport.write(BIG)
        size += 3 * len(BIG)
        assert accepted.transport.get_write_buffer_size() > 3 * len(BIG)
        client.transport.resume_reading()
        await until(lambda: len(client.received) == size and not accepted.is_paused)
        assert accepted.transport.get_write_buffer_size() == 0
        server.close()

    run(scenario())


def test_a_protocol_that_does_not_read_gets_nothing(stores: Stores, run: Callable[[Awaitable[None]], None]) -> None:
    async def scenario() -> None:
        server = await TlsServer(stores.tls()).start()
        client, accepted = await connected(server, stores)
        accepted.on_data = lambda: accepted.transport.pause_reading()
        client.transport.write(BIG[: 4 * RECORD_BYTES])
        await until(lambda: bool(accepted.received))
        seen = len(accepted.received)
        assert seen <= RECORD_BYTES
        client.transport.write(BIG[4 * RECORD_BYTES : 200_000])
        for _ in range(10):
            await asyncio.sleep(0)
        assert len(accepted.received) == seen
        accepted.on_data = lambda: None
        accepted.transport.resume_reading()
        await until(lambda: len(accepted.received) == 200_000)
        assert bytes(accepted.received) == BIG[:200_000]
        server.close()

    run(scenario())


@pytest.mark.parametrize(
    ("sent", "sentence"),
    [
        (b"\0\0\0\x0a\0\x12\0\0\0\0\0\1\0\1", NOT_TLS),
        (b"GET / HTTP/1.1\r\n\r\n", NOT_TLS),
        (b"\x16\x03\x01\x40\x00\x01\x01\xff\xff" + bytes(100), "the client's first message is not a ClientHello"),
        (b"\x16\x03\x01\x00\x64\x0e\x00\x00\x00" + bytes(100), "the client's first message is not a ClientHello"),
        (b"\x16\x03\x01\x00\x64\x01\x00\x00\x60" + bytes(100), "the TLS handshake with the client failed"),
    ],
    ids=["kafka", "http", "announces 128 KiB", "no hello", "garbage"],
)
def test_what_is_no_handshake_costs_a_sentence(
    stores: Stores, run: Callable[[Awaitable[None]], None], sent: bytes, sentence: str
) -> None:
    async def scenario() -> None:
        server = await TlsServer(stores.tls()).start()
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(sent)
        await reader.read()
        writer.close()
        (failure,) = server.failures
        assert sentence in failure
        assert not server.in_handshake
        assert not server.accepted[0].made.is_set()
        server.close()

    run(scenario())


def test_a_first_byte_at_a_time_is_a_hello_too(stores: Stores, run: Callable[[Awaitable[None]], None]) -> None:
    async def scenario() -> None:
        server = await TlsServer(stores.tls()).start()
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = stores.client_context().wrap_bio(incoming, outgoing, server_hostname="localhost")
        with pytest.raises(ssl.SSLWantReadError):
            tls.do_handshake()
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        for byte in outgoing.read():
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0)
        incoming.write(await reader.read(1 << 16))
        tls.do_handshake()
        writer.write(outgoing.read())
        await server.accepted[0].made.wait()
        writer.close()
        server.close()

    run(scenario())


def test_a_late_handshake_ends(
    stores: Stores, run: Callable[[Awaitable[None]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_listener, "HANDSHAKE_S", 0.05)

    async def scenario() -> None:
        server = await TlsServer(stores.tls()).start()
        silent, slow = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(2)]
        slow[1].write(b"\x16\x03\x01")
        assert (await silent[0].read(), await slow[0].read()) == (b"", b"")
        assert server.failures == ["the client did not complete the TLS handshake within 0.05 s"] * 2
        assert not server.in_handshake
        server.close()

    run(scenario())


def test_the_second_failure_of_an_address_is_answered_late(
    stores: Stores, run: Callable[[Awaitable[None]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_listener, "FAILURE_DELAY_S", 3600.0)

    async def scenario() -> None:
        server = await TlsServer(stores.tls()).start()
        for _ in range(3):
            _, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
        await until(lambda: len(server.failures) == 3)
        # The first one is closed; the others count for the limits of connections as long as they wait.
        await until(lambda: len(server.in_handshake) == 2)
        # Others at the address still get in.
        await connected(server, stores)
        server.close()

    run(scenario())


def test_a_client_without_a_certificate_gets_an_alert(stores: Stores, run: Callable[[Awaitable[None]], None]) -> None:
    async def scenario() -> None:
        server = await TlsServer(stores.tls(ssl_client_auth="required")).start()
        context = stores.client_context()
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        with pytest.raises(TlsRefused, match="handshake failure"):
            await connect(Recorder, "127.0.0.1", server.port, context, timeout_s=30)
        assert server.failures == ["the client has sent no certificate, and ssl.client.auth is required"]
        client = Recorder()
        certified = stores.client_context(stores.ca.issue_cert("alice@example.org"))
        await connect(lambda: client, "127.0.0.1", server.port, certified, timeout_s=30)
        server.close()

    run(scenario())


def test_a_certificate_of_another_authority_is_refused_on_both_sides(
    stores: Stores, run: Callable[[Awaitable[None]], None], tmp_path: Path
) -> None:
    async def scenario() -> None:
        server = await TlsServer(stores.tls(ssl_client_auth="required")).start("0.0.0.0")
        others = Stores(tmp_path)
        with pytest.raises(TlsRefused, match="the broker's certificate is refused"):
            await connect(Recorder, "127.0.0.1", server.port, others.client_context(), timeout_s=30)
        await until(lambda: server.failures != [])
        assert "its truststore lacks the authority that signed this broker's certificate" in server.failures[0]
        stranger = stores.client_context(others.ca.issue_cert("alice@example.org"))
        stranger.maximum_version = ssl.TLSVersion.TLSv1_2
        with pytest.raises(TlsRefused):
            await connect(Recorder, "127.0.0.1", server.port, stranger, timeout_s=30)
        assert "the client's certificate is refused: unable to get local issuer certificate" in server.failures[1]
        with pytest.raises(TlsRefused, match=r"the broker's certificate is refused: .*mismatch"):
            await connect(Recorder, "127.0.0.2", server.port, stores.client_context(), timeout_s=30)
        server.close()

    run(scenario())


def test_either_side_may_end_a_connection(stores: Stores, run: Callable[[Awaitable[None]], None]) -> None:
    async def scenario() -> None:
        server = await TlsServer(stores.tls()).start()
        client, accepted = await connected(server, stores)
        client.transport.write(BIG)
        client.transport.close()
        await accepted.lost.wait()
        await client.lost.wait()
        assert bytes(accepted.received) == BIG
        client, accepted = await connected(server, stores)
        accepted.transport.abort()
        await client.lost.wait()
        await accepted.lost.wait()
        accepted.transport.write(b"too late")
        server.close()

    run(scenario())


def test_an_aborted_connection_ends_with_a_close_notify(stores: Stores, run: Callable[[Awaitable[None]], None]) -> None:
    """Without it, a client of OpenSSL 3 reports an error of TLS where a broker restarts."""

    def ends_of(port: int) -> tuple[bytes, bytes]:
        with socket.create_connection(("127.0.0.1", port), 30) as plain:
            context = stores.client_context()
            with context.wrap_socket(plain, server_hostname="127.0.0.1", suppress_ragged_eofs=False) as client:
                return client.recv(100), client.recv(100)

    async def scenario() -> None:
        server = await TlsServer(stores.tls()).start()
        ends = asyncio.ensure_future(asyncio.to_thread(ends_of, server.port))
        await until(lambda: bool(server.accepted))
        accepted = server.accepted[-1]
        await accepted.made.wait()
        accepted.transport.write(b"last")
        accepted.transport.abort()
        assert await ends == (b"last", b"")
        server.close()

    run(scenario())


def test_changed_bytes_end_the_connection(stores: Stores, run: Callable[[Awaitable[None]], None]) -> None:
    async def scenario() -> None:
        server = await TlsServer(stores.tls()).start()
        client, accepted = await connected(server, stores)
        plain = client.transport.get_extra_info("socket")
        os.write(plain.fileno(), b"\x17\x03\x03\x00\x30" + bytes(48))
        await accepted.lost.wait()
        assert not accepted.received
        server.close()

    run(scenario())


def update_key(transport: TlsTransport, *, is_asking: bool = True) -> None:
    """Send a key update of TLS 1.3, which may ask for an answer, by OpenSSL: Python's ssl cannot do so."""
    assert transport._ssl is not None
    openssl = ctypes.CDLL(_ssl.__file__)
    # The address of OpenSSL's connection comes after the head and the first field of Python's object.
    pointer = ctypes.c_void_p.from_address(id(transport._ssl._sslobj) + 24)  # type: ignore[attr-defined]
    assert openssl.SSL_key_update(pointer, int(is_asking)) == 1
    assert openssl.SSL_do_handshake(pointer) == 1
    transport._flush()


def test_key_updates_are_answered_and_end_the_connection_if_there_are_too_many(
    stores: Stores, run: Callable[[Awaitable[None]], None]
) -> None:
    async def scenario() -> None:
        server = await TlsServer(stores.tls()).start()
        client, accepted = await connected(server, stores)
        for _ in range(10):
            update_key(client.transport)
        await until(lambda: accepted.transport._replied > 0)
        client.transport.write(b"still here")
        await until(lambda: bytes(accepted.received) == b"still here")
        assert not accepted.transport._outgoing.pending
        for _ in range(REPLY_BYTES_MAX // 20):
            update_key(client.transport)
        await until(lambda: accepted.transport.is_closing())
        server.close()

    run(scenario())


def test_key_updates_without_bytes_for_the_protocol_end_the_connection(
    stores: Stores, run: Callable[[Awaitable[None]], None]
) -> None:
    async def scenario() -> None:
        server = await TlsServer(stores.tls()).start()
        client, accepted = await connected(server, stores)
        for byte in range(BARREN_BYTES_MAX // 50):
            client.transport.write(bytes((byte & 0xFF,)))
        await until(lambda: len(accepted.received) == BARREN_BYTES_MAX // 50)
        for _ in range(BARREN_BYTES_MAX // 20):
            update_key(client.transport, is_asking=False)
        await until(lambda: accepted.transport.is_closing())
        server.close()

    run(scenario())
