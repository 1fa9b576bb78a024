"""The connections of one broker to the others of its quorum: one for each peer, dialled again when it breaks."""

import asyncio
import random
from collections.abc import Callable, Mapping
from typing import Protocol

import structlog

from cordwood.cluster.metadata.commands import BrokerId
from cordwood.cluster.metadata.raft.connection import RaftConnection
from cordwood.cluster.metadata.raft.handshake import (
    NONCE_BYTES,
    Handshake,
    HandshakeRefused,
    Membership,
    Peer,
    PeerRole,
    RefusedByPeer,
)
from cordwood.cluster.metadata.raft.messages import MalformedMessage, Message

REDIAL_INTERVAL_S = 0.1
REDIAL_REFUSED_INTERVAL_S = 1.0
DIAL_TIMEOUT_S = 1.0
SILENCE_MAX_S = 3.0
"""A connection that was silent for so long is taken for dead."""
KEEP_ALIVE_INTERVAL_S = 0.5
PEERS_MAX = 256
STRANGERS_MAX = 64
"""Connections that others opened and that have not shaken hands yet. A peer does it with its first bytes."""

Address = tuple[str, int]

_events = structlog.get_logger("quorum")


class PeerEvents(Protocol):
    """Who wants to know what happens on the connections."""

    def connected(self, peer: Peer) -> None: ...

    def disconnected(self, peer: Peer) -> None: ...

    def received(self, peer: Peer, message: Message) -> None: ...

    def refused(self, reason: str) -> None:
        """So many of the voters will not have us that there is no quorum for us."""
        ...


