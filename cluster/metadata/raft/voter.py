"""A voter of the metadata quorum: Raft on this broker's disk and network, with the interface of Quorum."""

import asyncio
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import structlog
from kio.schema.errors import ErrorCode

from cordwood.cluster.metadata import snapshot
from cordwood.cluster.metadata.commands import BrokerId, Command, FormatCluster, UnknownCommand, decode
from cordwood.cluster.metadata.image import CommandRefused, Image
from cordwood.cluster.metadata.listeners import Listener
from cordwood.cluster.metadata.proposers import Admit, admit_any, may_propose
from cordwood.cluster.metadata.quorum import (
    SNAPSHOT_INTERVAL_BYTES,
    Heartbeat,
    QuorumFailed,
    QuorumStatus,
    VoterStatus,
    new_cluster_id,
)
from cordwood.cluster.metadata.raft import storage
from cordwood.cluster.metadata.raft.entry import TAG_BYTES
from cordwood.cluster.metadata.raft.entry import decode as decode_entry
from cordwood.cluster.metadata.raft.handshake import Membership, Peer, PeerRole
from cordwood.cluster.metadata.raft.library import DEFAULT_TIMING, Timing, check_source
from cordwood.cluster.metadata.raft.machine import ENTRY_BYTES_MAX, Machine
from cordwood.cluster.metadata.raft.messages import (
    Alive,
    Append,
    Committed,
    Follow,
    Install,
    MalformedMessage,
    Message,
    MyStanding,
    Propose,
    Row,
    Standing,
)
from cordwood.cluster.metadata.raft.node import RaftNode
from cordwood.cluster.metadata.raft.proposal_forwarder import ProposalForwarder
from cordwood.cluster.metadata.raft.raft_disk import RaftDisk, RunBlocking
from cordwood.cluster.metadata.raft.standings import Standings
from cordwood.cluster.metadata.raft.storage import Stored
from cordwood.cluster.metadata.raft.streams import ObserverStreams
from cordwood.cluster.metadata.raft.transport import Address, Transport
from cordwood.cluster.metadata.snapshot import Snapshot
from cordwood.storage.disk import Disk
from cordwood.storage.errors import DamagedLog

_events = structlog.get_logger("quorum")


@dataclass(frozen=True, slots=True)
class _PackedImage:
    """The encoded image after entry `index` of this term."""

    index: int
    term: int
    image: bytes


