"""The next step of a partition's archive, as its leader decides it: upload, commit, replace, remove or delete. Pure.

A step is decided from the present situation, and the next one from its result. A leader that takes over, and one that
restarts, therefore go on where another has stopped.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from uuid import UUID

from cordwood.archive.manifest import NO_LIMIT, ArchivedSegment, PartitionArchive, RemovedSegment, Upload
from cordwood.cluster.tiering.lineage import lineage_end
from cordwood.cluster.tiering.retention import LocalSegment, retained_from
from cordwood.storage.config import LogConfig
from cordwood.storage.epochs import EpochStart
from cordwood.storage.pins import NOT_PINNED, Pin

UPLOADS_AT_ONCE = 4
"""Largest number of segments that are announced and committed together."""
UPLOAD_BYTES_AT_ONCE = 64 << 20
"""Size after which no further segment is announced with the ones before it."""
DELETIONS_AT_ONCE = 200
REPLACED_FROM = 1.5
"""An archived part of a compacted topic is replaced once it has so many times the bytes that the log has there."""
REPLACED_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class Situation:
    """The situation of a partition at its leader. Offsets are half-open, times in milliseconds since 1970."""

    archive: PartitionArchive
    config: LogConfig
    segments: tuple[LocalSegment, ...]
    epochs: tuple[EpochStart, ...]
    log_start: int
    low_watermark: int
    """Log start offset that all in-sync replicas have on disk."""
    high_watermark: int
    last_stable: int
    log_end: int
    clean_end: int
    now_ms: int
    grace_ms: int
    compacted_delay_ms: int
    """How long a segment of a compacted topic waits for the log cleaner."""
    committed_sequence: int
    """Sequence of the last commit object in the store, as far as this leader knows; -1 for none."""
    active_since_ms: int
    """When this leader first saw records in the active segment."""
    pinned: Pin = NOT_PINNED
    """Start and end of the offsets that cuts need."""
    in_progress: frozenset[UUID] = frozenset()
    """Uploads that this leader has announced, and continues."""


@dataclass(frozen=True, slots=True)
class RaiseLogStart:
    """Delete the records below `offset`, on disk and in the archive: they exceed the topic's retention."""

    offset: int


@dataclass(frozen=True, slots=True)
class RemoveBelow:
    """Remove archived segments below `below`, the log start offset, which may be within the first one that stays."""

    below: int


