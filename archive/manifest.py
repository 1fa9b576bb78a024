"""Manifest of a partition's archive: its segments in the object store, uploads that have begun, and objects to delete.

The manifest is a part of the metadata log, so one leader at a time changes it. An upload is announced before its first
byte and committed after its last one. A removed segment is listed until its objects are deleted. So the manifest lists
every object in the store. All functions are pure.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from uuid import UUID

NO_LIMIT = (1 << 63) - 1


class ManifestConflict(Exception):
    """A change that does not fit the manifest: another leader has changed it, or the caller is late."""


@dataclass(frozen=True, slots=True)
class ArchivedSegment:
    """A segment whose objects are in the store: its batches, and the state as of its base offset.

    Its records count from `start_offset` on: after a change of leader, the previous segment may have its first batches
    too. Sizes in bytes, `max_timestamp` in milliseconds (-1 if no record has one), checksums are CRC-32C of whole
    objects.
    """

    id: UUID
    base_offset: int
    start_offset: int
    end_offset: int
    size: int
    crc: int
    state_size: int
    state_crc: int
    max_timestamp: int
    leader_epoch: int
    """Leader epoch of its last batch."""
    is_clean: bool = False
    """Whether the log cleaner had compacted it."""


@dataclass(frozen=True, slots=True)
class Upload:
    """An upload that was announced: its objects may be in the store, or some of them. `begun_ms` since 1970."""

    id: UUID
    base_offset: int
    end_offset: int
    begun_ms: int


@dataclass(frozen=True, slots=True)
class RemovedSegment:
    """A segment that no reader may begin to read any more. Its objects are deleted after a grace period."""

    id: UUID
    base_offset: int
    end_offset: int
    removed_ms: int


@dataclass(frozen=True, slots=True)
class PartitionArchive:
    """The manifest of one partition. `segments` are contiguous from the first start offset to the last end offset.

    `sequence` counts the changes of `segments` and `log_start`: the store has one commit object for each
    (`commits.py`).
    """

    segments: tuple[ArchivedSegment, ...] = ()
    uploads: tuple[Upload, ...] = ()
    removed: tuple[RemovedSegment, ...] = ()
    sequence: int = 0
    log_start: int = 0
    """Offset below which records were deleted, as far as the archive knows: it may be within the first segment."""

    @property
    def start(self) -> int | None:
        """First archived offset that was not deleted; None if nothing is archived."""
        return max(self.segments[0].start_offset, self.log_start) if self.segments else None

    @property
    def end(self) -> int | None:
        """Offset after the last archived one; None if nothing is archived."""
        return self.segments[-1].end_offset if self.segments else None

    @property
    def size(self) -> int:
        """Size of all archived batches in bytes."""
        return sum(segment.size for segment in self.segments)

    @property
    def has_objects(self) -> bool:
        """Whether the store may have objects of this partition."""
        return bool(self.segments or self.uploads or self.removed)


def with_upload(archive: PartitionArchive, upload: Upload) -> PartitionArchive:
    """Return the manifest with an upload announced. Raises ManifestConflict if its id is in use."""
    if _knows(archive, upload.id):
        raise ManifestConflict(f"the id {upload.id} is in use")
    return replace(archive, uploads=(*archive.uploads, upload))


def with_committed(archive: PartitionArchive, new: Sequence[ArchivedSegment]) -> PartitionArchive:
    """Return the manifest with new segments at its end. Raises ManifestConflict."""
    _check_new(archive, new)
    if archive.segments and new[0].start_offset != archive.end:
        raise ManifestConflict(f"a segment from offset {new[0].start_offset} on, but {archive.end} is due")
    return _having(archive, new, archive.segments, ())


def with_replaced(
    archive: PartitionArchive, old: Sequence[UUID], new: Sequence[ArchivedSegment], now_ms: int
) -> PartitionArchive:
    """Return the manifest with a run of segments replaced by new ones of the same offsets. Raises ManifestConflict."""
    _check_new(archive, new)
    ids = [segment.id for segment in archive.segments]
    first = ids.index(old[0]) if old and old[0] in ids else -1
    if first < 0 or tuple(ids[first : first + len(old)]) != tuple(old):
        raise ManifestConflict("the segments to replace are not a run of the archive")
    gone, last = archive.segments[first : first + len(old)], first + len(old)
    if (new[0].start_offset, new[-1].end_offset) != (gone[0].start_offset, gone[-1].end_offset):
        raise ManifestConflict("the new segments have other offsets than the old ones")
    kept = archive.segments[:first], archive.segments[last:]
    return _having(replace(archive, removed=archive.removed + _as_removed(gone, now_ms)), new, *kept)


def without(archive: PartitionArchive, below: int, above: int, now_ms: int) -> PartitionArchive:
    """Return the manifest without the segments that end at or below `below`, or end above `above`.

    `below` is the log start offset after retention or DeleteRecords; leaders of this version have no limit `above`.
    """
    gone = tuple([one for one in archive.segments if one.end_offset <= below or one.end_offset > above])
    if not gone and (archive.start is None or below <= archive.start):
        return archive
    return replace(
        archive,
        segments=tuple([one for one in archive.segments if below < one.end_offset <= above]),
        removed=archive.removed + _as_removed(gone, now_ms),
        sequence=archive.sequence + 1,
        log_start=max(archive.log_start, below),
    )


def forgotten(archive: PartitionArchive, ids: Sequence[UUID]) -> PartitionArchive:
    """Return the manifest without removed segments whose objects have been deleted, and with abandoned uploads.

    The first call removes an upload, and the next one forgets it: while its objects are deleted, its leader cannot
    commit it. Segments in use are kept, whatever `ids` has.
    """
    gone = set(ids)
    return given_up(replace(archive, removed=tuple([one for one in archive.removed if one.id not in gone])), ids)


def given_up(archive: PartitionArchive, ids: Sequence[UUID]) -> PartitionArchive:
    """Return the manifest with uploads moved to the removed segments, whose objects are to be deleted."""
    gone = set(ids)
    removed = [
        RemovedSegment(one.id, one.base_offset, one.end_offset, one.begun_ms)
        for one in archive.uploads
        if one.id in gone
    ]
    return replace(
        archive,
        uploads=tuple([one for one in archive.uploads if one.id not in gone]),
        removed=(*archive.removed, *removed),
    )


def _knows(archive: PartitionArchive, segment_id: UUID) -> bool:
    return any(one.id == segment_id for row in (archive.segments, archive.uploads, archive.removed) for one in row)


def _check_new(archive: PartitionArchive, new: Sequence[ArchivedSegment]) -> None:
    announced = {upload.id for upload in archive.uploads}
    if not new or any(segment.id not in announced for segment in new):
        raise ManifestConflict("the upload was not announced, or was swept")
    for before, after in pairwise(new):
        if before.end_offset != after.start_offset:
            raise ManifestConflict(f"offset {after.start_offset} follows offset {before.end_offset}")
    if any(not one.base_offset <= one.start_offset < one.end_offset for one in new):
        raise ManifestConflict("a segment without offsets")


def _having(
    archive: PartitionArchive,
    new: Sequence[ArchivedSegment],
    before: tuple[ArchivedSegment, ...],
    after: tuple[ArchivedSegment, ...],
) -> PartitionArchive:
    ids = {segment.id for segment in new}
    return replace(
        archive,
        segments=(*before, *new, *after),
        uploads=tuple([upload for upload in archive.uploads if upload.id not in ids]),
        sequence=archive.sequence + 1,
    )


def _as_removed(segments: Sequence[ArchivedSegment], now_ms: int) -> tuple[RemovedSegment, ...]:
    return tuple([RemovedSegment(one.id, one.base_offset, one.end_offset, now_ms) for one in segments])
