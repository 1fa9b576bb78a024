"""The metadata quorum: commands are written to disk, committed, and applied in the same order on every broker.

`SingleVoter` is a quorum of one voter, with the same journal and snapshots as a Raft quorum. A single voter keeps a
second copy of its files, since there are no peers to repair from (docs/adr/0005).
"""

import asyncio
import base64
import random
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol
from uuid import UUID

import structlog

from cordwood.cluster.metadata import snapshot
from cordwood.cluster.metadata.command_codec import decode, encode
from cordwood.cluster.metadata.commands import BrokerId, Command, FormatCluster
from cordwood.cluster.metadata.features import NEWEST_LEVEL, SUPPORTED, Levels
from cordwood.cluster.metadata.file_measures import FileMeasures
from cordwood.cluster.metadata.image import CommandRefused, Image
from cordwood.cluster.metadata.image_builder import ImageBuilder
from cordwood.cluster.metadata.journal import NAME, Journal, JournalEntry
from cordwood.cluster.metadata.listeners import Listener, Listeners
from cordwood.cluster.metadata.mirror import MirroredDisk, copy_of
from cordwood.cluster.metadata.mirror_repair import repair_copies, tidy
from cordwood.cluster.metadata.postponed_work import postponed
from cordwood.cluster.metadata.proposers import Admit, admit_any, check_level
from cordwood.cluster.metadata.snapshot import Snapshot
from cordwood.replication.tasks import RunBlocking, spread
from cordwood.storage.disk import Disk, sync_directory
from cordwood.storage.errors import DamagedLog
from cordwood.storage.steps import Steps, at_once

SNAPSHOT_INTERVAL_BYTES = 2 << 20
COMMANDS_PER_PART = 64
"""Commands of a single voter that are applied in one step of the event loop."""

Address = tuple[str, int]


class QuorumFailed(Exception):
    """The metadata can no longer be written. Final: writes in flight may or may not be found after a restart."""


class QuorumUnavailable(QuorumFailed):
    """The outcome of a command is not known in time.

    Not final: the command may be proposed again, since commands carry the state that they expect.
    """


@dataclass(frozen=True, slots=True)
class Timing:
    """The bounds of the election timeout, and the intervals of appends and of ticks."""

    election_timeout_min_s: float = 0.5
    election_timeout_max_s: float = 1.0
    append_interval_s: float = 0.1
    tick_interval_s: float = 0.05

    @property
    def fallback_s(self) -> float:
        """The time without a majority after which a leader steps down."""
        return self.election_timeout_max_s


@dataclass(frozen=True, slots=True)
class QuorumTls:
    """TLS between the brokers of a quorum. Each connection asks for the contexts, so that they may be replaced."""

    client: Callable[[], ssl.SSLContext]
    server: Callable[[], ssl.SSLContext]
    """Requires a certificate of the dialling side."""
    why_not: Callable[[bytes], str | None]
    """Returns why the owner of a certificate (DER) may not take part; None if it may."""
    allows_plaintext: bool = False
    """Whether connections without TLS are made and accepted too, while the brokers change to TLS one by one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumOptions:
    """The options of one broker's part in the quorum. A single voter uses no option of the network or of elections."""

    node_id: BrokerId
    rng: random.Random
    run_blocking: RunBlocking
    on_failure: Callable[[QuorumFailed], None]
    """Called once when this broker's part has failed: the broker has to stop."""
    on_refused: Callable[[str], None]
    """Called when a majority of the voters refuse this broker: it has to stop."""
    voters: Mapping[BrokerId, Address] = field(default_factory=dict)
    """All voters, with this broker if it is one."""
    bootstrap: Sequence[Address] = ()
    """Where a broker that reaches no voter finds one: controller.quorum.bootstrap.servers."""
    may_found: bool = True
    """Whether a voter with an empty disk may found a cluster: not with controller.quorum.bootstrap.servers."""
    bind: Address = ("", 0)
    """Where a voter listens."""
    cluster_id: str = ""
    """The id of the cluster, if it is known. A new cluster gets it, or a random one."""
    founding_level: int = NEWEST_LEVEL
    """The metadata.version of a new cluster."""
    levels: Levels = SUPPORTED
    """What this broker supports of metadata.version."""
    secret: str = ""
    tls: QuorumTls | None = None
    snapshot_interval_bytes: int = SNAPSHOT_INTERVAL_BYTES
    timing: Timing = field(default_factory=Timing)
    admit: Admit = admit_any
    """Validates the commands of other brokers."""
    on_rejected_peer: Callable[[str, str], None] = lambda _host, _reason: None
    """Called with the host and the reason when a connection to the quorum's listener is refused."""

    @property
    def others(self) -> tuple[BrokerId, ...]:
        """The other voters, in ascending order."""
        return tuple(sorted(voter for voter in self.voters if voter != self.node_id))


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A broker's heartbeat: its incarnation, its broker epoch, and the last metadata entry that it has applied."""

    broker_id: BrokerId
    incarnation: UUID
    broker_epoch: int
    applied_index: int
    wants_shutdown: bool = False