@dataclass(frozen=True, slots=True)
class Roll:
    """Roll the active segment, so that its records can be archived."""

    base_offset: int


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Abandon uploads that were announced long ago: they can no longer be committed then."""

    ids: tuple[UUID, ...]


@dataclass(frozen=True, slots=True)
class WriteCommit:
    """Write the commit object of the manifest as it is."""


@dataclass(frozen=True, slots=True)
class NewSegment:
    """A local segment to upload. It counts in the archive from `start_offset` on."""

    local: LocalSegment
    start_offset: int


@dataclass(frozen=True, slots=True)
class UploadSegments:
    """Upload segments, in place of `replaced` archived ones if there are any."""

    segments: tuple[NewSegment, ...]
    replaced: tuple[ArchivedSegment, ...] = ()


@dataclass(frozen=True, slots=True)
class DeleteObjects:
    """Delete the objects of removed segments, and forget them."""

    removed: tuple[RemovedSegment, ...]


MetadataStep = RaiseLogStart | RemoveBelow | Roll | GiveUp
StoreStep = WriteCommit | UploadSegments | DeleteObjects
Step = MetadataStep | StoreStep


def is_foreign(situation: Situation) -> bool:
    """Return whether the archive has other records than the log. Then no step may be taken: nothing of it is removed.

    A leader begins at the archive's end (archive rule 5), so that no leader of this version has such a log.
    """
    return lineage_end(situation.archive.segments, situation.epochs, situation.log_end) < NO_LIMIT


def metadata_step(situation: Situation) -> MetadataStep | None:
    """Return the next step that needs no store: such steps go on while the store is down."""
    archive = situation.archive
    pinned_from, _ = situation.pinned
    start = retained_from(
        archive, situation.segments, situation.config, situation.high_watermark, situation.now_ms, pinned_from
    )
    if start > situation.log_start:
        return RaiseLogStart(start)
    if archive.start is not None and archive.start < situation.low_watermark:
        return RemoveBelow(situation.low_watermark)
    if _must_roll(situation):
        return Roll(situation.segments[-1].base_offset)
    if outdated := tuple(one.id for one in _given_up(archive.uploads, situation)):
        return GiveUp(outdated)
    return None


def store_step(situation: Situation) -> StoreStep | None:
    """Return the next step that needs the store."""
    archive = situation.archive
    if archive.sequence > situation.committed_sequence and (archive.sequence or archive.segments):
        return WriteCommit()
    if situation.config.is_archived:
        # One upload of a partition at a time: a former one of this leader is completed or abandoned first.
        if new := tuple(_limited(_new_segments(situation))):
            return UploadSegments(new)
        if situation.config.compacted and (found := _replacement(situation)) is not None:
            return found
    due = due_for_deletion(archive, situation.now_ms, situation.grace_ms)
    return DeleteObjects(due) if due else None


def due_for_deletion(archive: PartitionArchive, now_ms: int, grace_ms: int) -> tuple[RemovedSegment, ...]:
    """Return the removed segments whose grace period has passed: no reader uses their objects any more."""
    due = (one for one in archive.removed if one.removed_ms + grace_ms <= now_ms)
    return tuple(islice(due, DELETIONS_AT_ONCE))


def may_go_on(upload: Upload, now_ms: int, grace_ms: int) -> bool:
    """Return whether an upload may put objects: not so late that a put under way could come after their deletion."""
    return now_ms < upload.begun_ms + grace_ms // 2


def _given_up(uploads: Sequence[Upload], situation: Situation) -> Iterator[Upload]:
    for upload in uploads:
        if upload.id not in situation.in_progress and upload.begun_ms + situation.grace_ms <= situation.now_ms:
            yield upload


def _must_roll(situation: Situation) -> bool:
    """Return whether the active segment is as old as it may become: on an idle partition no append rolls it."""
    if not situation.config.is_archived or not situation.segments:
        return False
    active = situation.segments[-1]
    age_ms = situation.now_ms - situation.active_since_ms
    return not active.is_sealed and active.size > 0 and age_ms > situation.config.segment_ms


def _new_segments(situation: Situation) -> Iterator[NewSegment]:
    """Yield the sealed segments to archive next, in order."""
    due, stable = situation.archive.end, min(situation.high_watermark, situation.last_stable)
    for local in situation.segments:
        start = max(local.base_offset, situation.log_start if due is None else due)
        if local.end_offset <= start:
            continue
        is_next = due is None or local.base_offset <= due
        if not is_next or not local.is_sealed or local.end_offset > stable or _waits_for_cleaner(local, situation):
            return
        yield NewSegment(local, start)
        due = local.end_offset


def _waits_for_cleaner(local: LocalSegment, situation: Situation) -> bool:
    if not situation.config.compacted or local.end_offset <= situation.clean_end:
        return False
    return 0 <= situation.now_ms - local.max_timestamp < situation.compacted_delay_ms


def _limited(segments: Iterator[NewSegment]) -> Iterator[NewSegment]:
    size = 0
    for new in islice(segments, UPLOADS_AT_ONCE):
        if size >= UPLOAD_BYTES_AT_ONCE:
            return
        size += new.local.size
        yield new


def _replacement(situation: Situation) -> UploadSegments | None:
    """Return the upload of compacted segments in place of the archived ones of the same offsets."""
    _, pinned_end = situation.pinned
    for archived, local in _aligned(situation.archive.segments, situation.segments, situation.clean_end):
        if archived[0].start_offset < pinned_end or max(len(archived), len(local)) > REPLACED_AT_ONCE:
            continue
        size = sum(one.size for one in local)
        if sum(one.size for one in archived) <= REPLACED_FROM * size:
            continue
        starts = (max(one.base_offset, archived[0].start_offset) for one in local)
        return UploadSegments(tuple(map(NewSegment, local, starts)), tuple(archived))
    return None


def _aligned(
    archived: Sequence[ArchivedSegment], local: Sequence[LocalSegment], clean_end: int
) -> Iterator[tuple[list[ArchivedSegment], list[LocalSegment]]]:
    """Yield the shortest runs of archived and of compacted local segments that end at the same offset.

    Leaders have other segments than the leaders before them, so that not every end is common.
    """
    clean = [one for one in local if one.is_sealed and one.end_offset <= clean_end]
    if not archived or not clean or clean[0].base_offset > archived[0].start_offset:
        return
    ends: Collection[int] = {one.end_offset for one in archived} & {one.end_offset for one in clean}
    theirs, ours = list(archived), list(clean)
    for end in sorted(ends):
        run = [one for one in theirs if one.end_offset <= end]
        same = [one for one in ours if one.end_offset <= end and one.end_offset > run[0].start_offset] if run else []
        if run and same:
            yield run, same
        theirs, ours = theirs[len(run) :], [one for one in ours if one.end_offset > end]
