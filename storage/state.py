"""Checkpoints of a log, so that a restart reads only the last batches: the files `recovery` and `leader-epochs`.

`recovery`: log start offset i64, recovery point i64 (everything below it was on disk, and the rest of the file is the
state as of there), the manifest of the sealed segments (see `manifest.py`; none in version 1), the segment with the
recovery point (from version 3 on), local log start offset i64 and clean end i64 (from version 4 on), start i64 and end
i64 of the unseen batches (version 5), idempotent producers. `leader-epochs`: each epoch with its start offset, from the
log start offset on.
"""

import struct
from contextlib import closing, suppress
from typing import TYPE_CHECKING, NamedTuple

from cordwood.storage import checkpoint, manifest
from cordwood.storage.aborted_index import UnsavedRows
from cordwood.storage.checkpoint import Checkpoint
from cordwood.storage.disk import Disk, sync_directory
from cordwood.storage.epochs import LeaderEpochs, from_log_start, start_of
from cordwood.storage.errors import DamagedLog
from cordwood.storage.manifest import Manifest, RowLayout
from cordwood.storage.producers import Producers, ProducersSnapshot, before_transactions

if TYPE_CHECKING:
    from cordwood.storage.log import Log

RECOVERY_FILE = "recovery"
EPOCHS_FILE = "leader-epochs"
HEAD = struct.Struct(">qq")
WITH_MANIFEST = 2
"""First version of `recovery` that has a manifest."""
WITH_TRANSACTIONS = 3
"""First version of `recovery` that has transactions. A log without any has the version before."""
WITH_COMPACTION = 4
"""First version of `recovery` that has compacted segments, or whose beginning is only in the archive."""
WITH_UNSEEN = 5
"""First version of `recovery` of a log that has batches that recovery has not seen."""
_ACTIVE = struct.Struct(">qI")
_ENDS = struct.Struct(">qq")
_UNSEEN = struct.Struct(">qq")
_ROW_LAYOUTS = {WITH_MANIFEST: RowLayout.FIRST, WITH_TRANSACTIONS: RowLayout.WITH_TRANSACTIONS}


class ActiveSegment(NamedTuple):
    """Transactions of the segment with the recovery point, as of there. Fields as in `SealedSegment`."""

    undecided: int = 0
    aborted: int = 0


class Unseen(NamedTuple):
    """Offsets of batches that recovery has not seen: lost ones, or archived ones whose producers were in `recovery`.

    Producers and aborted transactions are as if there were none, until they are read again (`unseen_batches.py`,
    `after_archive.py`).
    """

    start: int
    end: int

    def below(self, end: int) -> "Unseen | None":
        """Return the part below `end`."""
        return Unseen(self.start, min(self.end, end)) if self.start < end else None

    def above(self, start: int) -> "Unseen | None":
        """Return the part from `start` on."""
        return Unseen(max(self.start, start), self.end) if start < self.end else None

    @staticmethod
    def joined(known: "Unseen | None", start: int, end: int) -> "Unseen":
        """Return the least range that covers what is `known` to be unseen, and the offsets from `start` to `end`."""
        return Unseen(start, end) if known is None else Unseen(min(known.start, start), max(known.end, end))


class LogState(NamedTuple):
    """Content of one checkpoint. `epochs` is None if unchanged since the last one."""

    log_start: int
    recovery_point: int
    producers: ProducersSnapshot
    """Encoded by `write_checkpoint`: that takes long where there are very many."""
    epochs: bytes | None
    segments: Manifest = ()
    """Sealed segments below the recovery point."""
    active: ActiveSegment = ActiveSegment()
    aborted: tuple[UnsavedRows, ...] = ()
    """Rows of aborted indexes that are not on disk."""
    local_start: int = 0
    """First offset that this disk has. Records from the log start offset up to here are only in the archive."""
    clean_end: int = 0
    """End of the compacted records: below it each key has one record, that of the highest offset."""
    new_names: tuple[str, ...] = ()
    """Rewritten segments: the directory has to be synced before the manifest, which is the first to list them."""
    new_indexes: tuple[str, ...] = ()
    """Index files that have to be synced before the manifest, which is the first to list their segments."""
    unseen: Unseen | None = None


class ArchivedBeginning(NamedTuple):
    """The state of a log without its first records: log start offset, leader epochs and producers."""

    log_start: int
    epochs: LeaderEpochs
    producers: Producers


