"""Replication of several brokers in one process: real logs and connections over simulated disks and wires.

The metadata is a list of images. Every broker receives them in order, with a random delay. The cluster
(`replicas.ReplicaCluster`) plays the controller and decides about fencing. Everything runs in simulated time; equal
seeds give equal runs.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

from cordwood.chaos.sim.commands_fit import misfits, not_taken_in
from cordwood.chaos.sim.disk import SimulatedDisk
from cordwood.chaos.sim.wires import Wires
from cordwood.cluster.broker.assignments import Assignments
from cordwood.cluster.broker.isr_changes import IsrChanges
from cordwood.cluster.broker.peer_directory import PeerDirectory
from cordwood.cluster.config.settings import Settings
from cordwood.cluster.metadata.commands import (
    BrokerId,
    Command,
    Endpoint,
    FenceBroker,
    IsrChange,
    RegisterBroker,
    UnfenceBroker,
)
from cordwood.cluster.metadata.image import BrokerImage, CommandRefused, Image
from cordwood.cluster.metadata.image_builder import apply
from cordwood.cluster.metadata.quorum import QuorumUnavailable
from cordwood.cluster.repairs.damage import DamageRegister
from cordwood.cluster.repairs.repairs import Repairs
from cordwood.cluster.repairs.unflushed import UnflushedReplicas
from cordwood.replication.channel import Received
from cordwood.replication.flusher import Flusher
from cordwood.replication.follower_connection import FollowerLimits
from cordwood.replication.follower_connections import FollowerConnections
from cordwood.replication.leader_connection import LeaderConnection, LeaderConnections
from cordwood.replication.log_directory import LogDirectory
from cordwood.replication.log_maintenance import Intervals, LogMaintenance
from cordwood.replication.partition import Partition
from cordwood.replication.partition_context import PartitionContext
from cordwood.replication.range_reads import RangeReader
from cordwood.replication.replicas import Replicas
from cordwood.replication.scrubber import Scrubber
from cordwood.replication.syncers import OnSynced, sync_all
from cordwood.replication.truncation import Truncations
from cordwood.replication.waiters import EndOfTickScheduler
from cordwood.storage.disk import Syncable
from cordwood.storage.scrub import Undecodable

NOW_MS = 1_700_000_000_000
LISTENER = "PLAINTEXT"
PROPOSAL_TIMEOUT_S = 2.0
LOST_SHARE = 0.3
"""The share of lost answers to proposals, while metadata is delayed."""
LAG_MAX_S = 4.0
SYNC_MAX_S = 0.01
SCRUB_BYTES_PER_SECOND = 1 << 20

Listener = Callable[[Image, Image], None]
InVain = dict[IsrChange, Mapping[BrokerId, BrokerImage]]
"""Rejected ISR changes, because of the members they add, and the registered brokers at that time."""
Decided = tuple[int, CommandRefused | None, InVain]


class Metadata:
    """The metadata log. A broker has a prefix of it, and can propose while it is not cut off."""

    def __init__(self, rng: random.Random, brokers: Sequence[int]) -> None:
        self._rng = rng
        self.images: list[Image] = [Image(cluster_id="simulated")]
        self.cut_off: set[int] = set()
        self.lag_max_s = 0.0
        """The maximum extra delay of metadata. While it is above 0, answers to proposals may be lost too."""
        self._followers: dict[int, MetadataView] = {}
        self._brokers = brokers

    @property
    def newest(self) -> Image:
        return self.images[-1]

    def commit(self, command: Command) -> Image:
        """Apply a command. Raises CommandRefused."""
        before = self.newest
        self.images.append(apply(before, command, len(self.images)))
        wrong = list(misfits(before, command, self.newest))
        assert not wrong, wrong
        for member in self._followers.values():
            member.catch_up_later()
        return self.newest

    def join(self, broker_id: int) -> "MetadataView":
        """Register a starting broker, which has everything committed, as the end of `formed` guarantees."""
        member = self._followers[broker_id] = MetadataView(self, broker_id, self._rng)
        return member

    def leave(self, broker_id: int) -> None:
        del self._followers[broker_id]

    def heal(self) -> None:
        self.cut_off.clear()
        self.lag_max_s = 0.0
        for member in self._followers.values():
            member.catch_up_later()


class MetadataView:
    """One broker's view of the metadata: the part of Quorum that replication uses."""

    def __init__(self, metadata: Metadata, broker_id: int, rng: random.Random) -> None:
        self._metadata, self._broker_id, self._rng = metadata, broker_id, rng
        self.image = metadata.newest
        self._listeners: list[Listener] = []
        self._is_dead = False
        self._reported: InVain = {}

    @property
    def is_cut_off(self) -> bool:
        return self._is_dead or self._broker_id in self._metadata.cut_off

    def subscribe(self, listener: Listener) -> None:
        self._listeners.append(listener)

    async def propose(self, command: Command) -> Image:
        """Propose as Quorum.propose does. Raises QuorumUnavailable if a message was lost, CommandRefused if refused."""
        loop = asyncio.get_running_loop()
        decided: asyncio.Future[Decided] = loop.create_future()
        if not self.is_cut_off:
            # The proposal is delivered even if the proposing process ends.
            loop.call_later(self._delay_s(0.001, 0.02), self._decide, command, decided)
            wanted, refusal, in_vain = await decided
            is_lost = self._metadata.lag_max_s > 0 and self._rng.random() < LOST_SHARE
            await asyncio.sleep(self._delay_s(0.001, 0.02))
            if not self.is_cut_off and not is_lost:
                self._catch_up(wanted)
                self._reported |= in_vain
                if refusal is not None:
                    raise refusal
                return self.image
        await asyncio.sleep(PROPOSAL_TIMEOUT_S)
        raise QuorumUnavailable("no voter answered")

    def _decide(self, command: Command, decided: "asyncio.Future[Decided]") -> None:
        refusal, before = None, self._metadata.newest
        in_vain: InVain = dict.fromkeys(not_taken_in(before, command), before.brokers)
        for change in in_vain:
            assert self._reported.get(change) != before.brokers, (
                f"rule 6: broker {self._broker_id} knows that no replica may join by {change}, and proposes it again"
            )
        try:
            self._metadata.commit(command)
        except CommandRefused as refused:
            refusal = refused
        assert refusal is None or refusal.__cause__ is None, refusal.message
        if not decided.done():
            decided.set_result((self._metadata.newest.index, refusal, in_vain))

    def catch_up_later(self) -> None:
        asyncio.get_running_loop().call_later(self._delay_s(0.0, 0.05), self._catch_up, self._metadata.newest.index)

    def die(self) -> None:
        self._is_dead = True

    def _delay_s(self, least_s: float, usual_max_s: float) -> float:
        return self._rng.uniform(least_s, usual_max_s) + self._rng.uniform(0.0, self._metadata.lag_max_s)

    def _catch_up(self, index: int) -> None:
        """Apply images up to `index`, one by one or several in one step. Skipped images are never seen."""
        while not self.is_cut_off and self.image.index < index:
            following = self._rng.randrange(self.image.index, index) + 1
            old, self.image = self.image, self._metadata.images[following]
            for listener in self._listeners:
                listener(old, self.image)


