"""Outgoing connections to other brokers, for replication, repair and requests of the HTTP API."""

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple

import structlog

from cordwood.client.codec import BadResponse, ClientCodec
from cordwood.client.credentials import NotAuthenticated, SaslCredentials
from cordwood.client.sasl import SaslDialog
from cordwood.cluster.kafka.answer_queue import Slot
from cordwood.cluster.kafka.connection import Connection
from cordwood.cluster.kafka.connection_memory import ConnectionMemory
from cordwood.cluster.kafka.frame_steps import handle_rest
from cordwood.cluster.kafka.keep_alive import KeepAlive
from cordwood.cluster.resources.memory import Memory
from cordwood.cluster.security.tls_dial import connect
from cordwood.cluster.security.tls_errors import TlsRefused
from cordwood.replication.channel import Channel, ReadPiece, Received
from cordwood.replication.frames import MalformedFrame
from cordwood.replication.tasks import RunBlocking, Tasks
from cordwood.replication.waiters import EndOfTickScheduler
from cordwood.storage.errors import DamagedLog

PEER = "peer"
"""The listener name of outgoing connections in the log."""
CLIENT_ID = "broker"

FRAME_BYTES_MAX = (1 << 31) - 1
"""Frames of any size are accepted from a leader: a single batch may be as large as a topic allows."""
DIAL_AGAIN_S = 1.0
"""How long a broker is not dialled after it was not authenticated, or did not authenticate this one."""
LOGGED_AGAIN_S = 60.0
DIAL_S, SECURE_DIAL_S = 1.0, 5.0
"""How long a connection may take to open, without and with TLS or authentication."""
FIRST_ID_BYTE = 0x70
"""The first byte of the correlation ids of authentication. Other responses and pushes begin with lower bytes."""
RENEWED_AFTER = (0.85, 0.95)
"""The share of a session's lifetime after which it is renewed, at random between these limits (KIP-368)."""
RENEWAL_S = 10.0
ENDED = "the broker ended the connection during the authentication"

_events = structlog.get_logger("peers")


@dataclass(frozen=True, slots=True)
class LinkSecurity:
    """How connections to other brokers are opened. Each one asks for context and credentials: they may change."""

    tls: Callable[[], ssl.SSLContext] | None = None
    credentials: Callable[[], SaslCredentials] | None = None


OPEN_LINKS = LinkSecurity()
"""No TLS and no authentication."""


