"""An observer of the metadata quorum: a broker that receives committed entries from any voter and keeps no log."""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace

import structlog

from cordwood.cluster.metadata.commands import BrokerId, Command
from cordwood.cluster.metadata.image import Image
from cordwood.cluster.metadata.listeners import Listener
from cordwood.cluster.metadata.quorum import (
    Address,
    Heartbeat,
    QuorumFailed,
    QuorumOptions,
    QuorumStatus,
    VoterStatus,
)
from cordwood.cluster.metadata.raft.handshake import Peer, PeerRole
from cordwood.cluster.metadata.raft.log import APPLIED_BYTES_PER_STEP, fitting
from cordwood.cluster.metadata.raft.machine import Machine, unpacked
from cordwood.cluster.metadata.raft.messages import (
    Alive,
    Committed,
    Declined,
    Follow,
    Install,
    MalformedMessage,
    Message,
    MyStanding,
    VotersAre,
)
from cordwood.cluster.metadata.raft.proposal_forwarder import ObserverProposals
from cordwood.cluster.metadata.raft.transport import Transport
from cordwood.storage.steps import Steps, run_step

PATIENCE_S = 2.0
"""The time after which an observer leaves a voter that is silent or has no leader."""

_events = structlog.get_logger("quorum")


class Observer:
    """A metadata quorum as an observer sees it. An observer keeps no state on disk."""

    def __init__(self, options: QuorumOptions) -> None:
        self._options = options
        self._machine = Machine(Image(), 0, options.rng)
        self._transport = Transport(options, lambda: self.image, self)
        self._proposals = ObserverProposals(self._machine, self._transport)
        self._followed: BrokerId | None = None
        self._followed_last = BrokerId(-1)
        self._newest: Committed | None = None
        self._content_at_s = 0.0
        self._installing: asyncio.Task[None] | None = None
        self._unhandled: deque[Message] = deque()
        """Messages received after the image that is being decoded, or after entries that are being applied."""
        self._applying: tuple[Steps[None], Committed] | None = None
        """A message of whose entries some steps are applied."""
        self._next_step: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._failure: QuorumFailed | None = None
        self._voters: Mapping[BrokerId, Address] = options.voters
        self._machine.subscribe(self._image_changed)

    async def start(self) -> None:
        """Connect to the voters."""
        self._loop = asyncio.get_running_loop()
        self._transport.start()
        self._look_around()

    async def formed(self) -> None:
        """Wait until the cluster has an id, and the image has all entries committed before this call."""
        await self._machine.formed(self._proposals.submit)

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
        return await self._machine.propose(command, self._proposals.submit)

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
        voters = tuple(self._transport.status(voter, None) for voter in self._voters)
        ourselves = VoterStatus(self._options.node_id, self.image.index, True, 0)
        return QuorumStatus(self.leader_id, self.term, max(commit_index, self.image.index), voters, (ourselves,))

    def connected(self, peer: Peer) -> None:
        if self._followed is None:
            self._follow(peer.broker_id)
        self._proposals.send_again()

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
            self._options.on_refused(reason)

    def _image_changed(self, old: Image, new: Image) -> None:
        if new.voters is not old.voters and new.voters:
            self._take_voters({voter_id: voter.address for voter_id, voter in sorted(new.voters.items())})

    def _take_voters(self, voters: Mapping[BrokerId, Address]) -> None:
        self._voters = voters
        self._transport.voters_are(voters, PeerRole.OBSERVER, are_configured=False)

    def _take(self, message: Message) -> None:
        if self._installing is not None or self._next_step is not None:
            self._unhandled.append(message)
        else:
            self._handle(message)
            self._handle_next_soon()

    def _handle(self, message: Message) -> None:
        """Handle a message, of many entries only the first: the event loop has other work in between."""
        match message:
            case Install():
                if message.index > self.image.index:
                    self._installing = self._loop.create_task(self._install(message), name="metadata image")
                    return
            case Committed():
                entries = fitting(message.entries, APPLIED_BYTES_PER_STEP)
                if len(entries) < len(message.entries):
                    self._unhandled.appendleft(replace(message, entries=message.entries[len(entries) :]))
                self._apply(replace(message, entries=entries))
                return
            case MyStanding():
                return
            case VotersAre():
                if not self.image.voters and not self._options.voters:
                    self._take_voters(message.addresses())
                self._transport.hint(message.addresses())
                return
            case Declined():
                self._proposals.declined(message)
            case _:
                raise MalformedMessage(f"{type(message).__name__} to an observer")
        self._proposals.send(self.leader_id, self._followed, self.term)

    def _handle_next_soon(self) -> None:
        if self._applying is not None or (self._unhandled and self._installing is None):
            self._next_step = self._loop.call_soon(self._handle_next)

    def _handle_next(self) -> None:
        self._next_step = None
        try:
            if self._applying is not None:
                self._apply_step(*self._applying)
            else:
                self._handle(self._unhandled.popleft())
            self._handle_next_soon()
        except MalformedMessage as malformed:
            self._distrust(malformed)
        except Exception as error:
            self._fail(error)

    async def _install(self, message: Install) -> None:
        """Decode an image in a thread and install it. 10,000 partitions take some 50 ms."""
        try:
            image = await self._options.run_blocking(unpacked, message)
            self._installing = None
            self._machine.install(image, message.index_term)
            self._proposals.send(self.leader_id, self._followed, self.term)
            self._handle_next_soon()
        except MalformedMessage as malformed:
            self._installing = None
            self._distrust(malformed)
        except Exception as error:
            self._fail(error)

    def _distrust(self, malformed: MalformedMessage) -> None:
        """Leave a voter that has sent a malformed message. `_look_around` follows another one."""
        _events.error("image.malformed", voter=self._followed, index=self.image.index, reason=str(malformed))
        self._drop_unhandled()
        self._followed = None

    def _drop_unhandled(self) -> None:
        for work in (self._installing, self._next_step):
            if work is not None:
                work.cancel()
        self._installing = self._next_step = self._applying = None
        self._unhandled.clear()

    def _apply(self, message: Committed) -> None:
        if not message.entries:
            self._applied(message)
        elif message.entries[0][1] != self.image.index + 1:
            raise MalformedMessage(f"entry {message.entries[0][1]} does not follow {self.image.index}")
        else:
            self._apply_step(self._machine.apply(message.entries), message)

    def _apply_step(self, steps: Steps[None], message: Committed) -> None:
        self._applying = steps, message
        if run_step(steps):
            self._applying = None
            self._applied(message)

    def _applied(self, message: Committed) -> None:
        self._newest = message
        if message.leader_id is not None:
            self._content_at_s = self._loop.time()
        self._proposals.send(self.leader_id, self._followed, self.term)

    def _look_around(self) -> None:
        if self._installing is None and self._loop.time() - self._content_at_s > PATIENCE_S:
            self._follow_another()
        self._timer = self._loop.call_later(PATIENCE_S / 4, self._look_around)

    def _follow_another(self) -> None:
        """Follow the next connected voter, in ascending order, round robin."""
        connected = sorted(self._transport.connected_voters())
        self._followed = None
        self._drop_unhandled()
        if connected:
            self._follow(next((voter for voter in connected if voter > self._followed_last), connected[0]))

    def _follow(self, voter: BrokerId) -> None:
        self._followed = self._followed_last = voter
        self._content_at_s = self._loop.time()
        self._proposals.send_again()
        self._transport.send(voter, Follow(self.image.index))

    def _fail(self, error: Exception) -> None:
        self._stop(QuorumFailed(f"the metadata log cannot be replicated: {error}"))
        self._options.on_failure(QuorumFailed(str(error)))

    def _stop(self, failure: QuorumFailed) -> None:
        self._failure = failure
        self._drop_unhandled()
        self._machine.fail(failure)
        if self._timer is not None:
            self._timer.cancel()
