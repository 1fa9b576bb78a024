"""The HTTP server: health endpoints, error messages, and connection limits that do not affect other clients."""

import asyncio
import socket
from dataclasses import replace

import pytest
from aiohttp import ClientConnectionResetError
from http_fixture import LOOPBACK, HttpStory, run
from structlog.testing import capture_logs

from cordwood.cluster.http.server import (
    BACKLOG,
    CONNECTIONS_MAX,
    HEADER_BYTES_MAX,
    HEADERS_MAX,
    HttpServer,
    library_log,
)


def test_a_broker_is_alive_before_it_is_ready() -> None:
    async def story() -> None:
        async with HttpStory() as broker:
            broker.reason = "It is early."
            assert (await broker.ask("/healthz")).status == 200
            waiting = await broker.ask("/readyz")
            assert (waiting.status, waiting.text) == (503, "It is early.\n")
            broker.reason = None
            ready = await broker.ask("/readyz")
            assert (ready.status, ready.text) == (200, "ready\n")

    run(story())


def test_what_is_not_there_is_answered_with_what_is() -> None:
    async def story() -> None:
        async with HttpStory() as broker:
            answer = await broker.ask("/metric")
            assert answer.status == 404
            assert answer.json["error"].startswith("There is no route /metric. The routes are /healthz, /metrics, ")

    run(story())


def test_other_methods_are_refused_with_those_that_there_are() -> None:
    async def story() -> None:
        async with HttpStory() as broker:
            answer = await broker.ask("/metrics", "DELETE")
            assert (answer.status, answer.headers["Allow"]) == (405, "GET, HEAD")
            assert answer.json["error"] == "/metrics does not support DELETE: use GET, HEAD."
            assert (await broker.ask("/metrics", "HEAD")).status == 200

    run(story())


@pytest.mark.parametrize(
    "sent",
    [
        b"\x00\x00\x00\x10 this is Kafka's\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: x\r\nA: " + b"a" * (HEADER_BYTES_MAX + 1) + b"\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: x\r\n" + b"A: a\r\n" * (HEADERS_MAX + 1) + b"\r\n",
        b"GET /" + b"a" * (HEADER_BYTES_MAX + 1) + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
    ids=["another protocol", "a long header", "many headers", "a long path"],
)
def test_what_is_no_request_is_refused_without_a_traceback(sent: bytes) -> None:
    async def story() -> None:
        async with HttpStory() as broker:
            with capture_logs() as reported:
                assert b" 400 " in (await broker.send(sent)).splitlines()[0]
            assert not any("exc_info" in line for line in reported)
            assert (await broker.ask("/healthz")).status == 200

    run(story())


@pytest.mark.parametrize(
    "sent",
    [
        b"Content-Encoding: gzip\r\nContent-Length: 9\r\n\r\nno gzip..",
        b"Transfer-Encoding: chunked\r\n\r\nno length\r\n",
    ],
    ids=["an encoding", "a chunk"],
)
def test_an_unread_body_that_is_malformed_leaves_no_traceback(sent: bytes) -> None:
    async def story() -> None:
        async with HttpStory() as broker:
            with capture_logs() as reported:
                await broker.send(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n" + sent)
                assert (await broker.ask("/healthz")).status == 200
            assert not any("exc_info" in line for line in reported)

    run(story())


def test_an_unknown_expectation_is_refused_without_a_traceback() -> None:
    async def story() -> None:
        async with HttpStory() as broker:
            with capture_logs() as reported:
                sent = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nExpect: more\r\n\r\n"
                assert b" 417 " in (await broker.send(sent)).splitlines()[0]
            assert not any("exc_info" in line for line in reported)

    run(story())


def test_a_client_that_has_disconnected_leaves_no_traceback() -> None:
    with capture_logs() as lines:
        for error in (ClientConnectionResetError("Cannot write to closing transport"), RuntimeError("broken")):
            library_log().error("Error handling request from 127.0.0.1", exc_info=error)
    assert [str(line["exc_info"]) for line in lines] == ["broken"]


def test_connections_that_hang_keep_no_health_check_out() -> None:
    async def story() -> None:
        async with HttpStory() as broker:
            hanging = [await asyncio.open_connection(LOOPBACK, broker.port) for _ in range(CONNECTIONS_MAX + BACKLOG)]
            assert (await broker.ask("/healthz")).status == 200
            oldest, _ = hanging[0]
            assert await oldest.read() == b""
            reader, writer = hanging[-1]
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            assert (await reader.readline()).startswith(b"HTTP/1.1 200"), "idle ones are closed only for others"
            for _, writer in hanging:
                writer.close()

    run(story())


def test_a_port_that_is_taken_is_named() -> None:
    async def story() -> None:
        async with HttpStory() as broker:
            with pytest.raises(OSError, match="cannot listen") as refused:
                await HttpServer(broker.watched, broker.access_control).start(LOOPBACK, broker.port)
            assert refused.value.filename == f"http.listen on {LOOPBACK}:{broker.port}"

    run(story())


def test_an_answer_that_fails_is_logged_and_explained() -> None:
    def broken() -> str:
        raise RuntimeError("of unknown cause")

    async def story() -> None:
        broker = HttpStory()
        broker.server = HttpServer(replace(broker.watched, why_not_ready=broken), broker.access_control)
        async with broker:
            with capture_logs() as reported:
                answer = await broker.ask("/readyz")
            assert (answer.status, answer.json["error"]) == (
                500,
                "The broker failed to answer the request: see its log.",
            )
            (line,) = reported
            assert (line["event"], str(line["exc_info"])) == ("http.failed", "of unknown cause")
            assert line["request"] == answer.headers["X-Request-ID"]

    run(story())


def test_clients_that_do_not_take_their_answers_are_cut_off_when_there_are_too_many() -> None:
    async def story() -> None:
        async with HttpStory() as broker:
            pool = broker.watched.memory.http_unsent
            pool.limit = 64 << 10
            slow = [await _asks_without_end(broker.port) for _ in range(6)]
            while pool.closes < 2:
                await asyncio.sleep(0.01)
                assert pool.used <= pool.limit
            assert (await broker.ask("/healthz")).status == 200
            for client in slow:
                client.close()

    run(story())


async def _asks_without_end(port: int) -> socket.socket:
    """Return a client that requests many responses and reads none."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.setblocking(False)
    await asyncio.get_running_loop().sock_connect(client, (LOOPBACK, port))
    client.send(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n" * 500)
    return client
