"""Checkpoints of a log, so that a restart reads only the last batches: the files `recovery` and `leader-epochs`.

`recovery`: log start offset i64, recovery point i64 (everything below it was on disk, and the rest of the file is the
state as of there), the manifest of the sealed segments (see `manifest.py`; none in version 1), the segment with the
recovery point (from version 3 on), idempotent producers. `leader-epochs`: each epoch with its start offset.
"""

import struct
from typing import TYPE_CHECKING, NamedTuple

from cordwood.storage import checkpoint, manifest
from cordwood.storage.aborted_index import UnsavedRows
from cordwood.storage.checkpoint import Checkpoint
from cordwood.storage.disk import Disk
from cordwood.storage.epochs import LeaderEpochs
from cordwood.storage.errors import DamagedLog
from cordwood.storage.manifest import Manifest
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
_ACTIVE = struct.Struct(">qI")


class ActiveSegment(NamedTuple):
    """Transactions of the segment with the recovery point, as of there. Fields as in `SealedSegment`."""

    undecided: int = 0
    aborted: int = 0


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


def state_as_of(log: "Log", end: int, epochs: bytes | None) -> LogState:
    """Return the state of a log as of `end`, its flushed end."""
    rows = tuple([rows for segment in log.segments if (rows := segment.aborted.unsaved(end)) is not None])
    producers = log.producers.snapshot(end)
    return LogState(log.log_start, end, producers, epochs, _sealed(log, end), _active(log, end), rows)


def state_after_truncation(log: "Log", end: int, again: Producers | None) -> LogState:
    """Return the state that a log has after a truncation to `end`. `again` is that of `Producers.truncate_end`.

    Raises DamagedLog if an aborted index has to be read.
    """
    index = log.segment_of(end).aborted
    rows = (index.replacement(end),) if index.count and end > index.base_offset else ()
    producers = Producers.decode(log.producers.snapshot(log.log_end).encode())
    producers.truncate_end(end, again)
    state = LogState(min(log.log_start, end), end, producers.snapshot(end), log.epochs.encode(), _sealed(log, end))
    return state._replace(active=_active(log, end), aborted=rows)


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
    for rows in state.aborted:
        rows.write(disk)
    # Epochs first: recovery does not read the batches below the recovery point to find their epochs.
    _write_epochs(disk, directory, state)
    _write_recovery(disk, directory, state)


def lower_checkpoint(disk: Disk, directory: str, state: LogState) -> None:
    """Write the checkpoint of a truncation before it: a crash must not leave batches without their epochs."""
    # Epochs last: recovery finds those above the recovery point in the batches, if the batches are still there.
    _write_recovery(disk, directory, state)
    _write_epochs(disk, directory, state)
    # Rows in excess are stale, and rows that lack are damage.
    for rows in state.aborted:
        rows.write(disk)


def state_of_new_log(offset: int) -> LogState:
    """Return the state of an empty log that begins at `offset`."""
    return LogState(offset, offset, Producers().snapshot(offset), LeaderEpochs().encode())


def load(disk: Disk, directory: str) -> Recovered:
    """Return the content of a log's checkpoint files. Raises OutOfResources, DiskFailed."""
    damage: list[DamagedLog] = []
    recovery = _read(disk, f"{directory}/{RECOVERY_FILE}", damage)
    epochs = _read(disk, f"{directory}/{EPOCHS_FILE}", damage)
    if recovery is None:
        # Recovery reads all batches, which have their epochs and producers. A log that does not begin at offset 0 has
        # been checkpointed, so a log that never was begins at 0.
        is_lost = any(damaged.path.endswith(RECOVERY_FILE) for damaged in damage)
        return Recovered(0, 0, Producers(), LeaderEpochs(), damage, None if is_lost else ())
    log_start, recovery_point = HEAD.unpack_from(recovery.payload)
    rest, segments, active = recovery.payload[HEAD.size :], None, None
    has_transactions = recovery.version >= WITH_TRANSACTIONS
    if recovery.version >= WITH_MANIFEST:
        segments, rest = manifest.decode(rest, has_transactions=has_transactions)
    if has_transactions:
        active, rest = ActiveSegment._make(_ACTIVE.unpack_from(rest)), rest[_ACTIVE.size :]
    if epochs is None:
        # Likewise. All segments are read, but the log start offset is known.
        return Recovered(log_start, 0, Producers(), LeaderEpochs(), damage, None if segments is None else ())
    decoded = LeaderEpochs.decode(epochs.payload)
    producers = Producers.decode(rest, has_transactions=has_transactions)
    return Recovered(log_start, recovery_point, producers, decoded, damage, segments, active)


def _write_epochs(disk: Disk, directory: str, state: LogState) -> None:
    if state.epochs is not None:
        checkpoint.write(disk, f"{directory}/{EPOCHS_FILE}", state.epochs)


def _write_recovery(disk: Disk, directory: str, state: LogState) -> None:
    path, head = f"{directory}/{RECOVERY_FILE}", HEAD.pack(state.log_start, state.recovery_point)
    encoded = state.producers.encode()
    if (producers := before_transactions(encoded)) is not None:
        # The same for less space, and earlier versions of Cordwood read it.
        segments = manifest.encode(state.segments, has_transactions=False)
        checkpoint.write(disk, path, head + segments + producers, WITH_MANIFEST)
        return
    payload = head + manifest.encode(state.segments) + _ACTIVE.pack(*state.active) + encoded
    checkpoint.write(disk, path, payload, WITH_TRANSACTIONS)


def _read(disk: Disk, path: str, damage: list[DamagedLog]) -> Checkpoint | None:
    try:
        return checkpoint.load(disk, path)
    except DamagedLog as damaged:
        damage.append(damaged)
        return None
