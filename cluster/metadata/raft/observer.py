"""An observer of the metadata quorum: a broker that receives committed entries from any voter and keeps no log."""

import asyncio
import random
from collections.abc import Callable, Mapping

import structlog

from cordwood.cluster.metadata.commands import BrokerId, Command
from cordwood.cluster.metadata.image import Image
from cordwood.cluster.metadata.listeners import Listener
from cordwood.cluster.metadata.quorum import (
    Heartbeat,
    QuorumFailed,
    QuorumStatus,
    VoterStatus,
)
from cordwood.cluster.metadata.raft.handshake import Membership, Peer, PeerRole
from cordwood.cluster.metadata.raft.machine import Machine, unpacked
from cordwood.cluster.metadata.raft.messages import (
    Alive,
    Committed,
    Follow,
    Install,
    MalformedMessage,
    Message,
    MyStanding,
    Propose,
)
from cordwood.cluster.metadata.raft.transport import Address, Transport
from cordwood.replication.tasks import RunBlocking

PATIENCE_S = 2.0
"""The time after which an observer leaves a voter that is silent or knows no leader."""

_events = structlog.get_logger("quorum")


class Observer:
    """A metadata quorum as an observer sees it. An observer keeps no state on disk."""

    def __init__(
        self,
        node_id: BrokerId,
        voters: Mapping[BrokerId, Address],
        rng: random.Random,
        run_blocking: RunBlocking,
        *,
        cluster_id: str = "",
        secret: str = "",
        on_failure: Callable[[QuorumFailed], None],
        on_refused: Callable[[str], None],
    ) -> None:
        """`on_failure` and `on_refused` mean that the broker has to stop, as with a voter."""
        self._node_id, self._voters = node_id, voters
        self._cluster_id, self._secret = cluster_id, secret.encode()
        self._run_blocking, self._on_failure, self._on_refused = run_blocking, on_failure, on_refused
        self._machine = Machine(Image(), 0, rng)
        self._transport = Transport(self._membership, voters, self, rng)
        self._followed: BrokerId | None = None
        self._followed_last = BrokerId(-1)
        self._newest: Committed | None = None
        self._content_at_s = 0.0
        self._sent_to: tuple[BrokerId, int] | None = None
        self._installing: asyncio.Task[None] | None = None
        self._behind_image: list[Message] = []
        """Messages received after the image that is being decoded."""
        self._timer: asyncio.TimerHandle | None = None
        self._failure: QuorumFailed | None = None

    async def start(self) -> None:
        """Connect to the voters."""
        self._loop = asyncio.get_running_loop()
        self._transport.start()
        self._look_around()

    async def formed(self) -> None:
        """Wait until the cluster has an id, and the image has all entries committed before this call."""
        await self._machine.formed(self._submit)

    async def close(self) -> None:
        self._stop(QuorumFailed("the metadata is closed"))
        await self._transport.close()

    @property
    def image(self) -> Image:
        return self._machine.image

    @property
    def term(self) -> int:
        return 0 if self._newest is None else self._newest.term

    @property
    def is_leader(self) -> bool:
        return False

    @property
    def leader_id(self) -> BrokerId | None:
        """The leader, according to the voter that this observer follows; None if unknown."""
        leader_id = None if self._newest is None else self._newest.leader_id
        return None if leader_id is None else BrokerId(leader_id)

    def subscribe(self, listener: Listener) -> None:
        self._machine.subscribe(listener)

    async def propose(self, command: Command) -> Image:
        """As Quorum.propose."""
        return await self._machine.propose(command, self._submit)

    def send_heartbeat(self, heartbeat: Heartbeat) -> None:
        for voter in self._voters:
            self._transport.send(voter, Alive.of(heartbeat))

    def on_heartbeat(self, callback: Callable[[Heartbeat], None]) -> None:
        """Do nothing: heartbeats are sent to voters only."""

    def on_hang_up(self, callback: Callable[[BrokerId], None]) -> None:
        """Do nothing: only voters report ended connections."""

    def on_leadership(self, callback: Callable[[bool], None]) -> None:
        """Do nothing: an observer is never the active controller."""

    def status(self) -> QuorumStatus:
        commit_index = 0 if self._newest is None else self._newest.commit_index
        voters = tuple(
            VoterStatus(voter, None, self._transport.is_connected(voter), self._heard_ms_ago(voter))
            for voter in self._voters
        )
        ourselves = VoterStatus(self._node_id, self.image.index, True, 0)
        return QuorumStatus(self.leader_id, self.term, max(commit_index, self.image.index), voters, (ourselves,))

    def connected(self, peer: Peer) -> None:
        if self._followed is None:
            self._follow(peer.broker_id)
        self._sent_to = None

    def disconnected(self, peer: Peer) -> None:
        if peer.broker_id == self._followed:
            self._follow_another()

    def received(self, peer: Peer, message: Message) -> None:
        # Ignore messages in flight from a voter that this observer has left.
        if self._failure is None and peer.broker_id == self._followed:
            try:
                self._take(message)
            except MalformedMessage:
                raise
            except Exception as error:
                self._fail(error)

    def refused(self, reason: str) -> None:
        if self._failure is None:
            self._on_refused(reason)

    def _take(self, message: Message) -> None:
        if self._installing is not None:
            self._behind_image.append(message)
            return
        match message:
            case Install():
                if message.index > self.image.index:
                    self._installing = self._loop.create_task(self._install(message), name="metadata image")
                    return
            case Committed():
                self._take_committed(message)
            case MyStanding():
                return
            case _:
                raise MalformedMessage(f"{type(message).__name__} to an observer")
        self._send_proposals()

    async def _install(self, message: Install) -> None:
        """Decode an image in a thread and install it. 10,000 partitions take some 50 ms."""
        try:
            image = await self._run_blocking(unpacked, message)
            behind = self._installed()
            self._machine.install(image, message.index_term)
            for each in behind:
                self._take(each)
            self._send_proposals()
        except MalformedMessage as malformed:
            _events.error("image.malformed", voter=self._followed, index=message.index, reason=str(malformed))
            # `_look_around` follows another voter.
            self._installed()
            self._followed = None
        except Exception as error:
            self._fail(error)

    def _installed(self) -> list[Message]:
        """Clear the state of the installation. Return the messages received after the image."""
        self._installing = None
        behind, self._behind_image = self._behind_image, []
        return behind

    def _give_up_image(self) -> None:
        if self._installing is not None:
            self._installing.cancel()
            self._installed()

    def _take_committed(self, message: Committed) -> None:
        if message.entries:
            if message.entries[0][1] != self.image.index + 1:
                raise MalformedMessage(f"entry {message.entries[0][1]} behind {self.image.index}")
            self._machine.apply(message.entries)
        self._newest = message
        if message.leader_id is not None:
            self._content_at_s = self._loop.time()

    def _submit(self, entry: bytes) -> None:
        if self._sent_to is not None:
            self._transport.send(self._sent_to[0], Propose(entry))

    def _send_proposals(self) -> None:
        """Send all unanswered proposals to a new leader, directly or through the followed voter."""
        leader = self.leader_id
        if leader is None or self._followed is None:
            self._sent_to = None
            return
        receiver = leader if self._transport.is_connected(leader) else self._followed
        if self._sent_to != (receiver, self.term):
            self._sent_to = receiver, self.term
            for entry in self._machine.unanswered():
                self._transport.send(receiver, Propose(entry))

    def _look_around(self) -> None:
        if self._installing is None and self._loop.time() - self._content_at_s > PATIENCE_S:
            self._follow_another()
        self._timer = self._loop.call_later(PATIENCE_S / 4, self._look_around)

    def _follow_another(self) -> None:
        """Follow the next connected voter, in ascending order, round robin."""
        connected = sorted(self._transport.connected_voters())
        self._followed = None
        self._give_up_image()
        if connected:
            self._follow(next((voter for voter in connected if voter > self._followed_last), connected[0]))

    def _follow(self, voter: BrokerId) -> None:
        self._followed = self._followed_last = voter
        self._content_at_s = self._loop.time()
        self._sent_to = None
        self._transport.send(voter, Follow(self.image.index))

    def _membership(self) -> Membership:
        cluster_id = self.image.cluster_id or self._cluster_id
        return Membership(self._node_id, PeerRole.OBSERVER, cluster_id, self._voters.keys(), self._secret)

    def _heard_ms_ago(self, peer: BrokerId) -> int | None:
        heard_at_s = self._transport.heard_at_s(peer)
        return None if heard_at_s is None else round((self._loop.time() - heard_at_s) * 1000)

    def _fail(self, error: Exception) -> None:
        self._stop(QuorumFailed(f"the metadata log cannot be replicated: {error}"))
        self._on_failure(QuorumFailed(str(error)))

    def _stop(self, failure: QuorumFailed) -> None:
        self._failure = failure
        self._give_up_image()
        self._machine.fail(failure)
        if self._timer is not None:
            self._timer.cancel()
