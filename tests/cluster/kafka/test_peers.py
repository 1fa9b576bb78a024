"""Outgoing connections to other brokers that require authentication, in simulated time."""

import asyncio
import io
import random
import ssl
import struct
from collections.abc import Callable, Coroutine
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
import trustme
from kio.schema.errors import ErrorCode
from kio.schema.sasl_authenticate.v1.response import SaslAuthenticateResponse
from kio.schema.sasl_handshake.v1.response import SaslHandshakeResponse
from kio.serial import entity_writer
from quorum_fixture import run_here

from cordwood.chaos.sim.loop import Process, SimulatedLoop
from cordwood.chaos.sim.loop import run as run_simulated
from cordwood.chaos.sim.network import SimulatedNetwork
from cordwood.client.credentials import Mechanism, NotAuthenticated, SaslCredentials
from cordwood.cluster.kafka.connection import Connection
from cordwood.cluster.kafka.peers import DIAL_AGAIN_S, LinkSecurity, Peers
from cordwood.cluster.security.tls_listener import TlsListener
from cordwood.cluster.security.tls_transport import TlsTransport
from cordwood.replication.frames import PushRow, encode_push
from cordwood.replication.waiters import EndOfTickScheduler

HOST, PORT = "broker-2", 9092
PASSWORD = "the password of brokers"
HANDSHAKE, AUTHENTICATE = 17, 36
PUSH = encode_push([PushRow(1, 0, 7, 0)], 0)
LIFETIME_S = 10.0
QUESTION = struct.pack(">ihhi", 8, 18, 0, 1)


class ScriptedLeader(asyncio.Protocol):
    """A broker that takes PLAIN with the password. Between all its answers it pushes, as a leader does."""

    def __init__(self, visits: "list[ScriptedLeader]", lifetime_s: float = 0) -> None:
        self.lifetime_s = lifetime_s
        self.authentications: list[float] = []
        self.other_frames: list[bytes] = []
        self.is_lost = False
        self._received = bytearray()
        visits.append(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, _error: Exception | None) -> None:
        self.is_lost = True

    def data_received(self, data: bytes) -> None:
        self._received += data
        while len(self._received) >= 4 and len(self._received) >= 4 + (size := self._size()):
            frame, self._received = bytes(self._received[4 : 4 + size]), self._received[4 + size :]
            self._take(frame)

    def _size(self) -> int:
        return int.from_bytes(self._received[:4], "big")

    def _take(self, frame: bytes) -> None:
        key, correlation_id = struct.unpack_from(">h2xi", frame)
        if key == HANDSHAKE:
            self._answer(correlation_id, SaslHandshakeResponse(error_code=ErrorCode.none, mechanisms=("PLAIN",)))
            if self.authentications:
                self._transport.write(PUSH)
        elif key == AUTHENTICATE:
            is_right = frame.endswith(f"\0broker\0{PASSWORD}".encode())
            self.authentications.append(asyncio.get_running_loop().time())
            code = ErrorCode.none if is_right else ErrorCode.sasl_authentication_failed
            lifetime: Any = timedelta(seconds=self.lifetime_s)
            self._answer(
                correlation_id,
                SaslAuthenticateResponse(
                    error_code=code, error_message=None, auth_bytes=b"", session_lifetime=lifetime
                ),
            )
        else:
            self.other_frames.append(frame)

    def _answer(self, correlation_id: int, response: Any) -> None:
        body = io.BytesIO()
        entity_writer(type(response))(body, response)
        self._transport.write(struct.pack(">ii", 4 + len(body.getvalue()), correlation_id) + body.getvalue())


class PeersFixture:
    """A broker that dials a scripted leader."""

    def __init__(self, password: str = PASSWORD, lifetime_s: float = 0) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimulatedLoop)
        self.loop = loop
        self.network = SimulatedNetwork(loop, random.Random(1))
        self.visits: list[ScriptedLeader] = []
        self.frames: list[bytes] = []
        listening = Process(HOST).context()
        listening.run(self.network.listen, lambda: ScriptedLeader(self.visits, lifetime_s), HOST, PORT)
        credentials = SaslCredentials(Mechanism.PLAIN, "broker", password)
        self.peers = Peers(
            EndOfTickScheduler(loop), run_here, run_here, random.Random(1), LinkSecurity(None, lambda: credentials)
        )

    async def dial(self) -> Connection:
        connection = await self.peers.dial(HOST, PORT, lambda frame: self.frames.append(bytes(frame)))
        assert isinstance(connection, Connection)
        return connection