class RaftQuorum:
    """A metadata quorum of several voters, as one voter runs it.

    Call `open`, then `start`, `formed`, and at last `close`. Before `start`, only `image`, `damage` and `subscribe` may
    be used.
    """

    def __init__(
        self,
        disk: Disk,
        directory: str,
        stored: Stored,
        node_id: BrokerId,
        voters: Mapping[BrokerId, Address],
        bind: Address,
        run_blocking: RunBlocking,
        rng: random.Random,
        cluster_id: str,
        secret: str,
        snapshot_interval_bytes: int,
        on_failure: Callable[[QuorumFailed], None],
        on_refused: Callable[[str], None],
        timing: Timing,
        admit: Admit,
    ) -> None:
        """Use `open`, which describes the arguments."""
        self._node_id, self._voters, self._bind = node_id, voters, bind
        self._others = tuple(sorted(voter for voter in voters if voter != node_id))
        self._rng, self._timing, self._admit = rng, timing, admit
        self._cluster_id, self._secret = cluster_id, secret.encode()
        self._on_failure, self._on_refused = on_failure, on_refused
        self._failure: QuorumFailed | None = None
        self._log = stored.log
        self._machine = Machine(stored.image, stored.image_term, rng)
        self._raft_disk = RaftDisk(disk, directory, stored.log, self._machine, run_blocking, snapshot_interval_bytes)
        self._standings = Standings(disk, directory, stored.standing, self._others)
        self.damage = stored.damage
        """The damage that `open` found. The damaged files are in quarantine."""
        self.files = self._raft_disk.files
        self._heartbeat_listeners: list[Callable[[Heartbeat], None]] = []
        self._hang_up_listeners: list[Callable[[BrokerId], None]] = []
        self._leadership_listeners: list[Callable[[bool], None]] = []
        self._was_leader = False
        self._formatted_in_term = 0
        self._applied_by: dict[BrokerId, int] = {}
        self._run_blocking = run_blocking
        self._packed: _PackedImage | None = None
        self._packing: asyncio.Task[None] | None = None

    @classmethod
    def open(
        cls,
        disk: Disk,
        directory: str,
        node_id: BrokerId,
        voters: Mapping[BrokerId, Address],
        bind: Address,
        run_blocking: RunBlocking,
        rng: random.Random,
        *,
        cluster_id: str = "",
        secret: str = "",
        snapshot_interval_bytes: int = SNAPSHOT_INTERVAL_BYTES,
        on_failure: Callable[[QuorumFailed], None],
        on_refused: Callable[[str], None],
        timing: Timing = DEFAULT_TIMING,
        admit: Admit = admit_any,
    ) -> "RaftQuorum":
        """Load the metadata. Damaged files are moved aside, and the other voters send the metadata again. Blocks.

        `voters` has all voters, this one included; this one listens at `bind`. A new cluster gets the id `cluster_id`,
        or a random one. `on_failure` is called once when this voter has failed, `on_refused` when the other voters
        refuse it: in both cases the broker has to stop. `admit` validates the commands of other brokers. Raises
        storage.WrongMetadata and RuntimeError with a message for the operator.
        """
        check_source()
        stored = storage.read(disk, directory)
        return cls(
            disk,
            directory,
            stored,
            node_id,
            voters,
            bind,
            run_blocking,
            rng,
            cluster_id,
            secret,
            snapshot_interval_bytes,
            on_failure,
            on_refused,
            timing,
            admit,
        )

    async def start(self) -> int:
        """Listen, connect to the other voters, and start Raft. Return the port. Raises OSError."""
        self._loop = asyncio.get_running_loop()
        applied = self._machine.image.index
        self._node = RaftNode(self._node_id, self._others, self._log, applied, self, self._timing, self._rng)
        self._node.may_vote = self._standings.own.may_vote
        self._transport = Transport(self._membership, self._voters, self, self._rng)
        self._forwarding = ProposalForwarder(self._node, self._machine, self._transport)
        self._streams = ObserverStreams(self._node, self, lambda: self.leader_id)
        self._tick_handle: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        port = await self._transport.listen(self._bind)
        self._keeping = self._loop.create_task(self._keep(), name="metadata disk")
        self._reconsider()
        self._transport.start()
        self._let_time_pass()
        return port

    async def formed(self) -> None:
        """Wait until the cluster has an id, and the image has all entries committed before this call."""
        await self._machine.formed(self._submit)

    async def close(self) -> None:
        """Resign if this voter leads, and write everything to disk."""
        is_sound = self._failure is None
        if is_sound:
            self._node.resign()
            self._stop(QuorumFailed("the metadata is closed"))
        await self._transport.close()
        await self._raft_disk.close(self._node, is_sound=is_sound)
        self._keeping.cancel()
        if self._packing is not None:
            self._packing.cancel()

    @property
    def image(self) -> Image:
        return self._machine.image

    @property
    def term(self) -> int:
        return self._node.term

    @property
    def is_leader(self) -> bool:
        return self._failure is None and self._node.is_active

    @property
    def leader_id(self) -> BrokerId | None:
        """The leader as far as this voter knows, or None."""
        return self._node.leader

    def subscribe(self, listener: Listener) -> None:
        self._machine.subscribe(listener)

    async def propose(self, command: Command) -> Image:
        """As Quorum.propose. Without a leader, the proposal waits for one until its timeout."""
        return await self._machine.propose(command, self._submit)

    def send_heartbeat(self, heartbeat: Heartbeat) -> None:
        for voter in self._others:
            self._transport.send(voter, Alive.of(heartbeat))
        self._heard(heartbeat)

    def on_heartbeat(self, callback: Callable[[Heartbeat], None]) -> None:
        self._heartbeat_listeners.append(callback)

    def on_hang_up(self, callback: Callable[[BrokerId], None]) -> None:
        self._hang_up_listeners.append(callback)

    def on_leadership(self, callback: Callable[[bool], None]) -> None:
        self._leadership_listeners.append(callback)
        if self._was_leader:
            callback(True)

    def status(self) -> QuorumStatus:
        voters = tuple(map(self._voter_status, self._voters))
        observers = tuple(
            VoterStatus(observer, self._applied_by.get(observer), True, self._heard_ms_ago(observer))
            for observer in self._transport.connected_observers()
        )
        return QuorumStatus(self.leader_id, self.term, self._node.commit_index, voters, observers)

    async def scrub(self) -> list[DamagedLog]:
        """Compare the files on disk with memory, and rewrite those that differ. Return the damage."""
        return await self._raft_disk.scrub(self._node)

    def now_s(self) -> float:
        return self._loop.time()

    def send(self, receiver: BrokerId, message: Message) -> bool:
        return self._transport.send(receiver, message)

    def apply(self, rows: tuple[Row, ...]) -> None:
        self._machine.apply(rows)

    def packed_image(self) -> Install | None:
        packed = self._packed
        if packed is None or packed.index < self._log.base_index:
            # The log no longer has the entries after this image: encode a newer one for the next attempt.
            if self._packing is None:
                self._packing = self._loop.create_task(self._pack(self._machine.whole), name="metadata image")
            return None
        return Install(self._node.term, packed.index, packed.term, packed.image)

    async def _pack(self, whole: Snapshot) -> None:
        """Encode an image in a thread: 10,000 partitions take some 50 ms."""
        try:
            image: bytes = await self._run_blocking(snapshot.encode, whole.image)
            self._packed = _PackedImage(whole.image.index, whole.term, image)
        finally:
            self._packing = None
        self._wake()

    def install(self, image: Install) -> None:
        self._raft_disk.install(image)

    def readmitted(self) -> None:
        self._stand_as(Standing.MEMBER)

    def connected(self, peer: Peer) -> None:
        if peer.role is PeerRole.VOTER:
            self._transport.send(peer.broker_id, MyStanding(self._standings.own))
            self._guarded(self._node.connected, peer.broker_id)
            self._forwarding.send_again()

    def disconnected(self, peer: Peer) -> None:
        self._streams.end(peer.broker_id)
        for listener in self._hang_up_listeners:
            listener(peer.broker_id)
        if peer.role is PeerRole.VOTER:
            self._standings.lost(peer.broker_id)
            self._guarded(self._node.disconnected, peer.broker_id)

    def received(self, peer: Peer, message: Message) -> None:
        if self._failure is None:
            self._guarded(self._take, peer, message)

    def refused(self, reason: str) -> None:
        if self._failure is None:
            self._on_refused(reason)

    def _take(self, peer: Peer, message: Message) -> None:
        match message:
            case Alive():
                if message.broker_id != peer.broker_id:
                    raise MalformedMessage(f"a heartbeat of broker {message.broker_id}")
                self._applied_by[peer.broker_id] = message.applied_index
                self._heard(message.heartbeat())
            case Propose():
                self._take_proposal(peer, message)
            case Follow():
                self._streams.follow(peer.broker_id, message.index)
            case Committed():
                raise MalformedMessage("a voter follows no observer's stream")
            case _ if peer.role is not PeerRole.VOTER:
                raise MalformedMessage(f"{type(message).__name__} from an observer")
            case MyStanding():
                self._standings.heard(peer.broker_id, message.standing)
                self._reconsider()
            case _:
                if isinstance(message, Append | Install) and self._standings.own is Standing.EMPTY:
                    # A leader exists, so the cluster exists, whether or not this voter was a member.
                    self._stand_as(Standing.AMNESIAC)
                self._node.receive(peer.broker_id, message)
        self._wake()

    def _take_proposal(self, peer: Peer, proposal: Propose) -> None:
        """Take a proposal. A refusal is not answered: a broker proposes no command that it would refuse itself."""
        try:
            self._check_proposal(peer.broker_id, proposal.entry)
        except (CommandRefused, UnknownCommand) as refusal:
            _events.warning("proposal.refused", broker=peer.broker_id, reason=str(refusal))
            return
        self._forwarding.take(proposal, peer.role)

    def _check_proposal(self, sender: BrokerId, proposed: bytes) -> None:
        """Raises MalformedMessage, UnknownCommand, CommandRefused."""
        if not TAG_BYTES <= len(proposed) <= ENTRY_BYTES_MAX:
            raise MalformedMessage(f"an entry of {len(proposed)} bytes")
        entry = decode_entry(proposed)
        if entry.command:
            command = decode(entry.command)
            if not may_propose(command, sender, self._voters):
                message = f"{type(command).__name__} is not for broker {sender} to propose."
                raise CommandRefused(ErrorCode.cluster_authorization_failed, message)
            self._admit(command, self.image)

    def _submit(self, entry: bytes) -> None:
        self._forwarding.submit(entry)
        self._wake()

    def _wake(self) -> None:
        """Schedule one tick for everything that arrives before it."""
        if self._tick_handle is None and self._failure is None:
            self._tick_handle = self._loop.call_soon(self._guarded, self._tick)

    def _let_time_pass(self) -> None:
        """Tick at intervals, and no later than an election is due: voters with equal ticks would stand together."""
        self._wake()
        due_s = self._node.deadline_s - self.now_s()
        delay_s = min(due_s, self._timing.tick_interval_s) if due_s > 0 else self._timing.tick_interval_s
        self._timer = self._loop.call_later(delay_s, self._let_time_pass)

    def _tick(self) -> None:
        self._tick_handle = None
        node = self._node
        self._forwarding.send()
        node.tick()
        if node.commit_index > node.applied_index:
            self._wake()
        self._stand_as(self._standings.own_with(node.term, node.log.end))
        self._format()
        self._tell_leadership()
        self._streams.pump()
        self._raft_disk.look()

    def _format(self) -> None:
        """Propose the id of a new cluster."""
        if self.is_leader and not self.image.cluster_id and self._formatted_in_term != self.term:
            self._formatted_in_term = self.term
            command = FormatCluster(self._cluster_id or new_cluster_id(self._rng))
            self._node.append(self._machine.entry(command))

    def _tell_leadership(self) -> None:
        if self.is_leader != self._was_leader:
            self._was_leader = not self._was_leader
            _events.info("quorum.leads" if self._was_leader else "quorum.leads_no_more", term=self.term)
            for callback in self._leadership_listeners:
                callback(self._was_leader)

    def _heard(self, heartbeat: Heartbeat) -> None:
        for callback in self._heartbeat_listeners:
            callback(heartbeat)

    def _reconsider(self) -> None:
        self._stand_as(self._standings.decided())

    def _stand_as(self, standing: Standing) -> None:
        if self._standings.become(standing):
            self._node.may_vote = standing.may_vote
            for other in self._others:
                self._transport.send(other, MyStanding(standing))

    def _membership(self) -> Membership:
        cluster_id = self.image.cluster_id or self._cluster_id
        return Membership(self._node_id, PeerRole.VOTER, cluster_id, self._voters.keys(), self._secret)

    def _voter_status(self, voter: BrokerId) -> VoterStatus:
        if voter == self._node_id:
            return VoterStatus(voter, self._log.end, True, 0)
        progress = self._node.progress_of(voter)
        log_end = None if progress is None else progress.stored
        return VoterStatus(voter, log_end, self._transport.is_connected(voter), self._heard_ms_ago(voter))

    def _heard_ms_ago(self, peer: BrokerId) -> int | None:
        heard_at_s = self._transport.heard_at_s(peer)
        return None if heard_at_s is None else round((self.now_s() - heard_at_s) * 1000)

    async def _keep(self) -> None:
        try:
            await self._raft_disk.run(self._node, self._wake)
        except Exception as error:
            self._fail(error)

    def _guarded(self, step: Callable[..., None], *arguments: object) -> None:
        """Run `step`. Any error stops this voter, because its Raft state may be inconsistent.

        Raises MalformedMessage: a malformed message only ends the connection.
        """
        if self._failure is not None:
            return
        try:
            step(*arguments)
        except MalformedMessage:
            raise
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        if self._failure is None:
            _events.error("quorum.failed", exc_info=error)
            failure = QuorumFailed(f"the metadata log cannot be written: {error}")
            self._stop(failure)
            self._on_failure(failure)

    def _stop(self, failure: QuorumFailed) -> None:
        """Stop taking part."""
        self._failure = failure
        self._machine.fail(failure)
        for handle in (self._timer, self._tick_handle):
            if handle is not None:
                handle.cancel()
        if self._was_leader:
            self._was_leader = False
            for callback in self._leadership_listeners:
                callback(False)