class Recovered(NamedTuple):
    """Content of the checkpoint files; a damaged one counts as never written."""

    log_start: int
    recovery_point: int
    producers: Producers
    epochs: LeaderEpochs
    damage: list[DamagedLog]
    segments: Manifest | None
    """None if there is no manifest."""
    active: ActiveSegment | None = None
    """None if it is not known."""
    local_start: int = 0
    clean_end: int = 0
    is_lost: bool = False
    """Whether `recovery` is damaged, so that its content is unknown."""
    epochs_start: int = 0
    """Log start offset of the checkpoint that wrote the epochs, which may be a later one."""
    has_epochs: bool = False
    """Whether the epochs are those of `leader-epochs`, which is sound."""
    flushed_end: int = 0
    """The recovery point of the checkpoint, also if all batches have to be read: those below it were on disk."""
    unseen: Unseen | None = None


def state_as_of(log: "Log", end: int, epochs: bytes | None) -> LogState:
    """Return the state of a log as of `end`, its flushed end."""
    rows = tuple([rows for segment in log.segments if (rows := segment.aborted.unsaved(end)) is not None])
    producers, sealed, active = log.producers.snapshot(end), _sealed(log, end), _active(log, end)
    starts = log.local_start, log.clean_end
    new = tuple([segment.index_path for segment in log.segments[:-1] if log.listed_end < segment.end_offset <= end])
    names = log.replaced.new_names
    return LogState(log.log_start, end, producers, epochs, sealed, active, rows, *starts, names, new, log.unseen)


def state_after_truncation(log: "Log", end: int, again: Producers | None) -> LogState:
    """Return the state that a log has after a truncation to `end`. `again` is that of `Producers.truncate_end`.

    Raises DamagedLog if an aborted index has to be read.
    """
    index = log.segment_of(end).aborted
    rows = (index.replacement(end),) if index.listed_count and end > index.base_offset else ()
    producers = Producers.decode(log.producers.snapshot(log.log_end).encode())
    producers.truncate_end(end, again)
    epochs = None if log.lacks_archived_epochs else log.epochs.encode()
    state = LogState(min(log.log_start, end), end, producers.snapshot(end), epochs, _sealed(log, end))
    starts = min(log.local_start, end), min(log.clean_end, end)
    state = state._replace(active=_active(log, end), aborted=rows, new_names=log.replaced.new_names)
    return state._replace(local_start=starts[0], clean_end=starts[1], unseen=log.unseen_below(end, again))


def _sealed(log: "Log", end: int) -> Manifest:
    """Return the sealed segments below `end`: not the last segment, to which a restart appends."""
    return tuple([segment.listing() for segment in log.segments[:-1] if segment.end_offset <= end])


def _active(log: "Log", end: int) -> ActiveSegment:
    if not log.segments:
        return ActiveSegment()
    index = log.segment_of(end).aborted
    return ActiveSegment(index.undecided, index.count_below(end))


def write_checkpoint(disk: Disk, directory: str, state: LogState) -> None:
    """Write a checkpoint. Blocks; does not use the log itself, so it may run in a thread."""
    _sync_indexes(disk, state)
    _sync_names(disk, directory, state)
    for rows in state.aborted:
        rows.write(disk)
    # Epochs first: recovery does not read the batches below the recovery point to find their epochs.
    _write_epochs(disk, directory, state)
    _write_recovery(disk, directory, state)


def lower_checkpoint(disk: Disk, directory: str, state: LogState) -> None:
    """Write the checkpoint of a truncation before it, still with the leader epochs of all batches. Blocks."""
    write_checkpoint(disk, directory, state._replace(aborted=()))
    # Rows in excess are stale, and rows that lack are damage.
    for rows in state.aborted:
        rows.write(disk)


def write_new_log(disk: Disk, directory: str, state: LogState) -> None:
    """Write the checkpoint of a log that takes the place of another, whose segments are gone. Blocks.

    The former epochs go first: a crash must not leave them to this log. Without epochs, the archive is asked for them.
    """
    if disk.exists(path := f"{directory}/{EPOCHS_FILE}"):
        disk.remove(path)
        sync_directory(disk, directory)
    _write_recovery(disk, directory, state)
    _write_epochs(disk, directory, state)


def state_of_new_log(offset: int, before: ArchivedBeginning | None = None) -> LogState:
    """Return the state of an empty log that begins at `offset`; `before` is what only the archive has of it."""
    if before is None:
        return LogState(offset, offset, Producers().snapshot(offset), LeaderEpochs().encode())
    log_start, epochs, producers = before
    return LogState(log_start, offset, producers.snapshot(offset), epochs.encode(), local_start=offset)


