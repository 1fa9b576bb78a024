"""Checkpoints of a log, so that a restart reads only the last batches: the files `recovery` and `leader-epochs`.

`recovery`: log start offset i64, recovery point i64 (everything below it was on disk, and the rest of the file is the
state as of there), the manifest of the sealed segments (see `manifest.py`; none in version 1), idempotent producers.
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
"""First version of `recovery` that has a manifest."""


class LogState(NamedTuple):
    """Content of one checkpoint. `epochs` is None if unchanged since the last one."""

    log_start: int
    recovery_point: int
    producers: bytes
    epochs: bytes | None
    segments: Manifest = ()
    """Sealed segments below the recovery point."""


class Recovered(NamedTuple):
    """Content of the checkpoint files; a damaged one counts as never written."""

    log_start: int
    recovery_point: int
    producers: Producers
    epochs: LeaderEpochs
    damage: list[DamagedLog]
    segments: Manifest | None
    """None if there is no manifest."""


def write_checkpoint(disk: Disk, directory: str, state: LogState) -> None:
    """Write a checkpoint. Blocks; does not use the log itself, so it may run in a thread."""
    # Epochs first: recovery does not read the batches below the recovery point to find their epochs.
    _write_epochs(disk, directory, state)
    _write_recovery(disk, directory, state)


def lower_checkpoint(disk: Disk, directory: str, state: LogState) -> None:
    """Write the checkpoint of a truncation before it: a crash must not leave batches without their epochs."""
    # Epochs last: recovery finds those above the recovery point in the batches, if the batches are still there.
    _write_recovery(disk, directory, state)
    _write_epochs(disk, directory, state)


def state_of_new_log(offset: int) -> LogState:
    """Return the state of an empty log that begins at `offset`."""
    return LogState(offset, offset, Producers().encode(offset), LeaderEpochs().encode())


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
    rest, segments = recovery.payload[HEAD.size :], None
    if recovery.version >= WITH_MANIFEST:
        segments, rest = manifest.decode(rest)
    if epochs is None:
        # Likewise. All segments are read, but the log start offset is known.
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
