"""A voter of the metadata quorum: Raft on this broker's disk and network, with the interface of Quorum."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import structlog

from cordwood.cluster.metadata.commands import BrokerId, Command, FormatCluster
from cordwood.cluster.metadata.image import Image
from cordwood.cluster.metadata.listeners import Listener
from cordwood.cluster.metadata.postponed_work import postponed
from cordwood.cluster.metadata.quorum import (
    Address,
    Heartbeat,
    QuorumFailed,
    QuorumOptions,
    QuorumStatus,
    VoterStatus,
    new_cluster_id,
)
from cordwood.cluster.metadata.raft import storage
from cordwood.cluster.metadata.raft.election import Host
from cordwood.cluster.metadata.raft.handshake import Peer, PeerRole
from cordwood.cluster.metadata.raft.library import check_source
from cordwood.cluster.metadata.raft.machine import Machine
from cordwood.cluster.metadata.raft.messages import (
    Alive,
    Append,
    Committed,
    Declined,
    Follow,
    Install,
    MalformedMessage,
    Message,
    MyStanding,
    Propose,
    Standing,
    VotersAre,
)
from cordwood.cluster.metadata.raft.node import RaftMessage, RaftNode
from cordwood.cluster.metadata.raft.packed_image import PackedImage
from cordwood.cluster.metadata.raft.proposal_forwarder import ProposalForwarder
from cordwood.cluster.metadata.raft.raft_disk import RaftDisk
from cordwood.cluster.metadata.raft.standings import Standings
from cordwood.cluster.metadata.raft.storage import Stored
from cordwood.cluster.metadata.raft.streams import ObserverStreams
from cordwood.cluster.metadata.raft.ticker import Ticker
from cordwood.cluster.metadata.raft.transport import Transport
from cordwood.storage.disk import Disk
from cordwood.storage.errors import DamagedLog

FOUND_ALONE_S = 1.5
"""The time after which the only configured voter founds a cluster, unless voters of an existing one dial it."""

MemberMessage = MyStanding | Declined | VotersAre | RaftMessage

_events = structlog.get_logger("quorum")


class RaftQuorum:
    """A metadata quorum of several voters, as one voter runs it.

    Its parts: `RaftNode` elects and replicates, `Standings` decides on the right to vote, `Machine` applies entries,
    `RaftDisk` writes, `Transport` connects, `ProposalForwarder`, `PackedImage` and `ObserverStreams` send, and `Ticker`
    schedules. Call `open`, then `start`, `formed`, and at last `close`. Before `start`, only `image`, `damage` and
    `subscribe` may be used.
    """

    def __init__(self, disk: Disk, directory: str, stored: Stored, options: QuorumOptions) -> None:
        """Use `open`."""
        self._options, self._node_id = options, options.node_id
        self._failure: QuorumFailed | None = None
        self._log = stored.log
        self._machine = Machine(stored.image, stored.image_term, options.rng)
        self._raft_disk = RaftDisk(disk, directory, stored.log, self._machine, options)
        self._standings = Standings(
            disk,
            directory,
            stored.standing,
            options.others,
            self._standing_changed,
            may_found=options.may_found and options.node_id in options.voters,
        )
        self.damage = stored.damage
        """The damage that `open` found. The damaged files are in quarantine."""
        self.files = self._raft_disk.files
        self._heartbeat_listeners: list[Callable[[Heartbeat], None]] = []
        self._hang_up_listeners: list[Callable[[BrokerId], None]] = []
        self._leadership = Leadership()
        self._formatted_in_term = 0
        self._applied_by: dict[BrokerId, int] = {}
        self._voters_index = -1
        self._found: Mapping[BrokerId, Address] = {}
        """The voters according to a peer, while neither the log nor the configuration names any."""

    @classmethod
    def open(cls, disk: Disk, directory: str, options: QuorumOptions) -> "RaftQuorum":
        """Load the metadata. Damaged files are moved aside, and the other voters send the metadata again. Blocks.

        Raises storage.WrongMetadata and RuntimeError with a message for the operator.
        """
        check_source()
        return cls(disk, directory, storage.read(disk, directory), options)

    async def start(self) -> int:
        """Listen, connect to the other voters, and start Raft. Return the port. Raises OSError."""
        loop = asyncio.get_running_loop()
        options, machine = self._options, self._machine
        self._transport = Transport(options, lambda: machine.image, self)
        self._ticker = Ticker(
            partial(self._guarded, self._tick), options.timing.tick_interval_s, lambda: self._node.deadline_s
        )
        self._packed = PackedImage(self._log, machine, options.run_blocking, self._ticker.wake)
        host = Host(
            loop.time,
            self._transport.send,
            machine.apply,
            lambda: self._packed.message(self._node.term),
            self._raft_disk.install,
            partial(self._standings.become, Standing.MEMBER),
        )
        self._node = RaftNode(options, self._log, machine.image.index, host)
        self._node.may_vote = self._standings.own.may_vote
        self._forwarding = ProposalForwarder(options, self._node, machine, self._transport, self._ticker.wake)
        self._streams = ObserverStreams(self._node, host)
        self._take_voters()
        loop.call_later(FOUND_ALONE_S, self._standings.waited)
        port = await self._transport.listen(options.bind)
        self._keeping = loop.create_task(self._keep(), name="metadata disk")
        self._standings.decide()
        self._transport.start()
        self._ticker.start()
        return port

    async def formed(self) -> None:
        """Wait until the cluster has an id, and the image has all entries committed before this call."""
        await self._machine.formed(self._forwarding.submit)

    async def close(self) -> None:
        """Resign if this voter leads, and write everything to disk."""
        is_sound = self._failure is None
        if is_sound:
            self._node.resign()
            self._stop(QuorumFailed("the metadata is closed"))
        await self._transport.close()
        await self._raft_disk.close(self._node, is_sound=is_sound)
        self._keeping.cancel()
        self._packed.close()

    @property
    def image(self) -> Image:
        return self._machine.image

    @property
    def term(self) -> int:
        return self._node.term

    @property
    def is_leader(self) -> bool:
        return self._failure is None and self._node.is_active

    def subscribe(self, listener: Listener) -> None:
        self._machine.subscribe(listener)

    async def propose(self, command: Command) -> Image:
        """As Quorum.propose. Without a leader, the proposal waits for one until its timeout."""
        return await self._machine.propose(command, self._forwarding.submit)

    def send_heartbeat(self, heartbeat: Heartbeat) -> None:
        for voter in self._voters:
            if voter != self._node_id:
                self._transport.send(voter, Alive.of(heartbeat))
        self._heard(heartbeat)

    def on_heartbeat(self, callback: Callable[[Heartbeat], None]) -> None:
        self._heartbeat_listeners.append(callback)

    def on_hang_up(self, callback: Callable[[BrokerId], None]) -> None:
        self._hang_up_listeners.append(callback)

    def on_leadership(self, callback: Callable[[bool], None]) -> None:
        self._leadership.subscribe(callback)

    def status(self) -> QuorumStatus:
        node = self._node
        voters = tuple(map(self._status_of, self._voters))
        others = {*self._transport.connected_observers(), *(() if node.is_voter else (self._node_id,))}
        observers = tuple(map(self._status_of, sorted(others - set(self._voters))))
        return QuorumStatus(node.leader, self.term, node.commit_index, voters, observers)

    def _status_of(self, broker_id: BrokerId) -> VoterStatus:
        if broker_id == self._node_id:
            return VoterStatus(broker_id, self._log.end, True, 0)
        progress = self._node.progress_of(broker_id)
        log_end = self._applied_by.get(broker_id) if broker_id not in self._voters else None
        return self._transport.status(broker_id, log_end if progress is None else progress.stored)

    async def scrub(self) -> list[DamagedLog]:
        """Compare the files on disk with memory, and rewrite those that differ. Return the damage."""
        return await self._raft_disk.scrub(self._node)

    def connected(self, peer: Peer) -> None:
        self._send_voters(peer.broker_id)
        if peer.keeps_log:
            self._transport.send(peer.broker_id, MyStanding(self._standings.own))
            self._guarded(self._node.connected, peer.broker_id)
            self._forwarding.send_again()

    def disconnected(self, peer: Peer) -> None:
        self._streams.end(peer.broker_id)
        for listener in self._hang_up_listeners:
            listener(peer.broker_id)
        if peer.keeps_log:
            self._standings.lost(peer.broker_id)
            self._guarded(self._node.disconnected, peer.broker_id)

    def received(self, peer: Peer, message: Message) -> None:
        if self._failure is None:
            self._guarded(self._take, peer, message)

    def refused(self, reason: str) -> None:
        if self._failure is None:
            self._options.on_refused(reason)

    def _take(self, peer: Peer, message: Message) -> None:
        match message:
            case Alive():
                if message.broker_id != peer.broker_id:
                    raise MalformedMessage(f"a heartbeat of broker {message.broker_id}")
                self._applied_by[peer.broker_id] = message.applied_index
                self._heard(message.heartbeat())
            case Propose():
                self._forwarding.take(peer, message)
            case Follow():
                self._streams.follow(peer.broker_id, message.index)
            case Committed():
                raise MalformedMessage("a voter follows no observer's stream")
            case _ if not peer.keeps_log:
                raise MalformedMessage(f"{type(message).__name__} from an observer")
            case _:
                self._take_from_member(peer.broker_id, message)
        self._ticker.wake()

    def _take_from_member(self, sender: BrokerId, message: MemberMessage) -> None:
        match message:
            case MyStanding():
                self._standings.heard(sender, message.standing)
            case Declined():
                self._forwarding.declined(message)
            case VotersAre():
                if message.index > self._log.voter_log.index or not self._node.voters:
                    self._found = message.addresses()
                    self._transport.hint(self._found)
            case _:
                if isinstance(message, Append | Install) and self._standings.own is Standing.EMPTY:
                    # A leader exists, so the cluster exists, whether or not this voter was a member.
                    self._standings.become(Standing.AMNESIAC)
                self._node.receive(sender, message)

    def _tick(self) -> None:
        node = self._node
        self._forwarding.send()
        node.tick()
        if self._voters_index != self._log.voter_log.index:
            self._take_voters()
        if node.commit_index > node.applied_index:
            self._ticker.wake()
        self._standings.advance(node.term, node.log.end)
        is_active = self.is_leader
        if is_active and not self.image.cluster_id:
            self._format()
        self._leadership.become(is_active=is_active, term=node.term)
        self._streams.pump()
        self._raft_disk.look()

    def _format(self) -> None:
        """Propose the id of a new cluster, once in each term of this leader."""
        if self._formatted_in_term != self.term:
            cluster_id = self._options.cluster_id or new_cluster_id(self._options.rng)
            command = FormatCluster(cluster_id, self._options.founding_level)
            self._node.append(self._machine.entry(command))
            self._formatted_in_term = self.term

    def _heard(self, heartbeat: Heartbeat) -> None:
        for callback in self._heartbeat_listeners:
            callback(heartbeat)

    def _standing_changed(self, standing: Standing) -> None:
        self._node.may_vote = standing.may_vote
        for other in self._transport.connected():
            self._transport.send(other, MyStanding(standing))

    def _take_voters(self) -> None:
        """Take the voters in force, and connect to them."""
        node, voters, self._voters_index = self._node, self._log.voter_log.voters, self._log.voter_log.index
        role = PeerRole.VOTER if node.is_voter and not voters else PeerRole.MEMBER
        are_configured = bool(self._options.voters) and not voters
        self._transport.voters_are(self._addresses, role, are_configured=are_configured)
        self._standings.voters_changed(node.others, is_voter=node.is_voter)

    @property
    def _voters(self) -> Sequence[BrokerId]:
        return self._node.voters or tuple(sorted(self._found))

    @property
    def _addresses(self) -> Mapping[BrokerId, Address]:
        voters = self._log.voter_log.voters
        return {voter_id: voter.address for voter_id, voter in voters.items()} or self._options.voters

    def _send_voters(self, peer: BrokerId) -> None:
        """Send a peer the voters in force, which it may not know. The previous release does not know the message."""
        if self.image.metadata_version >= VotersAre.LEVEL and self._addresses:
            self._transport.send(peer, VotersAre.of(self._log.voter_log.index, self._addresses))

    async def _keep(self) -> None:
        try:
            await self._raft_disk.run(self._node, self._ticker.wake)
        except Exception as error:
            self._fail(error)

    def _guarded(self, step: Callable[..., None], *arguments: object) -> None:
        """Run `step`. Any error stops this voter, because its Raft state may be inconsistent.

        Raises MalformedMessage: a malformed message only ends the connection. Where resources are lacking, the step
        ends before it changes or answers anything that was not written: to the others the message was lost.
        """
        if self._failure is not None:
            return
        try:
            step(*arguments)
        except MalformedMessage:
            raise
        except Exception as error:
            if not postponed("quorum.step_postponed", error):
                self._fail(error)

    def _fail(self, error: Exception) -> None:
        if self._failure is None:
            _events.error("quorum.failed", exc_info=error)
            failure = QuorumFailed(f"the metadata log cannot be written: {error}")
            self._stop(failure)
            self._options.on_failure(failure)

    def _stop(self, failure: QuorumFailed) -> None:
        """Stop taking part."""
        self._failure = failure
        self._machine.fail(failure)
        self._ticker.close()
        self._leadership.end()


class Leadership:
    """Whether this voter is the active controller. Listeners are called on a change; a new one if it is now."""

    def __init__(self) -> None:
        self._listeners: list[Callable[[bool], None]] = []
        self._was_leader = False

    def subscribe(self, listener: Callable[[bool], None]) -> None:
        self._listeners.append(listener)
        if self._was_leader:
            listener(True)

    def become(self, *, is_active: bool, term: int) -> None:
        if is_active != self._was_leader:
            _events.info("quorum.leads" if is_active else "quorum.leads_no_more", term=term)
            self._announce(is_active)

    def end(self) -> None:
        """Announce that this voter leaves the quorum."""
        if self._was_leader:
            self._announce(False)

    def _announce(self, is_leader: bool) -> None:
        self._was_leader = is_leader
        for listener in self._listeners:
            listener(is_leader)
