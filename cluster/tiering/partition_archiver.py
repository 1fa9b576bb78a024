"""Archiver of one partition on its leader: takes the steps that `plan.py` decides, one after the other."""

import asyncio
import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from uuid import UUID

import structlog
from kio.schema.errors import ErrorCode

from cordwood.archive import segment_state
from cordwood.archive.commits import WHOLE_EVERY, commit_content
from cordwood.archive.layout import commit_name, segment_names
from cordwood.archive.manifest import NO_LIMIT, ArchivedSegment, PartitionArchive, RemovedSegment, Upload
from cordwood.archive.segment_state import DamagedState
from cordwood.archive.store import ObjectExists, ObjectStore, StoreError
from cordwood.cluster.metadata.archive_commands import (
    BeginUpload,
    CommitUpload,
    ForgetArchived,
    GiveUpUploads,
    RemoveArchived,
)
from cordwood.cluster.metadata.commands import Command
from cordwood.cluster.metadata.image import CommandRefused, Image
from cordwood.cluster.metadata.quorum import Quorum, QuorumFailed
from cordwood.cluster.tiering import segment_upload
from cordwood.cluster.tiering.measures import ArchiveMeasures
from cordwood.cluster.tiering.plan import (
    DeleteObjects,
    GiveUp,
    MetadataStep,
    NewSegment,
    RaiseLogStart,
    RemoveBelow,
    Roll,
    Situation,
    StoreStep,
    UploadSegments,
    WriteCommit,
    is_foreign,
    may_go_on,
    metadata_step,
    store_step,
)
from cordwood.cluster.tiering.segment_upload import PreparedSegment
from cordwood.cluster.tiering.situations import NOTHING, ActiveSegmentAge, situation_of
from cordwood.replication.partition import Partition
from cordwood.replication.token_bucket import TokenBucket
from cordwood.storage.epochs import LeaderEpochs
from cordwood.storage.errors import DamagedLog, StorageError
from cordwood.storage.segment import Segment

RETRY_S, RETRY_MAX_S = 1.0, 30.0
"""Pause after a step that failed: twice as long each time, until one succeeds."""

_events = structlog.get_logger("archive")


@dataclass(frozen=True, slots=True)
class ArchiveContext:
    """The dependencies that the archivers of all partitions share."""

    quorum: Quorum
    store: ObjectStore
    wall_clock: Callable[[], int]
    rng: random.Random
    allowance: TokenBucket
    """The bytes that all uploads together may send."""
    store_steps: asyncio.Semaphore
    """Limit of the steps at once that use the store."""
    measures: ArchiveMeasures
    grace_ms: int
    compacted_delay_ms: int
    is_undelayed: Callable[[str], bool]
    """Whether segments of a compacted topic of this name do not wait for the log cleaner."""

    async def pace(self, size: int) -> None:
        """Return once `size` bytes may be sent."""
        now = asyncio.get_running_loop().time()
        debt_s = self.allowance.debt_s(now)
        self.allowance.charge(size, now)
        await asyncio.sleep(debt_s)


class _Postponed(Exception):
    """The step cannot be taken now; the cause is logged."""


@dataclass(slots=True)
class _Batch:
    """Segments that are uploaded and committed together."""

    leader_epoch: int
    step: UploadSegments
    uploads: tuple[Upload, ...]
    prepared: list[PreparedSegment] = field(default_factory=list)
    stored: set[UUID] = field(default_factory=set)

    @property
    def ids(self) -> frozenset[UUID]:
        return frozenset([upload.id for upload in self.uploads])

    @property
    def is_stored(self) -> bool:
        return len(self.stored) == len(self.uploads)


