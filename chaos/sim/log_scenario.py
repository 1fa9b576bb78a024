"""A random scenario for one log on one disk: appends, truncations, checkpoints, and process death at any write.

After every crash the log must reopen with everything that was flushed, and without reported damage.
"""

import asyncio
import random
from collections.abc import Callable
from uuid import UUID

from cordwood.chaos.sim.disk import SimulatedDisk
from cordwood.chaos.sim.faults import Died
from cordwood.chaos.sim.index_rows import unproven
from cordwood.chaos.sim.left_behind import batches_without_epochs
from cordwood.chaos.sim.loop import run
from cordwood.chaos.sim.replication import NOW_MS, SlowSyncer
from cordwood.chaos.sim.strict import strictly
from cordwood.chaos.sim.values import batch_of, values_between
from cordwood.replication.flusher import Flusher
from cordwood.replication.log_directory import LogDirectory
from cordwood.replication.partition import Partition, TopicIdPartition
from cordwood.replication.partition_context import PartitionContext
from cordwood.replication.replicas import Replicas
from cordwood.replication.truncation import (
    begun_anew,
    finish,
    full_truncation,
    prepare,
    truncation_to,
    write_new_checkpoints,
)
from cordwood.replication.waiters import EndOfTickScheduler
from cordwood.storage.batch import check
from cordwood.storage.boundaries import headers_from
from cordwood.storage.config import LogConfig
from cordwood.storage.epochs import LeaderEpochs
from cordwood.storage.errors import TruncationUnsynced
from cordwood.storage.state import write_checkpoint

STEPS = 150
STEP_S = 0.2
PLACE = TopicIdPartition("t", 0, UUID(int=7))
BURST_MAX = 60
STEPS_TO_LIVE_MAX = 60


def run_log_scenario(seed: int) -> float:
    """Run the scenario. Return the simulated seconds. Raises ScenarioFailed with the first failure as its cause."""
    return run(strictly(_scenario(seed)))


async def _scenario(seed: int) -> float:
    life = Life(random.Random(seed))
    life.open()
    for _ in range(STEPS):
        life.step()
        await asyncio.sleep(STEP_S)
    assert life.openings > 1, "the story is about nothing otherwise"
    return asyncio.get_running_loop().time()


