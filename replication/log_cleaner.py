"""Log cleaner: compacts the logs of this broker in the background, the dirtiest first (ADR 39).

Each replica is compacted by itself, in a thread of its log directory, at a limited rate. A round that a truncation, a
new role or an error interrupts leaves the log as it was, except for segments that it has already replaced. A later
round continues from there.
"""

import asyncio
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

import structlog

from cordwood.replication.checkpoints import TRUNCATION_POLL_S
from cordwood.replication.dirtiness import Dirtiness, dirtiest, dirtiness_of, must_be_sealed
from cordwood.replication.log_directory import STAGING
from cordwood.replication.log_maintenance import PARTITIONS_PER_TURN, LogMaintenance
from cordwood.replication.partition import Partition
from cordwood.replication.replicas import Replicas
from cordwood.replication.tasks import Tasks, finished, report
from cordwood.replication.token_bucket import TokenBucket
from cordwood.storage.compaction.offset_map import SEED_BYTES
from cordwood.storage.compaction.round import CleaningRound, Rewritten, all_counted
from cordwood.storage.config import LogConfig
from cordwood.storage.disk import Bytes
from cordwood.storage.errors import CorruptBatch, DamagedLog, DiskFailed, StorageError

PART_BYTES, PART_S = 4 << 20, 0.1
"""Largest part of a round that a thread works on at a time: so many bytes, or what the rate allows in this time."""
COORDINATED_BACKOFF_S = 1.0
"""Longest pause while there are coordinated topics: they are written all the time, and a new coordinator reads all."""
COORDINATED_ROLL_BYTES = 256 << 10
"""Size at which the active segment of a coordinated topic is sealed, so that it can be compacted."""
COORDINATED_DELETE_DELAY_S = 1.0
"""Delay before replaced files of a coordinated topic are deleted, whose readers are few: many wait at a high rate."""
EMPTY: Mapping[str, Callable[[Bytes], Bytes]] = MappingProxyType({})
NO_LIMIT_MS = (1 << 63) - 1

_events = structlog.get_logger("log_cleaner")


class CleanerLimits(NamedTuple):
    """The limits of the log cleaner. Each may change at any time."""

    threads: int
    """Logs that are compacted at a time."""
    buffer_bytes: int
    """Memory of all offset maps together."""
    bytes_per_second: float
    backoff_s: float


@dataclass(slots=True)
class CleanerMeasures:
    """Counts since the broker started, and the state of the last look at the logs."""

    rounds: int = 0
    failures: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    records_read: int = 0
    records_kept: int = 0
    seconds: float = 0.0
    dirtiest_ratio: float = 0.0
    dirty_bytes: int = 0
    overdue_ms: int = 0
    map_utilization: float = 0.0
    """Of the last round."""
    uncleanable: int = 0


class _CleanAbove(NamedTuple):
    """What rounds have compacted above a cut that ends at `begin`. A truncation may have replaced it."""

    begin: int
    truncations: int
    clean_end: int


class _Part(NamedTuple):
    """A part of a round: the bytes that it has read and written, and the rewritten run at its end, if any."""

    size: int
    rewritten: Rewritten | None = None