class OpenGate:
    """A server without limits of connections."""

    def shaking(self, _transport: TlsTransport) -> None: ...

    def shaken(self, _transport: TlsTransport) -> None: ...

    def failed(self, _listener: str, _host: str, _reason: str) -> None: ...


def run(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(600):
            await story()

    async def reported() -> None:
        loop = asyncio.get_running_loop()
        await loop.create_task(bounded(), context=Process("broker-1").context())

    run_simulated(reported())


def test_a_connection_is_authenticated_before_its_first_frame() -> None:
    async def story() -> None:
        fixture = PeersFixture()
        connection = await fixture.dial()
        (leader,) = fixture.visits
        assert len(leader.authentications) == 1
        connection.push([QUESTION])
        await asyncio.sleep(1)
        assert leader.other_frames == [QUESTION[4:]]

    run(story)


def test_a_refused_broker_does_not_dial_in_a_loop() -> None:
    async def story() -> None:
        fixture = PeersFixture(password="wrong")
        with pytest.raises(NotAuthenticated):
            await fixture.dial()
        with pytest.raises(ConnectionAbortedError, match="PLAIN failed"):
            await fixture.dial()
        await asyncio.sleep(DIAL_AGAIN_S)
        assert [leader.is_lost for leader in fixture.visits] == [True]
        with pytest.raises(NotAuthenticated):
            await fixture.dial()

    run(story)


def test_a_refusal_of_the_certificate_after_the_handshake_is_noted() -> None:
    authority = trustme.CA()
    server, client = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), ssl.create_default_context()
    server.verify_mode = ssl.CERT_REQUIRED
    for context in (server, client):
        authority.configure_trust(context)
    authority.issue_cert("127.0.0.1").configure_cert(server)

    async def story() -> None:
        loop = asyncio.get_running_loop()
        handshakes = TlsListener("INTERNAL", lambda: server, OpenGate(), loop.time)
        listening = await loop.create_server(lambda: handshakes.wrap(asyncio.Protocol()), "127.0.0.1", 0)
        port = listening.sockets[0].getsockname()[1]
        links = LinkSecurity(lambda: client)
        peers = Peers(EndOfTickScheduler(loop), run_here, run_here, random.Random(1), links)
        closed = asyncio.Event()
        connection = await peers.dial("127.0.0.1", port, lambda _: None)
        connection.on_closed = closed.set
        if connection.is_open:
            await closed.wait()
        (failure,) = peers._failures.values()
        assert "certificate" in failure.reason
        listening.close()

    asyncio.run(asyncio.wait_for(story(), 60))


def test_a_broker_that_ends_the_connection_meanwhile() -> None:
    async def story() -> None:
        fixture = PeersFixture()
        dialling = fixture.loop.create_task(fixture.dial())
        while not fixture.visits:
            await asyncio.sleep(0.001)
        fixture.network.disconnect("broker-1", HOST)
        with pytest.raises(ConnectionResetError):
            await dialling

    run(story)


def test_a_session_is_renewed_on_the_open_connection_between_pushes() -> None:
    async def story() -> None:
        fixture = PeersFixture(lifetime_s=LIFETIME_S)
        connection = await fixture.dial()
        (leader,) = fixture.visits
        await asyncio.sleep(3 * LIFETIME_S)
        times = leader.authentications
        assert len(times) >= 4
        assert all(0 < later - earlier < LIFETIME_S for earlier, later in pairwise(times))
        assert connection.is_open
        assert fixture.frames == [PUSH[4:]] * (len(times) - 1)
        await fixture.peers.close()

    run(story)


def test_a_session_that_cannot_be_renewed_ends_the_connection() -> None:
    async def story() -> None:
        fixture = PeersFixture(lifetime_s=LIFETIME_S)
        closed = asyncio.Event()
        connection = await fixture.dial()
        connection.on_closed = closed.set
        fixture.peers._security = LinkSecurity(None, lambda: SaslCredentials(Mechanism.PLAIN, "broker", "changed"))
        await closed.wait()
        assert len(fixture.visits[0].authentications) == 2

    run(story)