class Life:
    """A log with its expected content: `values` in order from `start`, of which the first `sure` are flushed."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.disk = SimulatedDisk(random.Random(rng.random()))
        self.disk.on_sync = self._synced
        self.config = LogConfig(
            segment_bytes=rng.choice((400, 1000, 2000)), index_interval_bytes=rng.choice((150, 500, 4096))
        )
        self.values: list[str] = []
        self.start = self.sure = self.openings = self.epoch = self._written = 0
        self._may_return: list[tuple[int, list[str]]] = []
        """Log starts and contents before truncations in which the process died: a power cut may bring them back.

        The list is cleared by the next flush of new batches.
        """
        self._wrong: list[str] = []

    def step(self) -> None:
        """Perform one random operation, in which the process may die."""
        rng = self.rng
        does = rng.choice(
            (self._append, self._append, self._flush, self._flush, self._checkpoint, self._cut, self._end)
        )
        if rng.random() < 0.3:
            self.disk.faults.die_after(rng.randrange(STEPS_TO_LIVE_MAX))
        try:
            does()
        except Died:
            self._end()
        assert not self._wrong, self._wrong

    def open(self) -> None:
        """Open the log as a starting broker does. Raises Died, after which the caller opens it again."""
        self.openings += 1
        loop = asyncio.get_running_loop()
        end_of_tick = EndOfTickScheduler(loop)
        flusher = _IdleFlusher(loop, SlowSyncer(self.rng, 0.0), end_of_tick)
        context = PartitionContext(1, end_of_tick, loop.time, 1.0, _ignored, _ignored, _ignored, _ignored)
        replicas = Replicas([LogDirectory(self.disk, "/data", _ignored, flusher, _run_here)], context)
        damage = replicas.open(PLACE, self.config, NOW_MS)
        wrong = [damaged for damaged in damage if damaged.path.endswith(".log")]
        assert not wrong, f"rule 8: the disk is sound, and this is called damaged: {wrong}"
        self.partition = _found(replicas)
        self._check()

    def _check(self) -> None:
        """Check that the log has all flushed values and no others, with a valid index and correct leader epochs."""
        log = self.partition.log
        stale = list(unproven(self.disk, log.directory))
        assert not stale, stale
        found = [value for _, value in values_between(log, log.log_start, log.log_end)]
        contents = ((self.start, self.values), *self._may_return)
        known = any(log.log_start == start and found == values[: len(found)] for start, values in contents)
        assert known, "promise 2: the log has what was never written there"
        assert len(found) >= self.sure, f"promise 1: {self.sure} were flushed, and {len(found)} are there"
        self.start, self.values, self.sure = log.log_start, found, len(found)
        assert log.log_end == self.start + len(found)
        epochs = LeaderEpochs()
        for _, _, header in headers_from(log.segments, log.log_start, log.log_end):
            epochs.assign(header.leader_epoch, header.base_offset)
        assert list(log.epochs) == list(epochs), f"rule 4: {list(log.epochs)} are not the epochs of the batches"

    def _append(self) -> None:
        """Append several batches without a sync, sometimes in a new leader epoch, sometimes over several segments."""
        if self.rng.random() < 0.3:
            self.epoch += 1
        for _ in range(self.rng.randrange(1, self.rng.choice((3, 10, BURST_MAX)))):
            self._written += 1
            batch = batch_of(f"value {self._written}")
            # Record the value before the append: a process that dies in the append may have written all of it.
            self.values.append(f"value {self._written}")
            try:
                self.partition.log.append(batch, check(batch), self.epoch, NOW_MS)
            except TruncationUnsynced:
                self._sync()
                self.partition.log.append(batch, check(batch), self.epoch, NOW_MS)

    def _flush(self) -> None:
        has_news = self.partition.log.flushed_end < self.partition.log.log_end
        self._sync()
        self.sure = len(self.values)
        if has_news:
            self._may_return.clear()

    def _sync(self) -> None:
        pending = self.partition.begin_flush()
        for syncable in (*pending.files, *pending.directories):
            syncable.sync()
        self.partition.flushed(pending)

    def _checkpoint(self) -> None:
        log = self.partition.log
        if log.segments:
            state = log.state()
            write_checkpoint(self.disk, log.directory, state)
            log.checkpoint_written(state)

    def _cut(self) -> None:
        """Truncate the log, at a random offset or completely, as a follower of a new leader does."""
        log = self.partition.log
        end = self.rng.randrange(self.start, log.log_end + 1)
        if end == log.log_end:
            return
        self.epoch += 1
        self._may_return.append((self.start, list(self.values)))
        if self.rng.random() < 0.2:
            self._begin_anew(self.start + self.rng.randrange(len(self.values) + 10))
            return
        self.sure = min(self.sure, end - self.start)
        cut = truncation_to(self.partition, end, lambda: True)
        assert not prepare([cut])
        finish(cut)
        # Until the next group commit, a power cut may bring back truncated batches.
        del self.values[log.log_end - self.start :]

    def _begin_anew(self, start: int) -> None:
        """Remove the whole log, unless the replica has another role by then, and begin again at `start`."""
        is_wanted = self.rng.random() < 0.8
        cut = full_truncation(self.partition, start, lambda: is_wanted)
        assert not prepare([cut])
        self.sure = 0 if is_wanted else self.sure
        assert finish(cut) == is_wanted
        if is_wanted:
            self._may_return.append((start, []))
            self._sync()
            assert not write_new_checkpoints([cut])
            begun_anew(cut)
            self.start, self.values = start, []
            self._may_return.clear()

    def _end(self) -> None:
        """Kill the process or cut the power, and open the log until the process survives."""
        while True:
            self.rng.choice((self.disk.kill, self.disk.power_cut))()
            if self.rng.random() < 0.2:
                self.disk.faults.die_after(self.rng.randrange(STEPS_TO_LIVE_MAX))
            try:
                self.open()
            except Died:
                continue
            self.disk.faults.die_after(None)
            return

    def _synced(self, path: str) -> None:
        self._wrong.extend(batches_without_epochs(self.disk, path))


def _found(replicas: Replicas) -> Partition:
    found = replicas.get(PLACE.topic, PLACE.partition)
    assert found is not None, "it has just been opened"
    return found


class _IdleFlusher(Flusher):
    """A flusher without group commits of its own; the scenario calls them."""

    def touch(self, replica: Partition) -> None:
        """Do nothing."""


async def _run_here(function: Callable[..., object], *arguments: object) -> object:
    return function(*arguments)


def _ignored(*_: object) -> None:
    """Ignore the call."""
