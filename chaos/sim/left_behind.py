"""Invariants of cleanup: waiters of deposed leaders, batches without leader epochs, replicas on failed disks."""

import os
from collections.abc import Iterable, Iterator

from cordwood.chaos.sim.disk import SimulatedDisk
from cordwood.chaos.sim.index_rows import unproven
from cordwood.chaos.sim.reopened_logs import whole_batches
from cordwood.chaos.sim.replication import Metadata, ReplicaBroker
from cordwood.replication.leader_role import LeaderRole
from cordwood.replication.partition import Partition
from cordwood.storage import checkpoint, state
from cordwood.storage.batch import check
from cordwood.storage.epochs import LeaderEpochs
from cordwood.storage.errors import DamagedLog
from cordwood.storage.log import Log
from cordwood.storage.types import NO_EPOCH

STAGED_EPOCHS = f"{state.EPOCHS_FILE}.new"
"""The staged file of leader epochs, which replaces the old file once it is synced."""
TOLD_S = 3.0
"""The time after which a broker has reported a failed disk, if metadata is not delayed."""
LATE_SHARES = 4
"""The number of metadata delays to allow for: the way there and back, and earlier requests."""


class LeaderRoles:
    """The leader roles that replicas had at the last check: one that has ended has no waiter (promise 3)."""

    def __init__(self) -> None:
        self._last: dict[Partition, LeaderRole] = {}

    def has_waiters_of_the_past(self, partition: Partition) -> bool:
        """Return whether somebody waits for an acknowledgement of a role that has ended. Note the current role."""
        last = self._last.get(partition)
        if last is partition.leading:
            return False
        if partition.leading is not None:
            self._last[partition] = partition.leading
        if last is None:
            return False
        return bool(last._commit_waiters.queue or last._flush_waiters.queue)


class LeftBehind:
    """A periodic check of all brokers, and a check at each sync of staged leader epochs."""

    def __init__(self) -> None:
        self._ends: dict[Log, int] = {}
        self._roles = LeaderRoles()
        self._failed_at_s: dict[Partition, float] = {}
        self._late_max_s = 0.0
        self._found: list[str] = []

    def look(self, brokers: Iterable[ReplicaBroker], metadata: Metadata, now_s: float) -> Iterator[str]:
        """Yield a sentence per violation."""
        yield from self._found
        self._late_max_s = max(self._late_max_s, metadata.lag_max_s)
        for broker in brokers:
            for partition in broker.replicas:
                where = f"{partition.topic}/{partition.index} on broker {broker.broker_id}"
                if self._roles.has_waiters_of_the_past(partition):
                    yield f"promise 3: {where} leads no more, and somebody still waits for it"
                yield from self._truncated_index_rows(broker, partition.log)
                yield from self._failed_and_counted(where, broker, partition, metadata, now_s)

    def synced(self, disk: SimulatedDisk, path: str) -> None:
        """Check a path that a disk has synced."""
        self._found.extend(batches_without_epochs(disk, path))

    def _truncated_index_rows(self, broker: ReplicaBroker, log: Log) -> Iterator[str]:
        before, self._ends[log] = self._ends.get(log, 0), log.log_end
        if log.log_end < before and not broker.is_silent and not broker.disk.has_lied:
            yield from unproven(broker.disk, log.directory)

    def _failed_and_counted(
        self, where: str, broker: ReplicaBroker, partition: Partition, metadata: Metadata, now_s: float
    ) -> Iterator[str]:
        """Rule 8: a failed disk leaves the in-sync sets as soon as its broker can report it."""
        agreed = metadata.newest.partition(partition.topic_id, partition.index)
        can_tell = not broker.is_silent and broker.broker_id not in metadata.cut_off
        is_counted_on = agreed is not None and broker.broker_id in agreed.isr
        if not (partition.is_offline and can_tell and is_counted_on):
            self._failed_at_s.pop(partition, None)
        elif now_s - self._failed_at_s.setdefault(partition, now_s) > TOLD_S + LATE_SHARES * self._late_max_s:
            yield f"rule 8: the disk of {where} has failed, and {agreed} counts on it"


def batches_without_epochs(disk: SimulatedDisk, synced: str) -> Iterator[str]:
    """Rule 4: yield committed batches that a staged file of leader epochs does not cover.

    `synced` is the path that a disk has just synced. If the process died now, batches below the recovery point would
    not be read again to recover their epochs.
    """
    if not synced.endswith(STAGED_EPOCHS):
        return
    directory = os.path.dirname(synced)
    try:
        found = state.load(disk, directory)
        staged = checkpoint.read(disk, f"{directory}/{STAGED_EPOCHS}")
    except DamagedLog:
        return
    epochs = LeaderEpochs.decode(staged or b"")
    for path in disk.files():
        if path.startswith(f"{directory}/") and path.endswith(".log"):
            for batch in whole_batches(path, disk.content(path)):
                is_believed = found.log_start <= batch.offset and check(batch.batch).end <= found.recovery_point
                if is_believed and epochs.epoch_at(batch.offset) == NO_EPOCH:
                    yield f"rule 4: {path} has offset {batch.offset}, and a restart may not know of which epoch"
                    return