@dataclass(frozen=True, slots=True)
class VoterStatus:
    """The state of a voter or an observer. `log_end` is its last entry; None if this broker does not know it."""

    broker_id: BrokerId
    log_end: int | None
    is_connected: bool
    last_heard_ms_ago: int | None


@dataclass(frozen=True, slots=True)
class QuorumStatus:
    """Leader, term, commit index, and the state of each voter and observer. Entries up to `commit_index` are final."""

    leader_id: BrokerId | None
    term: int
    commit_index: int
    voters: tuple[VoterStatus, ...]
    observers: tuple[VoterStatus, ...] = ()


_events = structlog.get_logger("quorum")

_Proposal = tuple[Command, asyncio.Future[Image]]


class Quorum(Protocol):
    """The metadata quorum as a broker sees it."""

    @property
    def image(self) -> Image:
        """The newest image. Images are immutable."""
        ...

    @property
    def term(self) -> int:
        """Raft's term, which Kafka calls the leader epoch of the metadata."""
        ...

    async def propose(self, command: Command) -> Image:
        """Commit and apply a command.

        Return this broker's image, which includes it. By then it is on the disks of a majority.

        Raises CommandRefused if the command changed nothing; QuorumUnavailable if the outcome is not known in time, and
        the command may be proposed again; QuorumFailed if the quorum has failed and the outcome is unknown.
        """
        ...

    def subscribe(self, listener: Listener) -> None:
        """Call `listener(old, new)` after every change, once for all commands that shared a sync."""
        ...

    @property
    def is_leader(self) -> bool:
        """True on the active controller: Raft's leader, once it has applied all entries committed before its term.

        An isolated leader stays true until it steps down; commands that it proposes meanwhile are not applied.
        """
        ...

    def status(self) -> QuorumStatus: ...

    def send_heartbeat(self, heartbeat: Heartbeat) -> None:
        """Send a heartbeat to every connected voter, and to this broker if it is a voter."""
        ...

    def on_heartbeat(self, callback: Callable[[Heartbeat], None]) -> None:
        """Call `callback` with the heartbeat of every broker, this one included. Only on voters."""
        ...

    def on_hang_up(self, callback: Callable[[BrokerId], None]) -> None:
        """Call `callback` whenever the connection of another broker with this voter has ended. Only on voters."""
        ...

    def on_leadership(self, callback: Callable[[bool], None]) -> None:
        """Call `callback(True)` when this broker becomes the active controller, `callback(False)` when it no longer is.

        If this broker is the active controller already, the call is made immediately.
        """
        ...