class Transport:
    """A voter dials the voters of lower ids, an observer dials all of them."""

    def __init__(
        self,
        membership: Callable[[], Membership],
        voters: Mapping[BrokerId, Address],
        events: PeerEvents,
        rng: random.Random,
    ) -> None:
        self._membership, self._voters, self._events, self._rng = membership, voters, events, rng
        me = membership()
        self._me = me.broker_id
        self._dials = {voter for voter in voters if voter != me.broker_id}
        if me.role is PeerRole.VOTER:
            self._dials = {voter for voter in self._dials if voter < me.broker_id}
        self._connections: dict[BrokerId, RaftConnection] = {}
        self._strangers: dict[RaftConnection, BrokerId | None] = {}
        """Those that have not shaken hands yet, and whom we dialled there."""
        self._refusals: dict[BrokerId, str] = {}
        self._told: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def listen(self, address: Address) -> int:
        """Take connections. Returns the port. Raises OSError."""
        host, port = address
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: RaftConnection(self), host or None, port, reuse_address=True)
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    def start(self) -> None:
        for voter in sorted(self._dials):
            self._spawn(self._keep_dialled(voter), f"dial {voter}")
        self._spawn(self._keep_alive(), "keep alive")

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._server is not None:
            self._server.close()
        for connection in [*self._connections.values(), *self._strangers]:
            connection.close()
        await asyncio.sleep(0)

    def send(self, receiver: BrokerId, message: Message) -> bool:
        """False where it is not connected, or does not keep up."""
        connection = self._connections.get(receiver)
        return connection is not None and connection.send(message)

    def is_connected(self, peer: BrokerId) -> bool:
        return peer in self._connections

    def connected_voters(self) -> list[BrokerId]:
        return [voter for voter in self._voters if voter in self._connections]

    def connected_observers(self) -> list[BrokerId]:
        return [peer for peer in self._connections if peer not in self._voters]

    def heard_at_s(self, peer: BrokerId) -> float | None:
        """When something came from this peer last, if it is connected."""
        connection = self._connections.get(peer)
        return None if connection is None else connection.heard_at_s

    def shake_hands(self, connection: RaftConnection, send: Callable[[bytes], None]) -> Handshake:
        dialled = self._strangers[connection] = connection.dialled
        nonce = self._rng.randbytes(NONCE_BYTES)
        if dialled is None:
            self._make_room()
        return Handshake(self._membership(), dialled, nonce, send)

    def established(self, connection: RaftConnection) -> None:
        peer = connection.peer
        assert peer is not None, "the handshake is over"
        is_new = peer.role is PeerRole.OBSERVER and peer.broker_id not in self._connections
        if is_new and len(self._connections) >= PEERS_MAX:
            raise HandshakeRefused(f"broker {self._me} has {PEERS_MAX} observers already")
        self._strangers.pop(connection)
        self._refusals.pop(peer.broker_id, None)
        if (older := self._connections.pop(peer.broker_id, None)) is not None:
            # What is left on it was said by who the peer was before, perhaps before it lost its memory.
            older.abort()
            self._events.disconnected(peer)
        self._connections[peer.broker_id] = connection
        self._events.connected(peer)

    def received(self, connection: RaftConnection, message: Message) -> None:
        assert connection.peer is not None, "the handshake is over"
        self._events.received(connection.peer, message)

    def ended(self, connection: RaftConnection, reason: Exception | None) -> None:
        dialled = self._strangers.pop(connection, None)
        peer = connection.peer
        if peer is not None and self._connections.get(peer.broker_id) is connection:
            del self._connections[peer.broker_id]
            self._events.disconnected(peer)
            dialled = peer.broker_id
        match reason:
            case HandshakeRefused():
                self._tell("peer.refused", connection, reason)
                self._refused(dialled, reason)
            case RefusedByPeer():
                self._tell("peer.refuses_us", connection, reason)
                self._refused(dialled, reason)
            case MalformedMessage():
                self._tell("peer.malformed", connection, reason)
            case _:
                pass

    def _make_room(self) -> None:
        """End the strangers that have been silent for longest: however many come, a peer that speaks is heard."""
        waiting = [stranger for stranger, dialled in self._strangers.items() if dialled is None]
        for oldest in waiting[: max(0, len(waiting) - STRANGERS_MAX)]:
            asyncio.get_running_loop().call_soon(oldest.abort)

    def _refused(self, dialled: BrokerId | None, reason: Exception) -> None:
        """Anyone can say anything at our port; only what is met at the address of a voter counts."""
        if dialled is None or dialled not in self._voters:
            self._suspect()
            return
        self._refusals[dialled] = str(reason)
        if len(self._refusals) > len(self._voters) // 2:
            self._events.refused(str(reason))

    def _suspect(self) -> None:
        """Somebody did not fit at our door. If it is us who do not fit, the voters say so: ask all that are missing."""
        for voter in set(self._voters) - self._dials - {self._me}:
            self._dials.add(voter)
            self._spawn(self._keep_dialled(voter), f"dial {voter}")

    def _tell(self, event: str, connection: RaftConnection, reason: Exception) -> None:
        """One line for each host and reason, however often it tries."""
        host = connection.address.rpartition(":")[0]
        if f"{host} {event} {reason}" not in self._told and len(self._told) < 1_000:
            self._told.add(f"{host} {event} {reason}")
            _events.warning(event, address=connection.address, reason=str(reason))

    async def _keep_dialled(self, voter: BrokerId) -> None:
        host, port = self._voters[voter]
        loop = asyncio.get_running_loop()
        while True:
            if voter not in self._connections and voter not in self._strangers.values():
                try:
                    async with asyncio.timeout(DIAL_TIMEOUT_S):
                        await loop.create_connection(lambda: RaftConnection(self, voter), host, port)
                except (OSError, TimeoutError):
                    pass
            await asyncio.sleep(REDIAL_REFUSED_INTERVAL_S if voter in self._refusals else REDIAL_INTERVAL_S)

    async def _keep_alive(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(KEEP_ALIVE_INTERVAL_S)
            for connection in [*self._connections.values(), *self._strangers]:
                if loop.time() - connection.heard_at_s > SILENCE_MAX_S:
                    connection.abort()
                elif connection.peer is not None:
                    connection.keep_alive()

    def _spawn(self, work: "asyncio._CoroutineLike[None]", name: str) -> None:
        task = asyncio.get_running_loop().create_task(work, name=f"quorum: {name}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
