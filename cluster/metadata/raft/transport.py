"""The quorum transport: one connection to each peer, dialled again after it breaks."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Protocol

import structlog

from cordwood.cluster.metadata.commands import BrokerId
from cordwood.cluster.metadata.image import Image
from cordwood.cluster.metadata.quorum import Address, QuorumOptions, VoterStatus
from cordwood.cluster.metadata.raft.connection import RaftConnection
from cordwood.cluster.metadata.raft.handshake import (
    ANY,
    Handshake,
    HandshakeRefused,
    Membership,
    Peer,
    PeerRole,
    RefusedByPeer,
    new_nonce,
)
from cordwood.cluster.metadata.raft.messages import Contradiction, MalformedMessage, Message
from cordwood.cluster.metadata.raft.tls import CertificateRefused, RaftTlsFailed, TlsStream
from cordwood.replication.tasks import Tasks, report

REDIAL_INTERVAL_S = 0.1
REDIAL_REFUSED_INTERVAL_S = 1.0
REDIAL_LATE_INTERVAL_S = 1.0
DIAL_TIMEOUT_S = 1.0
SILENCE_MAX_S = 3.0
"""The idle timeout of a connection."""
KEEP_ALIVE_INTERVAL_S = 0.5
PEERS_MAX = 256
HINTS_MAX = 256
"""Brokers that may be dialled because peers take them for voters. Beyond that, earlier hints are forgotten."""
NOWHERE = "", 0
UNIDENTIFIED_MAX = 64
"""Incoming connections before the end of the handshake. A peer begins the handshake with its first bytes."""

_events = structlog.get_logger("quorum")


class PeerEvents(Protocol):
    """The receiver of connection events."""

    def connected(self, peer: Peer) -> None: ...

    def disconnected(self, peer: Peer) -> None: ...

    def received(self, peer: Peer, message: Message) -> None: ...

    def refused(self, reason: str) -> None:
        """Handle the refusal of this broker by a majority of the voters."""
        ...


class Transport:
    """The connections of one broker. A voter dials the voters of lower ids, others dial all voters."""

    def __init__(self, options: QuorumOptions, image: Callable[[], Image], events: PeerEvents) -> None:
        """`image` returns the newest image, which has no cluster id before the cluster is formed."""
        self._options, self._image, self._events = options, image, events
        self._me, self._voters, self._hints = options.node_id, options.voters, dict(options.voters)
        self._role = PeerRole.OBSERVER
        self._are_configured = bool(options.voters)
        self._dialling: dict[BrokerId, asyncio.Task[None]] | None = None
        """By voter to dial; None before `start`."""
        self._suspects: set[BrokerId] = set()
        self._connections: dict[BrokerId, RaftConnection] = {}
        self._unidentified: dict[RaftConnection, BrokerId | None] = {}
        """Connections before the end of the handshake, each with the voter that was dialled, or None."""
        self._refusals: dict[BrokerId, str] = {}
        self._without_tls: set[BrokerId] = set()
        """Voters that are dialled without TLS next, while connections without TLS are allowed."""
        self._tls_failed: set[BrokerId] = set()
        self._logged: set[str] = set()
        self._tasks = Tasks()
        self._server: asyncio.Server | None = None

    async def listen(self, address: Address) -> int:
        """Accept connections. Return the port. Raises OSError."""
        host, port = address
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: RaftConnection(self), host or None, port, reuse_address=True)
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    def start(self) -> None:
        self._dialling = {}
        self._dial_voters()
        if self._options.bootstrap:
            self._tasks.repeat(self._look_for_voters, "quorum: bootstrap")
        self._tasks.repeat(self._keep_alive, "quorum: keep alive")

    def voters_are(self, voters: Mapping[BrokerId, Address], role: PeerRole, *, are_configured: bool) -> None:
        """Connect to these voters, in this role. Connections with others last as long as they do."""
        self._voters, self._role, self._are_configured = voters, role, are_configured
        self._hints.update(voters)
        self._refusals = {voter: reason for voter, reason in self._refusals.items() if voter in voters}
        self._dial_voters()

    def hint(self, voters: Mapping[BrokerId, Address]) -> None:
        """Dial the brokers that a peer takes for voters, too: this broker may lack the newest changes of the voters."""
        if len(self._hints.keys() | voters.keys()) > HINTS_MAX:
            self._hints = {voter: at for voter, at in self._hints.items() if voter in self._voters or voter == ANY}
            self._suspects &= self._voters.keys()
        self._hints.update(voters)
        self._suspects.update(voters)
        self._are_configured = False
        self._dial_voters()

    async def close(self) -> None:
        await self._tasks.close()
        if self._server is not None:
            self._server.close()
        for connection in [*self._connections.values(), *self._unidentified]:
            connection.close()
        await asyncio.sleep(0)

    def send(self, receiver: BrokerId, message: Message) -> bool:
        """Send a message. Return False if the receiver is not connected or does not keep up."""
        connection = self._connections.get(receiver)
        return connection is not None and connection.send(message)

    def is_connected(self, peer: BrokerId) -> bool:
        return peer in self._connections

    def connected(self) -> list[BrokerId]:
        """Return the connected peers that keep the log."""
        return [peer for peer, at in self._connections.items() if at.peer is not None and at.peer.keeps_log]

    def connected_voters(self) -> list[BrokerId]:
        return [voter for voter in self._voters if voter in self._connections]

    def connected_observers(self) -> list[BrokerId]:
        return [peer for peer in self._connections if peer not in self._voters]

    def status(self, peer: BrokerId, log_end: int | None) -> VoterStatus:
        """Return the status of another voter or an observer."""
        connection = self._connections.get(peer)
        if connection is None:
            return VoterStatus(peer, log_end, False, None)
        silent_s = asyncio.get_running_loop().time() - connection.heard_at_s
        return VoterStatus(peer, log_end, True, round(silent_s * 1000))

    def shake_hands(self, connection: RaftConnection, send: Callable[[bytes], None]) -> Handshake:
        dialled = self._unidentified[connection] = connection.dialled
        nonce = new_nonce(self._options.rng, self._options.levels)
        if dialled is None:
            self._make_room()
        voters, are_configured = self._voters.keys(), self._are_configured
        me = Membership.of(self._options, self._role, self._image(), voters, are_configured=are_configured)
        return Handshake(me, dialled, nonce, send)

    def tls_for(self, connection: RaftConnection) -> TlsStream | None:
        tls, dialled = self._options.tls, connection.dialled
        if tls is None or dialled in self._without_tls:
            return None
        return TlsStream(tls, None if dialled is None else self._hints.get(dialled, NOWHERE)[0])

    def may_be_plaintext(self) -> bool:
        tls = self._options.tls
        return tls is not None and tls.allows_plaintext

    def established(self, connection: RaftConnection) -> None:
        peer = connection.peer
        assert peer is not None, "the handshake is over"
        is_new = peer.broker_id not in self._voters and peer.broker_id not in self._connections
        if is_new and len(self._connections) >= PEERS_MAX:
            raise HandshakeRefused(f"broker {self._me} has {PEERS_MAX} observers already")
        self._unidentified.pop(connection)
        self._refusals.pop(peer.broker_id, None)
        self._without_tls.discard(peer.broker_id)
        self._tls_failed.discard(peer.broker_id)
        if (older := self._connections.pop(peer.broker_id, None)) is not None:
            # The old connection may carry messages of an earlier incarnation, from before an amnesiac lost its memory.
            older.abort()
            self._events.disconnected(peer)
        self._connections[peer.broker_id] = connection
        self._events.connected(peer)

    def received(self, connection: RaftConnection, message: Message) -> None:
        assert connection.peer is not None, "the handshake is over"
        self._events.received(connection.peer, message)

    def ended(self, connection: RaftConnection, reason: Exception | None) -> None:
        dialled = self._unidentified.pop(connection, None)
        peer = connection.peer
        if peer is not None and self._connections.get(peer.broker_id) is connection:
            del self._connections[peer.broker_id]
            self._events.disconnected(peer)
            dialled = peer.broker_id
        elif dialled is not None and self.may_be_plaintext():
            self._without_tls ^= {dialled}
        match reason:
            case HandshakeRefused():
                self._log_refusal("peer.refused", connection, reason)
                self._refused(dialled, reason)
            case RefusedByPeer():
                self._log_refusal("peer.refuses_us", connection, reason)
                self._refused(dialled, reason)
            case Contradiction():
                self._log_refusal("peer.contradicts", connection, reason)
            case MalformedMessage():
                self._log_refusal("peer.malformed", connection, reason)
            case RaftTlsFailed() | CertificateRefused():
                # Not a reason to stop this broker: certificates may be replaced while it runs.
                self._log_refusal("peer.not_authenticated", connection, reason)
                if dialled is not None:
                    self._tls_failed.add(dialled)
            case _:
                pass

    def _make_room(self) -> None:
        """Abort the incoming handshakes that are oldest: a flood of connections must not lock out a peer."""
        waiting = [connection for connection, dialled in self._unidentified.items() if dialled is None]
        for oldest in waiting[: max(0, len(waiting) - UNIDENTIFIED_MAX)]:
            asyncio.get_running_loop().call_soon(oldest.abort)

    def _refused(self, dialled: BrokerId | None, reason: Exception) -> None:
        """Record a refusal. It counts only from the address of a voter: anyone may connect to this broker's port."""
        if dialled is None or dialled not in self._voters:
            self._suspect()
            return
        self._refusals[dialled] = str(reason)
        if len(self._refusals) > len(self._voters) // 2:
            self._events.refused(str(reason))

    def _suspect(self) -> None:
        """Dial every voter that is not dialled yet: if this broker's configuration is wrong, those voters refuse it."""
        self._suspects.update(self._voters)
        self._dial_voters()

    def _log_refusal(self, event: str, connection: RaftConnection, reason: Exception) -> None:
        """Log one warning for each host and reason, however often the host reconnects."""
        host = connection.address.rpartition(":")[0]
        if event != "peer.refuses_us":
            self._options.on_rejected_peer(host, str(reason))
        if f"{host} {event} {reason}" not in self._logged and len(self._logged) < 1_000:
            self._logged.add(f"{host} {event} {reason}")
            _events.warning(event, address=connection.address, reason=str(reason))

    def _dial_voters(self) -> None:
        """Dial the voters that have to be dialled, and no others any more."""
        if self._dialling is None:
            return
        wanted = {voter for voter in self._voters if not (self._are_configured and self._is_dialled_by(voter))}
        wanted = (wanted | self._suspects) - {self._me}
        for gone in set(self._dialling) - wanted:
            self._dialling.pop(gone).cancel()
        for voter in sorted(wanted - set(self._dialling)):
            self._dialling[voter] = self._tasks.repeat(partial(self._dial, voter), f"quorum: dial {voter}")

    def _is_dialled_by(self, voter: BrokerId) -> bool:
        """Return whether a voter dials this broker: of two voters, the one of the higher id."""
        return self._me in self._voters and voter > self._me

    async def _dial(self, voter: BrokerId) -> None:
        host, port = self._hints.get(voter, NOWHERE)
        if self._is_dialled_by(voter):
            # It dials this broker, unless this broker is no voter any more and does not know it.
            await asyncio.sleep(REDIAL_LATE_INTERVAL_S)
        if voter not in self._connections and voter not in self._unidentified.values():
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(DIAL_TIMEOUT_S):
                    await asyncio.get_running_loop().create_connection(lambda: RaftConnection(self, voter), host, port)
        is_refused = voter in self._refusals or (voter in self._tls_failed and not self.may_be_plaintext())
        await asyncio.sleep(REDIAL_REFUSED_INTERVAL_S if is_refused else REDIAL_INTERVAL_S)

    async def _look_for_voters(self) -> None:
        """While no voter is connected, ask the bootstrap servers, one after the other. They answer with `VotersAre`."""
        own = {self._options.bind, self._hints.get(self._me)}
        for host, port in self._options.bootstrap:
            others = set(self._voters) - {self._me}
            if (self._voters and not others) or not others.isdisjoint(self._connections):
                break
            if (host, port) not in own and ANY not in self._unidentified.values():
                self._hints[ANY] = host, port
                with suppress(OSError, TimeoutError):
                    async with asyncio.timeout(DIAL_TIMEOUT_S):
                        loop = asyncio.get_running_loop()
                        await loop.create_connection(lambda: RaftConnection(self, ANY), host, port)
            await asyncio.sleep(REDIAL_INTERVAL_S)
        await asyncio.sleep(REDIAL_LATE_INTERVAL_S)

    async def _keep_alive(self) -> None:
        await asyncio.sleep(KEEP_ALIVE_INTERVAL_S)
        now_s, level = asyncio.get_running_loop().time(), self._image().metadata_version
        for connection in [*self._connections.values(), *self._unidentified]:
            try:
                if now_s - connection.heard_at_s > SILENCE_MAX_S:
                    connection.abort()
                elif connection.peer is not None and connection.peer.levels.why_not(connection.peer.broker_id, level):
                    # The level was finalized after the handshake. The next one is refused, with the reason.
                    connection.abort()
                elif connection.peer is not None:
                    connection.keep_alive()
            except Exception as error:
                report(f"the quorum connection of {connection.address} cannot be kept alive", error)