def load(disk: Disk, directory: str) -> Recovered:
    """Return the content of a log's checkpoint files. Raises OutOfResources, DiskFailed."""
    damage: list[DamagedLog] = []
    recovery = _read(disk, f"{directory}/{RECOVERY_FILE}", damage)
    epochs = _read(disk, f"{directory}/{EPOCHS_FILE}", damage)
    encoded_epochs = b"" if epochs is None else epochs.payload
    start, decoded = start_of(encoded_epochs) or 0, LeaderEpochs.decode(encoded_epochs)
    if recovery is None:
        # Recovery reads all batches, which have their epochs and producers. A log that does not begin at offset 0 has
        # been checkpointed: the epochs of its last checkpoint begin at its log start offset. A log that never was
        # begins at 0.
        is_lost = any(damaged.path.endswith(RECOVERY_FILE) for damaged in damage)
        unread = Recovered(start, 0, Producers(), decoded, damage, None if is_lost else (), is_lost=is_lost)
        return unread._replace(has_epochs=epochs is not None)
    log_start, recovery_point = HEAD.unpack_from(recovery.payload)
    rest, segments, active = recovery.payload[HEAD.size :], None, None
    has_transactions = recovery.version >= WITH_TRANSACTIONS
    if recovery.version >= WITH_MANIFEST:
        segments, rest = manifest.decode(rest, _ROW_LAYOUTS.get(recovery.version, RowLayout.WITH_COMPACTION))
    if has_transactions:
        active, rest = ActiveSegment._make(_ACTIVE.unpack_from(rest)), rest[_ACTIVE.size :]
    local_start, clean_end, unseen = 0, 0, None
    if recovery.version >= WITH_COMPACTION:
        (local_start, clean_end), rest = _ENDS.unpack_from(rest), rest[_ENDS.size :]
    if recovery.version >= WITH_UNSEEN:
        unseen, rest = Unseen._make(_UNSEEN.unpack_from(rest)), rest[_UNSEEN.size :]
    if epochs is None and local_start <= log_start:
        # Likewise. All segments are read, but the log start offset is known. If only the archive has the first batches,
        # only the checkpoint has their producers.
        listed: Manifest | None = None if segments is None else ()
        unread = Recovered(log_start, 0, Producers(), decoded, damage, listed, local_start=local_start)
        return unread._replace(flushed_end=recovery_point)
    producers = Producers.decode(rest, has_transactions=has_transactions)
    known = Recovered(log_start, recovery_point, producers, decoded, damage, segments, active, local_start, clean_end)
    known = known._replace(epochs_start=start, has_epochs=epochs is not None)
    return known._replace(flushed_end=recovery_point, unseen=unseen)


def _sync_names(disk: Disk, directory: str, state: LogState) -> None:
    """Sync the names of rewritten segments and new indexes: a power cut must not keep the manifest without them."""
    if state.new_names or state.new_indexes:
        sync_directory(disk, directory)


def _sync_indexes(disk: Disk, state: LogState) -> None:
    """Sync the indexes of segments that no manifest lists yet.

    Nothing else vouches for the offsets of a compacted segment, and a restart reads no listed segment. An index that is
    not there has been deleted or replaced with its segment.
    """
    for path in state.new_indexes:
        with suppress(FileNotFoundError), closing(disk.open(path)) as file:
            file.sync()


def _write_epochs(disk: Disk, directory: str, state: LogState) -> None:
    if state.epochs is not None:
        checkpoint.write(disk, f"{directory}/{EPOCHS_FILE}", from_log_start(state.epochs, state.log_start))


def _write_recovery(disk: Disk, directory: str, state: LogState) -> None:
    path, head = f"{directory}/{RECOVERY_FILE}", HEAD.pack(state.log_start, state.recovery_point)
    encoded = state.producers.encode()
    unseen = state.unseen
    if (
        unseen is not None
        or state.clean_end
        or state.local_start > state.log_start
        or any(row.generation for row in state.segments)
    ):
        ends = _ENDS.pack(max(state.local_start, state.log_start), state.clean_end)
        version = WITH_COMPACTION
        if unseen is not None:
            ends, version = ends + _UNSEEN.pack(*unseen), WITH_UNSEEN
        payload = head + manifest.encode(state.segments) + _ACTIVE.pack(*state.active) + ends + encoded
        checkpoint.write(disk, path, payload, version)
        return
    if (producers := before_transactions(encoded)) is not None:
        # The same for less space, and earlier versions of Cordwood read it.
        segments = manifest.encode(state.segments, RowLayout.FIRST)
        checkpoint.write(disk, path, head + segments + producers, WITH_MANIFEST)
        return
    rows = manifest.encode(state.segments, RowLayout.WITH_TRANSACTIONS)
    payload = head + rows + _ACTIVE.pack(*state.active) + encoded
    checkpoint.write(disk, path, payload, WITH_TRANSACTIONS)


def _read(disk: Disk, path: str, damage: list[DamagedLog]) -> Checkpoint | None:
    try:
        return checkpoint.load(disk, path)
    except DamagedLog as damaged:
        damage.append(damaged)
        return None
