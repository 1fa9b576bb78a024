"""What a log keeps beside its segments, so that a restart reads only what came last: two checkpoint files.

`recovery`: log start i64, recovery point i64 (everything below it was on disk, and the rest of the file is the state as
of there), the manifest of the sealed segments (see `manifest.py`; none in version 1), idempotent producers.
`leader-epochs`: each epoch with its start offset.
"""

import struct
from typing import NamedTuple

from cordwood.storage import checkpoint, manifest
from cordwood.storage.checkpoint import Checkpoint
from cordwood.storage.disk import Disk
from cordwood.storage.epochs import LeaderEpochs
from cordwood.storage.errors import DamagedLog
from cordwood.storage.manifest import Manifest
from cordwood.storage.producers import Producers

RECOVERY_FILE = "recovery"
EPOCHS_FILE = "leader-epochs"
HEAD = struct.Struct(">qq")
WITH_MANIFEST = 2
"""The version of `recovery` that has a manifest."""


class LogState(NamedTuple):
    """One checkpoint's content. `epochs` is None where they are as last saved."""

    log_start: int
    recovery_point: int
    producers: bytes
    epochs: bytes | None
    segments: Manifest = ()
    """The sealed segments below the recovery point."""


class Recovered(NamedTuple):
    """What the checkpoint files gave back; whatever was damaged is as if it had never been written."""

    log_start: int
    recovery_point: int
    producers: Producers
    epochs: LeaderEpochs
    damage: list[DamagedLog]
    segments: Manifest | None
    """None where there is no manifest."""


def save(disk: Disk, directory: str, state: LogState) -> None:
    """Put a checkpoint on disk. Blocks; touches nothing of the log, so it may run beside the loop."""
    # Epochs first: recovery does not read batches below the recovery point again to find theirs.
    _write_epochs(disk, directory, state)
    _write_recovery(disk, directory, state)


def set_back(disk: Disk, directory: str, state: LogState) -> None:
    """As `save`, for a log that is about to be cut: a crash in between must not leave batches without their epochs."""
    # Epochs last: those that begin above the recovery point are found again in the batches, if these are still there.
    _write_recovery(disk, directory, state)
    _write_epochs(disk, directory, state)


def state_of_new_log(offset: int) -> LogState:
    """That of a log which begins at `offset` and has nothing yet."""
    return LogState(offset, offset, Producers().encode(offset), LeaderEpochs().encode())


def load(disk: Disk, directory: str) -> Recovered:
    """What the checkpoint files of a log hold. Raises OSError."""
    damage: list[DamagedLog] = []
    recovery = _read(disk, f"{directory}/{RECOVERY_FILE}", damage)
    epochs = _read(disk, f"{directory}/{EPOCHS_FILE}", damage)
    if recovery is None:
        # Everything is read anew: batches carry their epochs and their producers. A log that does not begin at offset 0
        # has been checkpointed, so that one which never was is known to begin there.
        is_lost = any(damaged.path.endswith(RECOVERY_FILE) for damaged in damage)
        return Recovered(0, 0, Producers(), LeaderEpochs(), damage, None if is_lost else ())
    log_start, recovery_point = HEAD.unpack_from(recovery.payload)
    rest, segments = recovery.payload[HEAD.size :], None
    if recovery.version >= WITH_MANIFEST:
        segments, rest = manifest.decode(rest)
    if epochs is None:
        # Likewise. None of the segments is taken unread, but the log is known to begin at its start.
        return Recovered(log_start, 0, Producers(), LeaderEpochs(), damage, None if segments is None else ())
    decoded = LeaderEpochs.decode(epochs.payload)
    return Recovered(log_start, recovery_point, Producers.decode(rest), decoded, damage, segments)


def _write_epochs(disk: Disk, directory: str, state: LogState) -> None:
    if state.epochs is not None:
        checkpoint.write(disk, f"{directory}/{EPOCHS_FILE}", state.epochs)


def _write_recovery(disk: Disk, directory: str, state: LogState) -> None:
    payload = HEAD.pack(state.log_start, state.recovery_point) + manifest.encode(state.segments) + state.producers
    checkpoint.write(disk, f"{directory}/{RECOVERY_FILE}", payload, WITH_MANIFEST)


def _read(disk: Disk, path: str, damage: list[DamagedLog]) -> Checkpoint | None:
    try:
        return checkpoint.load(disk, path)
    except DamagedLog as damaged:
        damage.append(damaged)
        return None
