"""What may happen to one log on one disk, drawn from a seed: bursts, cuts, checkpoints, and a death at any write.

Whatever happens, the log is opened again as it was, up to where it was flushed, and its disk is called sound.
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
from cordwood.replication.flusher import Flushable, Flusher
from cordwood.replication.log_directory import LogDirectory
from cordwood.replication.partition import Partition, Place
from cordwood.replication.partition_context import PartitionContext
from cordwood.replication.replicas import Replicas
from cordwood.replication.truncation import cut_at, cut_of_all, finish, prepare
from cordwood.replication.waiters import EndOfTickScheduler
from cordwood.storage.batch import check
from cordwood.storage.config import LogConfig
from cordwood.storage.state import save

STEPS = 150
STEP_S = 0.2
PLACE = Place("t", 0, UUID(int=7))
BURST_MAX = 60
STEPS_TO_LIVE_MAX = 25


def log_story(seed: int) -> float:
    """One log's life. Returns how many simulated seconds it took. Raises whatever shows that something is wrong."""
    return run(strictly(_story(seed)))


async def _story(seed: int) -> float:
    life = Life(random.Random(seed))
    life.open()
    for _ in range(STEPS):
        life.step()
        await asyncio.sleep(STEP_S)
    assert life.openings > 1, "the story is about nothing otherwise"
    return asyncio.get_running_loop().time()


class Life:
    """The log, and what it may have: `values` in order from `start` on, of which the first `sure` have been flushed."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.disk = SimulatedDisk(random.Random(rng.random()))
        self.disk.on_sync = self._synced
        self.config = LogConfig(
            segment_bytes=rng.choice((400, 1000, 2000)), index_interval_bytes=rng.choice((150, 500, 4096))
        )
        self.values: list[str] = []
        self.start = self.sure = self.openings = self.epoch = self._written = 0
        self._may_return: list[list[str]] = []
        """What the log had before cuts that the process died of: what was removed may be seen again after a power cut.

        Not any more, once something that came after was flushed.
        """
        self._wrong: list[str] = []

    def step(self) -> None:
        """Something happens, or the process dies of it."""
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
        """As a broker does it that starts; it may die of that, and start again."""
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
        """What was flushed is there, and nothing but what was written; each of it can be proven, and its epoch told."""
        log = self.partition.log
        stale = list(unproven(self.disk, log.directory))
        assert not stale, stale
        found = [value for _, value in values_between(log, log.log_start, log.log_end)]
        known = any(found == values[: len(found)] for values in (self.values, *self._may_return))
        assert known, "promise 2: the log has what was never written there"
        assert len(found) >= self.sure, f"promise 1: {self.sure} were flushed, and {len(found)} are there"
        self.values, self.sure = found, len(found)
        assert (log.log_start, log.log_end) == (self.start, self.start + len(found))
        for _, _, header in log.headers_from(log.log_start):
            epoch = log.epochs.epoch_at(header.base_offset)
            assert epoch == header.leader_epoch, f"rule 4: offset {header.base_offset} is of another epoch than {epoch}"

    def _append(self) -> None:
        """Some batches at once, perhaps of a new leader; more than a segment now and then, and all of it unsynced."""
        if self.rng.random() < 0.3:
            self.epoch += 1
        for _ in range(self.rng.randrange(1, self.rng.choice((3, 10, BURST_MAX)))):
            self._written += 1
            batch = batch_of(f"value {self._written}")
            # Known before it is written: a process that dies of that may have written all of it.
            self.values.append(f"value {self._written}")
            self.partition.log.append(batch, check(batch), self.epoch, NOW_MS)

    def _flush(self) -> None:
        has_news = self.partition.log.flushed_end < self.partition.log.log_end
        self._sync()
        self.sure = len(self.values)
        if has_news:
            self._may_return.clear()

    def _sync(self) -> None:
        unsynced = self.partition.take_unsynced()
        for syncable in (*unsynced.files, *unsynced.directories):
            syncable.sync()
        self.partition.flushed(unsynced)

    def _checkpoint(self) -> None:
        log = self.partition.log
        if log.segments:
            state = log.state()
            save(self.disk, log.directory, state)
            log.saved(state)

    def _cut(self) -> None:
        """As a follower does that has another leader now: to anywhere, or all of it."""
        log = self.partition.log
        end = self.rng.randrange(self.start, log.log_end + 1)
        if end == log.log_end:
            return
        self.sure = min(self.sure, end - self.start)
        self.epoch += 1
        self._may_return.append(list(self.values))
        if self.rng.random() < 0.2:
            self.sure = 0
            cut = cut_of_all(self.partition, self.start, lambda: True)
        else:
            cut = cut_at(self.partition, end, lambda: True)
        assert not prepare([cut])
        finish(cut)
        # Until the next group commit, a power cut may bring back what was cut.
        self._sync()
        del self.values[log.log_end - self.start :]
        self._may_return.clear()

    def _end(self) -> None:
        """The process dies, perhaps because its machine does; and comes back, as often as it takes."""
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
    """The story itself says when there is a group commit."""

    def touch(self, replica: Flushable) -> None:
        """Nothing happens by itself."""


async def _run_here(function: Callable[..., object], *arguments: object) -> object:
    return function(*arguments)


def _ignored(*_: object) -> None:
    """There is nobody who would want to know."""
