"""What a log keeps beside its segments, so that a restart reads only what came last: two checkpoint files.

`recovery`: log start i64, recovery point i64 (everything below it was on disk, and the rest of the file is the state as
of there), idempotent producers. `leader-epochs`: each epoch with its start offset.
"""

import struct
from typing import NamedTuple

from cordwood.storage import checkpoint
from cordwood.storage.disk import Disk
from cordwood.storage.epochs import LeaderEpochs
from cordwood.storage.errors import DamagedLog
from cordwood.storage.producers import Producers

RECOVERY_FILE = "recovery"
EPOCHS_FILE = "leader-epochs"
_HEAD = struct.Struct(">qq")


class LogState(NamedTuple):
    """One checkpoint's content. `epochs` is None where they are as last saved."""

    log_start: int
    recovery_point: int
    producers: bytes
    epochs: bytes | None


class Recovered(NamedTuple):
    """What the checkpoint files gave back; whatever was damaged is as if it had never been written."""

    log_start: int
    recovery_point: int
    producers: Producers
    epochs: LeaderEpochs
    damage: list[DamagedLog]


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


def load(disk: Disk, directory: str) -> Recovered:
    damage: list[DamagedLog] = []
    recovery = _read(disk, f"{directory}/{RECOVERY_FILE}", damage)
    epochs = _read(disk, f"{directory}/{EPOCHS_FILE}", damage)
    if recovery is None or epochs is None:
        # Without either file everything is read anew: batches carry their epochs and their producers.
        log_start = _HEAD.unpack_from(recovery)[0] if recovery is not None else 0
        return Recovered(log_start, 0, Producers(), LeaderEpochs(), damage)
    log_start, recovery_point = _HEAD.unpack_from(recovery)
    producers = Producers.decode(recovery[_HEAD.size :])
    return Recovered(log_start, recovery_point, producers, LeaderEpochs.decode(epochs), damage)


def _write_epochs(disk: Disk, directory: str, state: LogState) -> None:
    if state.epochs is not None:
        checkpoint.write(disk, f"{directory}/{EPOCHS_FILE}", state.epochs)


def _write_recovery(disk: Disk, directory: str, state: LogState) -> None:
    head = _HEAD.pack(state.log_start, state.recovery_point)
    checkpoint.write(disk, f"{directory}/{RECOVERY_FILE}", head + state.producers)


def _read(disk: Disk, path: str, damage: list[DamagedLog]) -> bytes | None:
    try:
        return checkpoint.read(disk, path)
    except DamagedLog as damaged:
        damage.append(damaged)
        return None
