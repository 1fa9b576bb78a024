"""Repair of damage: a range is refetched in place; a lost tail is cut outside the in-sync set and replicated again."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from uuid import UUID

import structlog

from cordwood.cluster.metadata.commands import BrokerId, DropReplicas
from cordwood.cluster.metadata.image import CommandRefused, Image, PartitionImage
from cordwood.cluster.metadata.quorum import Quorum, QuorumFailed
from cordwood.cluster.repairs.damage import DamageRegister, is_counted_on, may_be_cut, may_be_dropped
from cordwood.cluster.repairs.refetches import Refetches, stem_of
from cordwood.replication.leader_connection import LeaderConnections
from cordwood.replication.log_maintenance import LogMaintenance
from cordwood.replication.log_repair import (
    has_lost_records,
    is_deleted,
    is_still_damaged,
    quarantine_segment,
    rewrite,
    truncation_at_damage,
)
from cordwood.replication.partition import Partition
from cordwood.replication.range_reads import RangeReader
from cordwood.replication.replicas import Replicas
from cordwood.replication.tasks import Tasks
from cordwood.replication.truncation import Truncations
from cordwood.storage.errors import DamagedLog, LostTail, StorageError, Unfinished
from cordwood.storage.scrub import segment_with
from cordwood.storage.types import NO_EPOCH, NO_LEADER

LOOK_S = 0.5
"""Seconds between two rounds of repairs while something is damaged."""
REST_S = 5.0
"""Seconds of rest after a failure, such as a disk without room."""
REPLICAS_PER_COMMAND = 1000
DECLARE_S = 10.0
"""Longest wait of a broker that starts with damage for better replicas, before it may lead with its own."""

_events = structlog.get_logger("repairs")


@dataclass(slots=True)
class _PendingRepair:
    """Damaged records of one replica, and the leader epoch in which they became known."""

    found_in_epoch: int
    damage: list[DamagedLog] = field(default_factory=list)


class Repairs:
    """Repairs of one broker's damaged replicas."""

    def __init__(
        self,
        quorum: Quorum,
        broker_id: int,
        replicas: Replicas,
        leader_connections: LeaderConnections,
        log_maintenance: LogMaintenance,
        truncations: Truncations,
        open_more: Callable[[], None],
        register: DamageRegister,
        reader: Callable[[], RangeReader],
    ) -> None:
        """`open_more` retries to open the replicas that could not be opened."""
        self._quorum, self._me, self._replicas = quorum, BrokerId(broker_id), replicas
        self._leader_connections, self._truncations = leader_connections, truncations
        self._checkpoints = log_maintenance.checkpoints
        self._open_more, self._register = open_more, register
        self._has_begun = self._has_lost_disk = False
        self._pending_repairs: dict[Partition, _PendingRepair] = {}
        self._under_repair: set[Partition] = set()
        self._returning: dict[Partition, list[DamagedLog]] = {}
        self._not_rewritten: list[tuple[Partition, DamagedLog]] = []
        """Files beside segments that could not be written: on a full disk, for example."""
        self._failed: set[Partition] = set()
        self._tasks = Tasks()
        self._refetches = Refetches(
            self._sources_of, reader, log_maintenance.file_removal, register, self._to_repair, self._tasks
        )
        self._repairing: asyncio.Task[None] | None = None

    def found(self, partition: Partition, damage: DamagedLog) -> None:
        """Queue damage for its repair. Damage that is found repeatedly is repaired once."""
        if has_lost_records(damage) and self._register.is_open(damage):
            return
        # Recovery skips damage that it finds when a log is opened, so a check cannot see that damage again: check only
        # replicas that have a role.
        has_role = partition.leader_epoch != NO_EPOCH
        if has_role and not is_still_damaged(partition, damage):
            return
        is_new = not isinstance(damage, Unfinished) and self._note(partition, damage)
        if not has_lost_records(damage):
            self._tasks.spawn(self._rewrite(partition, damage))
        elif is_new and isinstance(damage, LostTail):
            self._to_repair(partition, damage)
        elif is_new:
            self._damaged(partition, damage)

    def follow(self, partition: Partition, leader: int) -> None:
        """Follow `leader`. Cut the log first if the replica lost its tail and the cluster does not count on it."""
        pending, image = self._pending_repairs.get(partition), self._image_of(partition)
        if partition in self._under_repair or partition.is_offline:
            return
        if pending is not None and pending.found_in_epoch == NO_EPOCH:
            pending.found_in_epoch = partition.leader_epoch
        if pending is not None and image is not None and may_be_cut(image, self._me, pending.found_in_epoch):
            self._under_repair.add(partition)
            self._tasks.spawn(self._repair(partition, pending))
        else:
            self._leader_connections.follow(partition, leader)

    def failed(self, partition: Partition) -> None:
        """Drop a failed replica where another can lead. A failed replica serves nothing until the next start."""
        self._failed.add(partition)
        self._begin()

    def lost_disk(self) -> None:
        """Drop the replicas of a failed log directory: others have to lead them."""
        self._has_lost_disk = True
        self._begin()

    def on_metadata_change(self, _old: Image, _new: Image) -> None:
        """Retry replicas that are not open. The quorum calls this after `Assignments.follow`."""
        if self._replicas.not_opened():
            self._begin()

    async def declared(self) -> None:
        """Return once the cluster counts on no damaged replica, or after DECLARE_S. All replicas have been opened.

        After DECLARE_S without a better replica, this broker may lead with its own.
        """
        self._has_begun = True
        self._begin()
        try:
            async with asyncio.timeout(DECLARE_S):
                while any(map(self._is_counted_on, self._pending_repairs)):
                    await asyncio.sleep(LOOK_S / 10)
        except TimeoutError:
            _events.warning("replicas.damaged", partitions=len(self._pending_repairs), waited_s=DECLARE_S)

    async def close(self) -> None:
        """Cancel the repairs. The next start finds the remaining damage."""
        await self._tasks.close()

    def _to_repair(self, partition: Partition, damage: DamagedLog) -> None:
        self._pending_repairs.setdefault(partition, _PendingRepair(partition.leader_epoch)).damage.append(damage)
        self._begin()

    def _damaged(self, partition: Partition, damage: DamagedLog) -> None:
        self._refetches.add(partition, damage)
        self._begin()

    def _sources_of(self, partition: Partition) -> list[int]:
        """Return the brokers to fetch committed batches from: the leader first, whose high watermark is the newest."""
        image, agreed = self._quorum.image, self._image_of(partition)
        others = [] if agreed is None else [other for other in agreed.replicas if other != self._me]
        return [
            int(other)
            for other in sorted(others, key=lambda other: other != partition.leader_id)
            if image.is_alive(other)
        ]

    def _note(self, partition: Partition, damage: DamagedLog) -> bool:
        is_new = self._register.note(damage, partition.topic, partition.index)
        if is_new:
            _events.error("log.damaged", topic=partition.topic, partition=partition.index, damage=str(damage))
        return is_new

    def _image_of(self, partition: Partition) -> PartitionImage | None:
        return self._quorum.image.partition(partition.topic_id, partition.index)

    def _is_counted_on(self, partition: Partition) -> bool:
        """Return True if the replica leads, is in sync or may be elected, and the partition has other replicas."""
        image = self._image_of(partition)
        return image is not None and len(image.replicas) > 1 and is_counted_on(image, self._me)

    def _begin(self) -> None:
        if self._repairing is None and self._has_begun:
            self._repairing = self._tasks.spawn(self._repair_all())

    async def _repair_all(self) -> None:
        now = asyncio.get_running_loop().time
        try_again_at = now() + REST_S
        try:
            while self._has_something_to_do():
                try:
                    self._refetches.look()
                    self._finish_returned()
                    await self._drop_damaged()
                    await self._drop_lost()
                    await self._drop_failed()
                    await asyncio.sleep(LOOK_S)
                    if now() >= try_again_at:
                        try_again_at = now() + REST_S
                        self._open_more()
                        self._rewrite_again()
                except Exception as error:
                    # The loop must go on: without it, damage would stay until the next start.
                    _events.error("repairs.failed", error=repr(error), exc_info=error)
                    await asyncio.sleep(REST_S)
        finally:
            self._repairing = None

    async def _drop_damaged(self) -> None:
        image = self._quorum.image
        dispensable = [replica for replica in self._pending_repairs if self._may_be_dropped(replica, image)]
        for partition in dispensable:
            pending = self._pending_repairs[partition]
            pending.found_in_epoch = max(pending.found_in_epoch, partition.leader_epoch)
        await self._propose([(replica.topic_id, replica.index) for replica in dispensable], is_gone=False)

    async def _drop_lost(self) -> None:
        """Drop replicas of failed disks, and replicas that wait for room if another replica can lead."""
        image = self._quorum.image
        gone, closed = [], []
        for topic in image.topics_by_id.values():
            for index, partition in enumerate(topic.partitions):
                if not is_counted_on(partition, self._me):
                    continue
                is_closed = self._replicas.get(topic.name, index) is None
                if self._replicas.is_disk_lost(topic.id, index):
                    gone.append((topic.id, index))
                elif is_closed and may_be_dropped(partition, self._me, image.is_alive):
                    closed.append((topic.id, index))
        await self._propose(gone, is_gone=True)
        await self._propose(closed, is_gone=False)
        self._has_lost_disk = bool(gone)

    async def _drop_failed(self) -> None:
        """Drop failed replicas where another can lead. A replica that stays has all its data after a restart."""
        image = self._quorum.image
        self._failed = {failed for failed in self._failed if not failed.is_deleted}
        places = [(failed.topic_id, failed.index) for failed in self._failed]
        dispensable = [
            place
            for place in sorted(places)
            if (known := image.partition(*place)) is not None
            and is_counted_on(known, self._me)
            and may_be_dropped(known, self._me, image.is_alive)
        ]
        await self._propose(dispensable, is_gone=False)

    def _has_something_to_do(self) -> bool:
        is_waiting = self._pending_repairs or self._returning or self._failed or self._refetches or self._not_rewritten
        return bool(is_waiting or self._has_lost_disk or self._replicas.not_opened())

    def _may_be_dropped(self, partition: Partition, image: Image) -> bool:
        known = image.partition(partition.topic_id, partition.index)
        return known is not None and self._is_idle(partition) and may_be_dropped(known, self._me, image.is_alive)

    def _is_idle(self, partition: Partition) -> bool:
        return partition not in self._under_repair and not partition.is_offline

    async def _propose(self, places: list[tuple[UUID, int]], *, is_gone: bool) -> None:
        me = self._quorum.image.brokers.get(self._me)
        if me is None:
            return
        for begin in range(0, len(places), REPLICAS_PER_COMMAND):
            some = tuple(places[begin : begin + REPLICAS_PER_COMMAND])
            try:
                await self._quorum.propose(DropReplicas(self._me, me.epoch, some, is_gone))
            except (CommandRefused, QuorumFailed) as error:
                _events.warning("replicas.not_dropped", partitions=len(some), reason=str(error))
            else:
                _events.warning("replicas.dropped", partitions=len(some), is_gone=is_gone)

    async def _repair(self, partition: Partition, pending: _PendingRepair) -> None:
        try:
            await self._set_aside(partition, pending)
            while partition.is_checkpoint_locked:
                await asyncio.sleep(LOOK_S / 10)
            if self._may_be_cut(partition, pending):
                await self._give_up(partition, pending)
        except (StorageError, OSError) as error:
            await self._rest(partition, error=str(error))
        except Exception as error:
            # After any error the replica must follow again: it is dropped once more, and its repair retried.
            await self._rest(partition, error=repr(error), exc_info=error)
        finally:
            self._under_repair.discard(partition)
        if _may_follow(partition):
            self._leader_connections.follow(partition, partition.leader_id)

    def _may_be_cut(self, partition: Partition, pending: _PendingRepair) -> bool:
        """Return True if the log may still be cut: the replica may have joined the ISR meanwhile."""
        image = self._image_of(partition)
        return image is not None and _may_follow(partition) and may_be_cut(image, self._me, pending.found_in_epoch)

    async def _give_up(self, partition: Partition, pending: _PendingRepair) -> None:
        """Cut the log where the damage begins. Raises OSError, StorageError."""
        try:
            cut = truncation_at_damage(partition, pending.damage, lambda: self._may_be_cut(partition, pending))
        except OSError as error:
            raise partition.directory.write_failed(error) from error
        if cut is None or await self._truncations.truncate(cut):
            self._returning.setdefault(partition, []).extend(self._pending_repairs.pop(partition).damage)
        elif self._may_be_cut(partition, pending):
            await self._rest(partition, error="its log could not be truncated")

    async def _rest(self, partition: Partition, **what_failed: object) -> None:
        _events.error("replica.not_repaired", topic=partition.topic, partition=partition.index, **what_failed)
        # Wake up between two rounds: the replica follows for a moment before it is dropped and repaired once more.
        await asyncio.sleep(REST_S + LOOK_S / 2)

    async def _set_aside(self, partition: Partition, pending: _PendingRepair) -> None:
        """Quarantine copies of all damaged segments, including those that are found meanwhile."""
        kept: set[str] = set()
        while waiting := [damage for damage in pending.damage if stem_of(damage) not in kept]:
            kept.add(stem_of(waiting[0]))
            self._register.begun(waiting[0])
            place = await quarantine_segment(partition, waiting[0])
            if place is not None:
                _events.warning("segment.quarantined", path=waiting[0].path, copy=place)

    async def _rewrite(self, partition: Partition, damage: DamagedLog) -> None:
        try:
            await rewrite(partition, damage.path, self._checkpoints)
        except DamagedLog as worse:
            # The damage of a segment may be known already. A file of the segment is written again with it.
            if segment_with(partition.log, damage.path) is not None:
                self._damaged(partition, damage)
            else:
                self._write_later(partition, damage)
            if self._note(partition, worse):
                self._damaged(partition, worse)
        except (StorageError, OSError) as error:
            _events.warning("file.not_rewritten", path=damage.path, error=str(error))
            self._write_later(partition, damage)
        else:
            self._register.done(damage)
            _events.info("file.rewritten", path=damage.path)

    def _write_later(self, partition: Partition, damage: DamagedLog) -> None:
        if all((known, other.path) != (partition, damage.path) for known, other in self._not_rewritten):
            self._not_rewritten.append((partition, damage))
        self._begin()

    def _rewrite_again(self) -> None:
        """Rewrite what could not be written. No check may find it again: its log writes some of these files, too."""
        waiting, self._not_rewritten = self._not_rewritten, []
        for partition, damage in waiting:
            if _is_gone(partition, damage):
                self._register.done(damage)
            elif not partition.is_offline:
                self._tasks.spawn(self._rewrite(partition, damage))

    def _finish_returned(self) -> None:
        for partition in list(filter(self._is_idle, self._pending_repairs)):
            pending = self._pending_repairs[partition]
            gone = [one for one in pending.damage if _is_gone(partition, one)]
            self._finish(gone)
            pending.damage = [one for one in pending.damage if one not in gone]
            if not pending.damage:
                del self._pending_repairs[partition]
        for partition in list(self._returning):
            image = self._image_of(partition)
            if image is None or partition.is_deleted or self._me in image.isr:
                self._finish(self._returning.pop(partition))
                _events.info("replica.repaired", topic=partition.topic, partition=partition.index)

    def _finish(self, damage: Iterable[DamagedLog]) -> None:
        for done in damage:
            self._register.done(done)


def _is_gone(partition: Partition, damage: DamagedLog) -> bool:
    """Return True if the damage has ended with its replica, or with the records that it is in."""
    return partition.is_deleted or is_deleted(partition.log, damage)


def _may_follow(partition: Partition) -> bool:
    """Return True if the replica has a leader that it does not follow yet."""
    is_free = not partition.is_deleted and not partition.is_offline
    return is_free and not partition.is_leader and partition.following is None and partition.leader_id != NO_LEADER