class SingleVoter:
    """A quorum of one voter: an entry is committed once it is synced in both copies."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        journal: Journal,
        image: Image,
        damage: list[DamagedLog],
        options: QuorumOptions,
    ) -> None:
        """Use `open`."""
        self._disk, self._directory = disk, directory
        self._journal, self._image = journal, image
        self.damage = damage
        """The damage that `open` found in one copy and repaired from the other."""
        self.files = FileMeasures(journal.end)
        self._options, self._run_blocking = options, options.run_blocking
        self._listeners = Listeners()
        self._heartbeat_listeners: list[Callable[[Heartbeat], None]] = []
        # Bounded by the requests in flight, which are bounded in size and number.
        self._waiting: list[_Proposal] = []
        self._writing: asyncio.Task[None] | None = None
        self._failure = ""

    @classmethod
    def open(cls, disk: Disk, directory: str, options: QuorumOptions) -> "SingleVoter":
        """Load the metadata, or format a new cluster if there is none. Blocks.

        Raises CommandRefused if an existing cluster has another id, DamagedLog with file and byte if both copies are
        damaged, and UnknownCommand after a downgrade.
        """
        mirrored = MirroredDisk(disk, directory)
        for parent in disk.make_directories(copy_of(directory)):
            sync_directory(disk, parent)
        # Sync first: a snapshot must be durable before its predecessor is removed.
        sync_directory(mirrored, directory)
        known, damage = repair_copies(disk, directory)
        journal = Journal.open(mirrored, f"{directory}/{NAME}")
        image = _replay(journal, known.image if known else Image())
        image = _formatted(journal, image, options)
        tidy(disk, directory)
        return cls(mirrored, directory, journal, image, damage, options)

    @property
    def image(self) -> Image:
        return self._image

    @property
    def term(self) -> int:
        return self._journal.term

    def subscribe(self, listener: Listener) -> None:
        self._listeners.add(listener)

    @property
    def is_leader(self) -> bool:
        return True

    def status(self) -> QuorumStatus:
        index, node_id = self._image.index, self._options.node_id
        return QuorumStatus(node_id, self.term, index, (VoterStatus(node_id, index, True, 0),))

    def send_heartbeat(self, heartbeat: Heartbeat) -> None:
        for callback in self._heartbeat_listeners:
            callback(heartbeat)

    def on_heartbeat(self, callback: Callable[[Heartbeat], None]) -> None:
        self._heartbeat_listeners.append(callback)

    def on_hang_up(self, callback: Callable[[BrokerId], None]) -> None:
        """Do nothing: there are no other brokers."""

    def on_leadership(self, callback: Callable[[bool], None]) -> None:
        callback(True)

    async def propose(self, command: Command) -> Image:
        """As Quorum.propose. Commands proposed during a sync share the next one."""
        if self._failure:
            raise QuorumFailed(self._failure)
        check_level(command, self._image)
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[Image] = loop.create_future()
        self._waiting.append((command, outcome))
        if self._writing is None:
            self._writing = loop.create_task(self._write_waiting(), name="metadata journal")
        try:
            return await outcome
        finally:
            # A refusal leads to this frame by its traceback: with the future it would be a reference cycle.
            del outcome

    async def close(self) -> None:
        """Finish the proposals in progress, then close the journal."""
        if self._writing is not None:
            await asyncio.wait([self._writing])
        self._failure = self._failure or "the metadata is closed"
        self._journal.close()

    def end_in_snapshot(self) -> int:
        """Write everything to a snapshot, leave an empty journal, and close it. Return the last index. Blocks.

        Raises OSError.
        """
        snapshot.write(self._disk, self._directory, Snapshot(self._image, self._journal.term))
        self._journal.drop_before(len(self._journal))
        self._journal.synced(self._journal.end, self._image.index)
        self._journal.file.sync()
        snapshot.remove_all_but_newest(self._disk, self._directory)
        self._journal.close()
        return self._image.index

    async def _write_waiting(self) -> None:
        batch: list[_Proposal] = []
        try:
            while self._waiting:
                batch, self._waiting = self._waiting, []
                await self._commit(batch)
                if self._journal.end > self._options.snapshot_interval_bytes:
                    await self._take_snapshot()
        except Exception as error:
            # A broken disk and a broken invariant both end the quorum: after a failed write nothing more may be
            # written.
            self._fail(f"the metadata in {self._directory} cannot be written: {error}", batch)
        finally:
            self._writing = None

    async def _commit(self, batch: list[_Proposal]) -> None:
        index = self._image.index + 1
        term = self._journal.term
        try:
            entries = [JournalEntry(index + at, term, encode(command)) for at, (command, _) in enumerate(batch)]
            self._journal.append(entries)
        except OSError as error:
            if not postponed("metadata.commands_postponed", error):
                raise
            _refuse(batch, QuorumUnavailable(f"the metadata in {self._directory} cannot be written now: {error}"))
            return
        end = self._journal.end
        loop = asyncio.get_running_loop()
        began = loop.time()
        await self._run_blocking(self._journal.file.sync)
        self.files.synced(loop.time() - began, end)
        self._journal.synced(end, index + len(batch) - 1)
        for (_, outcome), refusal in zip(batch, await self._apply(batch, index), strict=True):
            if outcome.done():
                # The proposer was cancelled; the command counts nevertheless.
                continue
            if refusal is None:
                outcome.set_result(self._image)
            else:
                outcome.set_exception(refusal)

    async def _apply(self, batch: list[_Proposal], index: int) -> list[CommandRefused | None]:
        """Apply commands in steps, between which the event loop has other work. All are visible together."""
        old, builder = self._image, ImageBuilder(self._image)
        refusals: list[CommandRefused | None] = []
        for number, (command, _) in enumerate(batch):
            steps = attempt_in_steps(builder, command, index + number)
            refusals.append(await spread(steps))
            if (number + 1) % COMMANDS_PER_PART == 0:
                await asyncio.sleep(0)
        self._image = builder.image()
        self._listeners.notify(old, self._image)
        return refusals

    async def _take_snapshot(self) -> None:
        """Write a snapshot. Proposals wait meanwhile, so that no entry is written after the image."""
        taken = Snapshot(self._image, self._journal.term)
        try:
            self.files.snapshot_bytes = await self._run_blocking(snapshot.write, self._disk, self._directory, taken)
            # Only now: until the snapshot is on disk, only the journal has these entries.
            self._journal.drop_before(len(self._journal))
            snapshot.remove_all_but_newest(self._disk, self._directory)
        except OSError as error:
            if not postponed("metadata.snapshot_postponed", error):
                raise

    def _fail(self, failure: str, batch: list[_Proposal]) -> None:
        self._failure = failure
        _refuse(batch + self._waiting, QuorumFailed(failure))
        self._waiting = []
        self._options.on_failure(QuorumFailed(failure))


def _refuse(batch: list[_Proposal], failure: QuorumFailed) -> None:
    for _, outcome in batch:
        if not outcome.done():
            outcome.set_exception(type(failure)(*failure.args))


def _replay(journal: Journal, image: Image) -> Image:
    """Apply all entries after the image. A command that was refused before is refused again."""
    builder, known = ImageBuilder(image), image.index
    for entry in map(journal.__getitem__, range(len(journal))):
        assert entry.index <= known + 1, "the journal and its snapshot have been seen to fit"
        if entry.index == known + 1:
            attempt(builder, decode(entry.command), entry.index)
            known = entry.index
    return builder.image()


def _formatted(journal: Journal, image: Image, options: QuorumOptions) -> Image:
    """Return the image of the cluster. Write its id if the cluster is new. Raises CommandRefused."""
    cluster_id = options.cluster_id or image.cluster_id or new_cluster_id(options.rng)
    command, index = FormatCluster(cluster_id, options.founding_level), image.index + 1
    builder = ImageBuilder(image)
    builder.apply(command, index)
    if image.cluster_id == cluster_id:
        return image
    journal.append([JournalEntry(index, journal.term, encode(command))])
    journal.file.sync()
    journal.synced(journal.end, index)
    return builder.image()


def attempt(builder: ImageBuilder, command: Command, index: int) -> CommandRefused | None:
    """Apply a command. Return the refusal, if any: it is the same on every broker."""
    return at_once(attempt_in_steps(builder, command, index))


def attempt_in_steps(builder: ImageBuilder, command: Command, index: int) -> Steps[CommandRefused | None]:
    """Apply a command, as `attempt`."""
    try:
        yield from builder.in_steps(command, index)
    except CommandRefused as refusal:
        if refusal.__cause__ is not None:
            _events.error("command.broken", command=repr(command)[:1000], index=index, exc_info=refusal.__cause__)
        # The traceback leads to the caller's frame, and with it to all proposals of its batch.
        return refusal.with_traceback(None)
    return None


def new_cluster_id(rng: random.Random) -> str:
    """Return 128 random bits in Kafka's encoding: 22 characters that are safe in a URL."""
    return base64.urlsafe_b64encode(rng.randbytes(16)).rstrip(b"=").decode()