class PartitionArchiver:
    """The archiver of one partition in one leader epoch."""

    def __init__(self, partition: Partition, context: ArchiveContext) -> None:
        self.partition, self._context = partition, context
        self.leader_epoch = partition.leader_epoch
        self._place = partition.topic_id, partition.index
        self._age = ActiveSegmentAge()
        self._batch: _Batch | None = None
        self._committed: PartitionArchive | None = None
        """The manifest whose commit object this archiver has written last, or found."""
        self._producers: tuple[int, bytes] | None = None
        """An offset, and the producers as of there, encoded."""
        self._retry_s = RETRY_S
        self._retry_at = 0.0

    @property
    def is_leading(self) -> bool:
        partition = self.partition
        return partition.leads_in(self.leader_epoch) and not partition.is_deleted

    async def run(self) -> None:
        """Take steps until there is nothing to do, or a step fails."""
        while self.is_leading and await self._turn():
            pass

    def signature(self) -> object:
        """Return what a step may depend on, but for the time: as long as it is equal, there may be nothing to do."""
        partition, log = self.partition, self.partition.log
        stable = min(partition.high_watermark, partition.last_stable_offset)
        sealed_end = log.segments[-1].base_offset if log.segments else 0
        return (
            self.archive(self._context.quorum.image),
            log.config,
            len(log.segments),
            sealed_end,
            stable >= sealed_end,
            log.lacks_archived_producers,
            log.log_start,
            partition.leader.low_watermark,
            log.clean_end,
            asyncio.get_running_loop().time() < self._retry_at,
        )

    def archive(self, image: Image) -> PartitionArchive:
        return image.archives.get(self._place, NOTHING)

    def situation(self) -> Situation:
        context = self._context
        return situation_of(
            self.partition,
            self.archive(context.quorum.image),
            self._age,
            context.wall_clock(),
            context.grace_ms,
            0 if context.is_undelayed(self.partition.topic) else context.compacted_delay_ms,
            -1 if self._committed is None else self._committed.sequence,
            frozenset() if self._batch is None else self._batch.ids,
        )

    async def _turn(self) -> bool:
        """Take one step. Return whether another one may follow at once."""
        image = self._context.quorum.image
        if image.passed_over:
            # This version does not know everything that the metadata have, and must not remove anything for it.
            return False
        situation = self.situation()
        if is_foreign(situation):
            self._warn("archive.foreign", "the archive has other records than this log")
            return False
        try:
            if (step := metadata_step(situation)) is not None:
                await self._take_metadata_step(step)
                return True
            now = asyncio.get_running_loop().time()
            if now < self._retry_at:
                return False
            next_step = store_step(situation)
            if next_step is None:
                return False
            async with self._context.store_steps:
                await self._take_store_step(next_step)
        except _Postponed:
            self._retry_later()
            return False
        except (StoreError, DamagedState) as error:
            self._context.measures.failed(str(error))
            self._warn("archive.failed", str(error))
            self._retry_later()
            return False
        except DamagedLog as damage:
            self.partition.report_damage(damage)
            self._retry_later()
            return False
        except (StorageError, OSError) as error:
            self._warn("archive.postponed", str(error))
            self._retry_later()
            return False
        self._context.measures.succeeded()
        self._retry_s = RETRY_S
        return True

    def _retry_later(self) -> None:
        pause_s = self._retry_s * self._context.rng.uniform(0.5, 1)
        self._retry_at = asyncio.get_running_loop().time() + pause_s
        self._retry_s = min(2 * self._retry_s, RETRY_MAX_S)

    def _warn(self, event: str, reason: str) -> None:
        _events.warning(event, topic=self.partition.topic, partition=self.partition.index, reason=reason)

    async def _take_metadata_step(self, step: MetadataStep) -> None:
        partition = self.partition
        match step:
            case RaiseLogStart(offset):
                partition.leader.delete_records(offset)
            case Roll(base_offset):
                active = partition.log.segments[-1]
                if active.base_offset == base_offset:
                    partition.log.roll_if_active(active)
                    partition.schedule_flush()
            case RemoveBelow(below):
                await self._remove(below)
            case GiveUp(ids):
                await self._give_up(ids)

    async def _remove(self, below: int) -> None:
        now_ms = self._context.wall_clock()
        await self._propose(RemoveArchived(*self._place, self.leader_epoch, below, NO_LIMIT, now_ms))

    async def _give_up(self, ids: tuple[UUID, ...]) -> None:
        knows_give_up = self._context.quorum.image.metadata_version >= GiveUpUploads.LEVEL
        command = GiveUpUploads(*self._place, self.leader_epoch, ids)
        await self._propose(command if knows_give_up else ForgetArchived(*self._place, ids))

    async def _take_store_step(self, step: StoreStep) -> None:
        match step:
            case WriteCommit():
                await self._write_commit()
            case UploadSegments():
                await self._upload(step)
            case DeleteObjects(removed):
                await self._delete(removed)

    async def _write_commit(self) -> None:
        """Write the commit object of the newest manifest. Another broker may have written it."""
        context, image = self._context, self._context.quorum.image
        archive = self.archive(image)
        content = commit_content(*self._place, self._committed, archive)
        with suppress(ObjectExists):
            await context.store.put(commit_name(image.cluster_id, *self._place, archive.sequence), content)
        self._committed = archive
        if archive.sequence % WHOLE_EVERY == 0 and archive.sequence > 2 * WHOLE_EVERY:
            # Readers begin at the newest commit with all segments, or the one before if that is damaged.
            last = archive.sequence - WHOLE_EVERY
            outdated = range(last - WHOLE_EVERY, last)
            await context.store.delete([commit_name(image.cluster_id, *self._place, one) for one in outdated])

    async def _upload(self, step: UploadSegments) -> None:
        batch = self._batch
        if batch is None or not self._fits(batch):
            batch = self._batch = await self._announce(step)
        if not batch.is_stored:
            await self._store(batch)
        await self._commit(batch)

    def _fits(self, batch: _Batch) -> bool:
        """Return whether a batch that this archiver has announced may still be committed."""
        archive, now_ms = self.archive(self._context.quorum.image), self._context.wall_clock()
        first, replaced = batch.step.segments[0], batch.step.replaced
        if replaced:
            is_due = set(replaced) <= set(archive.segments)
        else:
            is_due = archive.end is None or archive.end == first.start_offset
        is_announced = batch.ids <= {upload.id for upload in archive.uploads}
        is_timely = batch.is_stored or all(may_go_on(one, now_ms, self._context.grace_ms) for one in batch.uploads)
        return is_due and is_announced and is_timely

    async def _announce(self, step: UploadSegments) -> _Batch:
        context = self._context
        begun_ms = context.wall_clock()
        uploads = tuple(
            Upload(UUID(int=context.rng.getrandbits(128), version=4), local.base_offset, local.end_offset, begun_ms)
            for local in [new.local for new in step.segments]
        )
        await self._propose(BeginUpload(*self._place, self.leader_epoch, uploads))
        return _Batch(self.leader_epoch, step, uploads)

    async def _store(self, batch: _Batch) -> None:
        """Put the objects of a batch, those that are not in the store yet."""
        if not batch.prepared:
            batch.prepared = await self._prepared(batch.step)
        puts = [
            self._put(batch, upload, prepared)
            for upload, prepared in zip(batch.uploads, batch.prepared, strict=True)
            if upload.id not in batch.stored
        ]
        failures = [one for one in await asyncio.gather(*puts, return_exceptions=True) if one is not None]
        if failures:
            if not all(isinstance(one, StoreError) for one in failures):
                # The files have changed: the segments are announced and read again.
                self._batch = None
            raise failures[0]

    async def _put(self, batch: _Batch, upload: Upload, prepared: PreparedSegment) -> None:
        context = self._context
        names = segment_names(context.quorum.image.cluster_id, *self._place, upload)
        await segment_upload.put(prepared, names, context.store, context.pace)
        batch.stored.add(upload.id)
        context.measures.uploaded_segments += 1
        context.measures.uploaded_bytes += prepared.segment.size

    async def _prepared(self, step: UploadSegments) -> list[PreparedSegment]:
        partition, archive = self.partition, self.archive(self._context.quorum.image)
        known_at = {one.end_offset: one for one in step.replaced}
        before = await self._producers_before(archive, step.segments[0].start_offset)
        prepared: list[PreparedSegment] = []
        for new in step.segments:
            known = known_at.get(new.local.end_offset)
            at_end = None if known is None else (await self._state_of(known)).producers_encoded
            epochs = LeaderEpochs(tuple(partition.log.epochs))
            run_blocking = partition.directory.run_blocking
            one = await segment_upload.prepare(
                self._segment(new), new.start_offset, epochs, before, at_end, run_blocking
            )
            prepared.append(one)
            before = one.producers
        return prepared

    async def _producers_before(self, archive: PartitionArchive, start_offset: int) -> bytes | None:
        """Return the producers as of an offset, from the archived segment that ends there."""
        if self._producers is not None and self._producers[0] == start_offset:
            return self._producers[1]
        before = next((one for one in archive.segments if one.end_offset == start_offset), None)
        return None if before is None else (await self._state_of(before)).producers_encoded

    async def _state_of(self, archived: ArchivedSegment) -> segment_state.SegmentState:
        context = self._context
        _, name = segment_names(context.quorum.image.cluster_id, *self._place, archived)
        return segment_state.decode(await context.store.get(name))

    def _segment(self, new: NewSegment) -> Segment:
        """Return the segment of the log. Raises _Postponed if it has been replaced or dropped."""
        for segment in self.partition.log.segments:
            if (segment.base_offset, segment.end_offset) == (new.local.base_offset, new.local.end_offset):
                return segment
        self._batch = None
        raise _Postponed

    async def _commit(self, batch: _Batch) -> None:
        context = self._context
        segments = tuple(map(self._archived, batch.uploads, batch.step.segments, batch.prepared))
        replaced = tuple(one.id for one in batch.step.replaced)
        now_ms = context.wall_clock()
        command = CommitUpload(*self._place, self.leader_epoch, segments, replaced, now_ms)
        try:
            await self._propose(command)
        except _Postponed:
            await self._settle(batch)
            raise
        self._batch = None
        self._producers = segments[-1].end_offset, batch.prepared[-1].producers
        _events.info(
            "archive.committed",
            topic=self.partition.topic,
            partition=self.partition.index,
            start=segments[0].start_offset,
            end=segments[-1].end_offset,
            segments=len(segments),
            replaced=len(replaced),
        )

    async def _settle(self, batch: _Batch) -> None:
        """Forget a batch whose commit was refused. Its objects are deleted here if no manifest lists them."""
        image = self._context.quorum.image
        archive = self.archive(image)
        ids = batch.ids
        if ids <= {one.id for one in archive.uploads}:
            # The commit may still be applied, or be proposed again.
            return
        self._batch = None
        listed = {one.id for one in archive.segments} | {one.id for one in archive.removed}
        unknown = [upload for upload in batch.uploads if upload.id not in listed]
        await self._context.store.delete(
            [name for upload in unknown for name in segment_names(image.cluster_id, *self._place, upload)]
        )

    def _archived(self, upload: Upload, new: NewSegment, prepared: PreparedSegment) -> ArchivedSegment:
        log, segment = self.partition.log, prepared.segment
        return ArchivedSegment(
            id=upload.id,
            base_offset=segment.base_offset,
            start_offset=new.start_offset,
            end_offset=segment.end_offset,
            size=segment.size,
            crc=prepared.crc,
            state_size=len(prepared.state),
            state_crc=prepared.state_crc,
            max_timestamp=segment.max_timestamp,
            leader_epoch=int(log.epochs.epoch_at(segment.end_offset - 1)),
            # A repair may have lowered the clean end: gaps in the offsets are no loss all the same.
            is_clean=segment.generation > 0 or segment.end_offset <= log.clean_end,
        )

    async def _delete(self, removed: Sequence[RemovedSegment]) -> None:
        context = self._context
        cluster_id = context.quorum.image.cluster_id
        names = [name for one in removed for name in segment_names(cluster_id, *self._place, one)]
        await context.store.delete(names)
        context.measures.deleted_objects += len(names)
        await self._propose(ForgetArchived(*self._place, tuple(one.id for one in removed)))

    async def _propose(self, command: Command) -> None:
        """Propose a command. Raises _Postponed if it was refused, or if its outcome is unknown."""
        try:
            await self._context.quorum.propose(command)
        except CommandRefused as refusal:
            if refusal.code is not ErrorCode.fenced_leader_epoch and refusal.code is not ErrorCode.unknown_topic_id:
                self._warn("archive.refused", refusal.message or refusal.code.name)
            raise _Postponed from None
        except QuorumFailed as failure:
            self._warn("archive.unknown", str(failure))
            raise _Postponed from None