class Peers:
    """The dialler of other brokers. Every received frame is passed to the callback of its caller."""

    keep_alive = KeepAlive(idle_s=1, interval_s=1, probes=3, covers_unacknowledged=True)
    """Short intervals, so that an unreachable leader is dialled again: TCP's retransmission backoff is slower.

    A report that was on its way when the network failed must not keep the connection: a broker that returns with
    another address would be a follower without data until TCP times out.
    """

    def __init__(
        self,
        end_of_tick: EndOfTickScheduler,
        read_piece: ReadPiece,
        run_blocking: RunBlocking,
        rng: Random,
        security: LinkSecurity = OPEN_LINKS,
    ) -> None:
        """`run_blocking` derives keys from passwords."""
        self.end_of_tick, self.read_piece = end_of_tick, read_piece
        self.request_bytes_max = self.other_bytes_max = FRAME_BYTES_MAX
        self.memory = ConnectionMemory(Memory.unlimited())
        self._run_blocking, self._rng, self._security = run_blocking, rng, security
        self.dial_s = DIAL_S if security is OPEN_LINKS else SECURE_DIAL_S
        """How long a caller waits for `dial`."""
        self._loop = asyncio.get_running_loop()
        self._tasks = Tasks()
        self._failures: dict[tuple[str, int], _Failure] = {}

    async def dial(self, host: str, port: int, received: Received) -> Channel:
        """Connect to a broker; `received` is called with each frame. Raises OSError."""
        self._check_failure(host, port)
        try:
            return await self._dial(host, port, received)
        except (NotAuthenticated, TlsRefused) as error:
            self._note_failure(host, port, error)
            raise

    async def close(self) -> None:
        """Renew no session any more, and handle no further step of a frame."""
        await self._tasks.close()

    def opened(self, _connection: Connection) -> None:
        """Do nothing: outgoing connections have no limit."""

    def closed(self, _connection: Connection) -> None:
        """Do nothing: the caller of `dial` has `on_closed`."""

    def damaged(self, _damage: DamagedLog) -> None:
        """Do nothing: a follower sends no slices of its log to a leader."""

    async def _dial(self, host: str, port: int, received: Received) -> Connection:
        tls, credentials = self._security.tls, self._security.credentials
        link = Link(received, self._tasks)
        opened = Connection(self, PEER, link.handle)
        if tls is None:
            await self._loop.create_connection(lambda: opened, host, port)
        else:
            encrypted, _ = await connect(lambda: opened, host, port, tls(), timeout_s=SECURE_DIAL_S)
            encrypted.on_failure = lambda reason: self._note_failure(host, port, TlsRefused(reason))
        if credentials is not None:
            opened.on_closed = link.lost
            try:
                lifetime_s = await self._authenticate(link, opened, credentials())
            except BaseException:
                opened.close()
                raise
            if lifetime_s:
                self._tasks.spawn(self._renew(link, opened, lifetime_s))
        return opened

    async def _authenticate(self, link: "Link", connection: Connection, credentials: SaslCredentials) -> float:
        """Prove this broker's identity. Return the seconds after which it is to be proved again; 0 for never."""
        dialog = SaslDialog(credentials)
        request: object = dialog.begin()
        while request is not None:
            response = await link.ask(connection, request)
            # A thread derives the keys of SCRAM.
            request = await self._run_blocking(dialog.next, response)
        return dialog.session_lifetime_ms / 1000

    async def _renew(self, link: "Link", connection: Connection, lifetime_s: float) -> None:
        """Authenticate again, on the open connection, before each session ends."""
        assert self._security.credentials is not None, "the session has begun"
        while connection.is_open and lifetime_s:
            await asyncio.sleep(lifetime_s * self._rng.uniform(*RENEWED_AFTER))
            if not connection.is_open:
                return
            try:
                async with asyncio.timeout(RENEWAL_S):
                    lifetime_s = await self._authenticate(link, connection, self._security.credentials())
            except (OSError, TimeoutError) as error:
                connection.close(f"the session could not be renewed: {error}")

    def _check_failure(self, host: str, port: int) -> None:
        failed = self._failures.get((host, port))
        if failed is not None and self._loop.time() < failed.at_s + DIAL_AGAIN_S:
            raise ConnectionAbortedError(failed.reason)

    def _note_failure(self, host: str, port: int, error: OSError) -> None:
        """Log a failed authentication, the same one at most once a minute."""
        now_s, reason, before = self._loop.time(), str(error), self._failures.get((host, port))
        is_known = before is not None and before.reason == reason and now_s < before.logged_at_s + LOGGED_AGAIN_S
        logged_at_s = before.logged_at_s if before is not None and is_known else now_s
        self._failures[host, port] = _Failure(reason, now_s, logged_at_s)
        if not is_known:
            _events.warning("peer.not_authenticated", address=f"{host}:{port}", reason=reason)


class _Failure(NamedTuple):
    """Why the authentication with the broker at an address failed, and when. Times are the event loop's."""

    reason: str
    at_s: float
    logged_at_s: float


class Link:
    """The receiver of one connection: frames for its caller, and among them the responses to authentication."""

    def __init__(self, received: Received, tasks: Tasks) -> None:
        self._received, self._tasks = received, tasks
        self._codec = ClientCodec[None](CLIENT_ID, last_id=FIRST_ID_BYTE << 24)
        self._response: asyncio.Future[Any] | None = None

    def handle(self, connection: Connection, frame: memoryview, _slot: Slot) -> None:
        connection.answers.withdraw()
        try:
            if self._response is not None and frame[0] == FIRST_ID_BYTE:
                response = self._codec.take(frame).message
                if not self._response.done():
                    self._response.set_result(response)
            elif (rest := self._received(frame)) is not None:
                handle_rest(rest, connection, self._tasks, self._malformed)
        except (MalformedFrame, BadResponse) as malformed:
            self._malformed(connection, malformed)

    async def ask(self, connection: Connection, request: Any) -> Any:
        """Send a request of the authentication, and return the response. Raises ConnectionResetError."""
        if not connection.is_open:
            raise ConnectionResetError(ENDED)
        self._response = asyncio.get_running_loop().create_future()
        connection.push([self._codec.encode(request, None)])
        try:
            return await self._response
        finally:
            self._response = None

    def _malformed(self, connection: Connection, malformed: Exception) -> None:
        connection.close(f"a broker sent {malformed}")
        self.lost()

    def lost(self) -> None:
        """Fail the request that waits for its response: the connection has ended."""
        if self._response is not None and not self._response.done():
            self._response.set_exception(ConnectionResetError(ENDED))