class SlowSyncer:
    """A syncer with a random delay per group of files, up to `sync_max_s`."""

    def __init__(self, rng: random.Random, sync_max_s: float) -> None:
        self._rng, self._sync_max_s, self._is_dead = rng, sync_max_s, False

    def sync(self, files: Sequence[Syncable], done: OnSynced) -> None:
        asyncio.get_running_loop().call_later(self._rng.uniform(0.0002, self._sync_max_s), self._sync, files, done)

    def die(self) -> None:
        self._is_dead = True

    def _sync(self, files: Sequence[Syncable], done: OnSynced) -> None:
        if not self._is_dead:
            done(sync_all(files))

    def close(self) -> None:
        """Do nothing; there are no resources."""


class ReplicaBroker:
    """One incarnation of a broker, limited to replication."""

    def __init__(
        self,
        broker_id: int,
        disk: SimulatedDisk,
        metadata: Metadata,
        wires: Wires,
        rng: random.Random,
        sync_max_s: float = SYNC_MAX_S,
    ) -> None:
        self.broker_id, self.disk = broker_id, disk
        self.incarnation = UUID(int=rng.getrandbits(128), version=4)
        self.damage, self._syncer = DamageRegister(), SlowSyncer(rng, sync_max_s)
        self.is_silent = self.has_declared = False
        self._declared: asyncio.Task[None] | None = None
        self._metadata, self._wires, self._rng = metadata, wires, rng
        end_of_tick = EndOfTickScheduler(loop := asyncio.get_running_loop())
        flusher = Flusher(loop, self._syncer, end_of_tick)
        directory = LogDirectory(disk, "/data", self._directory_failed, flusher, _run_here, disk.boot_id)
        self.member = metadata.join(broker_id)
        self.isr_changes = IsrChanges(self.member, broker_id, lambda other: self.follower_connections.epoch_of(other))  # type: ignore[arg-type]
        context = PartitionContext(
            broker_id=broker_id,
            end_of_tick=end_of_tick,
            now=loop.time,
            lag_max_s=LAG_MAX_S,
            wants_isr_change=self.isr_changes.want,
            found_damage=lambda partition, damage: self.repairs.found(partition, damage),
            start_moved=lambda partition: self.log_maintenance.checkpoints.write_soon(partition),
            partition_failed=lambda partition: self.repairs.failed(partition),
        )
        self.replicas = Replicas([directory], context)
        peers = PeerDirectory(self.member, broker_id, LISTENER, self.incarnation)  # type: ignore[arg-type]
        limits = FollowerLimits(100 << 20)
        self.follower_connections = FollowerConnections(self.replicas, end_of_tick, limits, peers.why_not)
        wires.listen(broker_id, self.follower_connections.handle)

        async def dial(_host: str, port: int, received: Received) -> Any:
            return await wires.dial(broker_id, port, received)

        def leader_connection(leader: int) -> LeaderConnection:
            return LeaderConnection(leader, peers.address, peers.hello, dial, end_of_tick, lambda: NOW_MS, truncations)

        truncations = self.truncations = Truncations()
        self.leader_connections = LeaderConnections(leader_connection)
        self.log_maintenance = LogMaintenance(self.replicas, lambda: NOW_MS, Intervals(1e9, 0.1, LAG_MAX_S))
        self.repairs = Repairs(
            self.member,  # type: ignore[arg-type]
            broker_id,
            self.replicas,
            self.leader_connections,
            self.log_maintenance,
            self.truncations,
            lambda: self.assignments.open_more(self.member.image),
            self.damage,
            lambda: RangeReader(peers.address, peers.hello, dial),
        )
        self.unflushed = UnflushedReplicas(self.member, broker_id, self.replicas)  # type: ignore[arg-type]
        self.scrubber = Scrubber(self.replicas, SCRUB_BYTES_PER_SECOND, _nothing, _must_be_decodable)
        settings = _settings(broker_id)
        self.assignments = Assignments(
            self.replicas, self.log_maintenance.file_removal, self.repairs.follow, settings, lambda: NOW_MS
        )

    def register(self) -> None:
        """Register as a broker does that has found the quorum: a new incarnation, and the roles that follow."""
        me = BrokerId(self.broker_id)
        endpoint = Endpoint(LISTENER, "host", self.broker_id)
        self._metadata.commit(RegisterBroker(me, self.incarnation, (endpoint,), None, (self.disk_id,)))
        self.member.image = self._metadata.newest
        self.assignments.begin(self.member.image)
        self.member.subscribe(self.assignments.follow)
        self.member.subscribe(self.repairs.on_metadata_change)
        self.log_maintenance.start()
        self.scrubber.start()
        self._declared = asyncio.get_running_loop().create_task(self._declare())

    async def _declare(self) -> None:
        await self.unflushed.declared()
        self.has_declared = True
        await self.repairs.declared()

    @property
    def disk_id(self) -> str:
        """The id of the disk; a new one after a wipe."""
        path = "/data/id"
        if not self.disk.exists(path):
            file = self.disk.open(path, create=True)
            file.pwrite([self.incarnation.bytes], 0)
            file.sync()
            directory = self.disk.open_directory("/data")
            directory.sync()
        return self.disk.open(path).pread(16, 0).hex()

    def fall_silent(self) -> None:
        """End the process for its peers: no message leaves or arrives."""
        if not self.is_silent:
            self.is_silent = True
            self._metadata.leave(self.broker_id)
            self.member.die()
            self._syncer.die()
            self._wires.unplug(self.broker_id)

    async def die(self) -> None:
        """End the process, and stop all of its tasks."""
        self.fall_silent()
        await self.leader_connections.close()
        await self.truncations.close()
        await self.isr_changes.close()
        if self._declared is not None:
            self._declared.cancel()
        await self.scrubber.close()
        await self.repairs.close()
        await self.log_maintenance.stop()

    def fence(self) -> None:
        self._metadata.commit(FenceBroker(BrokerId(self.broker_id), self._epoch()))

    def is_fit(self, image: BrokerImage) -> bool:
        """Return whether this incarnation is registered, and has declared its possible losses."""
        return image.incarnation == self.incarnation and self.has_declared

    def unfence(self) -> None:
        """Unfence the broker, if it has declared its possible losses."""
        if self._declared is not None and self._declared.done():
            self._metadata.commit(UnfenceBroker(BrokerId(self.broker_id), self._epoch()))

    def _directory_failed(self, directory: LogDirectory) -> None:
        self.replicas.go_offline(directory)
        self.repairs.lost_disk()

    def _epoch(self) -> int:
        return self._metadata.newest.brokers[BrokerId(self.broker_id)].epoch


def _settings(broker_id: int) -> Settings:
    return Settings(node_id=broker_id, log_segment_bytes=2000)


def _must_be_decodable(partition: Partition, found: Undecodable) -> None:
    raise AssertionError(f"unreadable bytes that were never written: {partition.topic}-{partition.index} {found}")


async def _nothing() -> None:
    """Do nothing; there is nothing to scrub besides the logs."""


async def _run_here(function: Callable[..., Any], *arguments: Any) -> Any:
    await asyncio.sleep(0)
    return function(*arguments)


Run = Callable[[], Awaitable[None]]