class LogCleaner:
    """The log cleaner of one broker."""

    def __init__(
        self,
        replicas: Replicas,
        log_maintenance: LogMaintenance,
        wall_clock: Callable[[], int],
        limits: Callable[[], CleanerLimits],
        rng: random.Random,
        coordinated: Mapping[str, Callable[[Bytes], Bytes]] = EMPTY,
    ) -> None:
        """`coordinated` are the topics that coordinators read whole, each with the `counted` of its rounds."""
        self._replicas, self._wall_clock = replicas, wall_clock
        self._checkpoints, self._file_removal = log_maintenance.checkpoints, log_maintenance.file_removal
        self._limits, self._rng, self._coordinated = limits, rng, coordinated
        self._now = asyncio.get_running_loop().time
        self._cleaning: set[Partition] = set()
        self._retry_at: dict[Partition, float] = {}
        self._uncleanable: set[Partition] = set()
        self._wanted: set[Partition] = set()
        """Logs that another replica needs compacted, for its repair."""
        self._above: dict[Partition, _CleanAbove] = {}
        self._allowance = TokenBucket()
        self._tasks = Tasks()
        self._workers = 0
        self.measures = CleanerMeasures()

    def start(self) -> None:
        self._add_workers(1)

    def _add_workers(self, count: int) -> None:
        """Have at least so many workers. One is always there: it follows the limits, also if these allow no thread."""
        for number in range(self._workers, count):
            self._workers += 1
            self._tasks.repeat(partial(self._clean_next, number), f"log cleaner {number}")

    async def close(self) -> None:
        """Stop after the step that is under way."""
        await self._tasks.close()

    async def clean_due(self) -> int:
        """Compact every log that is due, one after the other. Return how many rounds were complete."""
        before = self.measures.rounds
        while (partition := await self._choose()) is not None:
            await self._clean(partition)
        return self.measures.rounds - before

    async def _clean_next(self, worker: int) -> None:
        threads = self._limits().threads
        self._add_workers(threads)
        partition = await self._choose() if worker < threads else None
        if partition is None:
            await asyncio.sleep(self._pause_s())
        else:
            await self._clean(partition)

    def _pause_s(self) -> float:
        is_coordinator = any(self._replicas.has_topic(topic) for topic in self._coordinated)
        backoff_s = self._limits().backoff_s
        return min(backoff_s, COORDINATED_BACKOFF_S) if is_coordinator else backoff_s

    async def _choose(self) -> Partition | None:
        """Seal the active segments that are due, and return the dirtiest log that is due, if any."""
        now_ms = self._wall_clock()
        found: list[Partition] = []
        candidates: list[tuple[Dirtiness, LogConfig]] = []
        for count, partition in enumerate(self._replicas.of_topics(_may_be_compacted), 1):
            if count % PARTITIONS_PER_TURN == 0:
                await asyncio.sleep(0)
            if not _is_compacted(partition) or not self._is_free(partition):
                continue
            try:
                candidates.append((await self._prepare(partition, now_ms), partition.log.config))
                found.append(partition)
            except Exception as error:
                self._failed(partition, error)
        self._measure(candidates)
        self._forget_removed()
        # Another worker may have begun one of them meanwhile.
        free = [number for number, partition in enumerate(found) if partition not in self._cleaning]
        chosen = dirtiest([candidates[number] for number in free])
        if chosen is None:
            return None
        self._cleaning.add(found[free[chosen]])
        return found[free[chosen]]

    def _is_free(self, partition: Partition) -> bool:
        """Return whether no worker has the log, and no error has postponed it."""
        is_taken = partition in self._cleaning or partition in self._uncleanable
        return not is_taken and self._retry_at.get(partition, 0.0) <= self._now()

    async def _prepare(self, partition: Partition, now_ms: int) -> Dirtiness:
        """Seal the active segment if it is to be sealed, and return what of the log is to be compacted."""
        log, config = partition.log, partition.log.config
        roll_bytes = COORDINATED_ROLL_BYTES if partition.topic in self._coordinated else None
        is_wanted, partition.must_be_compacted = partition.must_be_compacted, False
        if is_wanted:
            self._wanted.add(partition)
        if (is_wanted and log.segments[-1].size) or must_be_sealed(log.segments[-1], config, roll_bytes, now_ms):
            log.roll_if_active(log.segments[-1])
            # The new segment's directory entry is synced with the next group commit.
            partition.directory.flusher.touch(partition)
        if config.max_compaction_lag_ms < NO_LIMIT_MS:
            await self._load_first_timestamps(partition)
        dirtiness = self._dirtiness(partition, now_ms)
        return dirtiness._replace(overdue_ms=max(dirtiness.overdue_ms, int(partition in self._wanted)))

    async def _load_first_timestamps(self, partition: Partition) -> None:
        """Load the first timestamps of dirty segments that were sealed before this process opened the log."""
        log = partition.log
        for segment in log.segments[:-1]:
            if segment.end_offset > log.clean_end and segment.first_timestamp < 0 and not segment.is_lost:
                header = await partition.directory.run_blocking(segment.header_at, 0)
                segment.first_timestamp = header.max_timestamp

    async def _clean(self, partition: Partition) -> None:
        began, clean_end = self._now(), self._clean_end(partition)
        try:
            is_complete = await self._run_round(partition)
        except Exception as error:
            self._failed(partition, error)
        else:
            self.measures.rounds += is_complete
            self._wanted.discard(partition)
            if not is_complete or self._clean_end(partition) <= clean_end:
                self._postpone(partition)
        finally:
            self._cleaning.discard(partition)
            self.measures.seconds += self._now() - began

    async def _run_round(self, partition: Partition) -> bool:
        """Compact a log once. Return False if that was not possible, or was interrupted."""
        log, directory, epoch = partition.log, partition.directory, partition.leader_epoch
        # The round reads only segments that the manifest on disk lists.
        await self._checkpoints.write(partition)
        path = f"{directory.path}/{STAGING}/compaction-{partition.topic_id}-{partition.index}"
        await directory.run_blocking(log.disk.make_directories, path)
        one_round = self._round(partition, path)
        if not one_round.is_needed:
            return False
        is_complete = False
        try:
            steps = one_round.steps()
            while (part := await finished(directory.run_blocking(_next_part, steps, self._part_bytes()))) is not None:
                rewritten = part.rewritten
                while rewritten is not None and partition.is_checkpoint_locked:
                    # The checkpoint of a pending truncation lists the old segments.
                    await asyncio.sleep(TRUNCATION_POLL_S)
                is_pinned = log.pinned.end > one_round.begin
                if partition.leader_epoch != epoch or is_pinned or not _is_compacted(partition):
                    return False
                if rewritten is not None:
                    if not one_round.swap(rewritten):
                        return False
                    delay_s = COORDINATED_DELETE_DELAY_S if partition.topic in self._coordinated else None
                    await self._file_removal.commit_swap(partition, rewritten.old, delay_s)
                await self._keep_to_the_rate(part.size)
            is_complete = one_round.finish()
            if is_complete and one_round.begin:
                self._above[partition] = _CleanAbove(one_round.begin, log.truncations, one_round.end)
        finally:
            if not is_complete:
                await finished(directory.run_blocking(one_round.abort))
            self._count(one_round)
        directory.uncheckpointed[partition] = None
        return is_complete

    def _round(self, partition: Partition, directory: str) -> CleaningRound:
        now_ms, limits = self._wall_clock(), self._limits()
        buffer_bytes = limits.buffer_bytes // max(limits.threads, 1)
        end, counted = self._dirtiness(partition, now_ms).end, self._coordinated.get(partition.topic, all_counted)
        seed, log = self._rng.randbytes(SEED_BYTES), partition.log
        above = (log.pinned.end, self._clean_end(partition)) if log.pinned.end else None
        return CleaningRound(log, directory, end, now_ms, buffer_bytes, seed, counted, above)

    def _clean_end(self, partition: Partition) -> int:
        """Return the end of the compacted records; while a cut pins the log, of those above the cut."""
        log, above = partition.log, self._above.get(partition)
        if not log.pinned.end:
            return log.clean_end
        is_known = above is not None and above[:2] == (log.pinned.end, log.truncations)
        return above.clean_end if above is not None and is_known else log.pinned.end

    def _dirtiness(self, partition: Partition, now_ms: int) -> Dirtiness:
        log = partition.log
        segments = [segment for segment in log.segments if segment.base_offset >= log.pinned.end]
        return dirtiness_of(segments, log.config, self._clean_end(partition), partition.last_stable_offset, now_ms)

    def _part_bytes(self) -> float:
        return min(PART_BYTES, self._limits().bytes_per_second * PART_S)

    async def _keep_to_the_rate(self, size: int) -> None:
        """Sleep to keep the rate of all workers together."""
        now = self._now()
        self._allowance.set_rate(self._limits().bytes_per_second, now)
        self._allowance.charge(size, now)
        # Also without a limit, other work runs in between.
        await asyncio.sleep(self._allowance.debt_s(now))

    def _count(self, one_round: CleaningRound) -> None:
        measures = self.measures
        measures.bytes_read += one_round.bytes_read
        measures.bytes_written += one_round.bytes_written
        measures.records_read += one_round.records_read
        measures.records_kept += one_round.records_kept
        measures.map_utilization = one_round.map_utilization

    def _measure(self, candidates: list[tuple[Dirtiness, LogConfig]]) -> None:
        measures = self.measures
        measures.dirtiest_ratio = max((dirt.ratio for dirt, _ in candidates), default=0.0)
        measures.dirty_bytes = sum(dirt.dirty_bytes for dirt, _ in candidates)
        measures.overdue_ms = max((dirt.overdue_ms for dirt, _ in candidates), default=0)

    def _failed(self, partition: Partition, error: Exception) -> None:
        """Postpone the log: damage is repaired meanwhile. A batch that cannot be decoded will not be better later.

        The replica is served as before: an error of the cleaner is none of the log.
        """
        self.measures.failures += 1
        if not isinstance(error, OSError | StorageError):
            report(f"compaction of {partition.topic}-{partition.index} failed", error)
            self._give_up(partition, repr(error))
            return
        failure = partition.directory.write_failed(error)
        if isinstance(failure, CorruptBatch):
            # Its checksums are right: no other replica has better bytes.
            self._give_up(partition, str(failure))
            return
        if isinstance(failure, DamagedLog):
            partition.report_damage(failure)
        log = _events.error if isinstance(failure, DiskFailed) else _events.warning
        log("log_cleaner.not_compacted", topic=partition.topic, partition=partition.index, error=str(failure))
        self._postpone(partition)

    def _postpone(self, partition: Partition) -> None:
        self._retry_at[partition] = self._now() + self._limits().backoff_s

    def _give_up(self, partition: Partition, reason: str) -> None:
        """Leave a log alone until the broker restarts. It grows."""
        self._uncleanable.add(partition)
        _events.error("log_cleaner.given_up", topic=partition.topic, partition=partition.index, error=reason)

    def _forget_removed(self) -> None:
        self._uncleanable = {partition for partition in self._uncleanable if not partition.is_deleted}
        self._wanted = {partition for partition in self._wanted if not partition.is_deleted}
        self._above = {one: above for one, above in self._above.items() if one.log.pinned.end and not one.is_deleted}
        self._retry_at = {partition: at for partition, at in self._retry_at.items() if not partition.is_deleted}
        self.measures.uncleanable = len(self._uncleanable)


def _next_part(steps: Iterator[int | Rewritten], size_max: float) -> _Part | None:
    """Take the next steps of a round, in a thread: of about `size_max` bytes, or up to a rewritten run."""
    size, step = 0, None
    for step in steps:
        if isinstance(step, Rewritten):
            return _Part(size, step)
        size += step
        if size >= size_max:
            break
    return None if step is None else _Part(size)


def _may_be_compacted(partition: Partition) -> bool:
    """Return whether the topic of the partition is compacted: its partitions have one configuration."""
    return partition.log.config.compacted


def _is_compacted(partition: Partition) -> bool:
    """Return whether the log may be compacted at all."""
    log = partition.log
    is_served = not partition.is_deleted and not partition.is_offline
    return is_served and log.config.compacted and bool(log.segments)
