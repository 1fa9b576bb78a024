"""Scrubber: background reads that verify everything on disk, to find damage before a client needs the data.

It reads at a steady rate, in small pieces in a thread. A pass over a log directory begins one interval after the last
one began, or as soon as that one ends. So data is verified once an interval, or less often if the rate does not suffice
for all of it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import partial

import structlog

from cordwood.replication.log_directory import LogDirectory
from cordwood.replication.partition import Partition
from cordwood.replication.replicas import Replicas
from cordwood.replication.tasks import Tasks
from cordwood.replication.token_bucket import TokenBucket
from cordwood.storage.errors import DamagedLog, StorageError
from cordwood.storage.scrub import PIECE_BYTES, LogView, Proof, Undecodable, Unpacked, unpacked, verify, view_of

PASS_S = 15.0
"""Default interval between the beginnings of two passes."""
STEPS_PER_SECOND = 50
"""Limit of the steps, however high the rate."""
PAUSE_S = 1.0
"""Pause between two passes, however long they take."""
PARTITIONS_PER_STEP = 250
"""Partitions that are looked at in one iteration of the event loop, if they have no data."""
FILE_BYTES = 32 << 10
"""Bytes that opening a file counts for at least, by its processor time: thousands of small logs share the rate."""
FILES_PER_LOG = 5
"""Files of a small log, at most. In a step they count for FILE_BYTES together: the way to a thread costs more."""

_events = structlog.get_logger("scrubber")

Found = DamagedLog | Undecodable | Unpacked
_Proofs = Iterator[tuple[Partition, Proof]]


class Scrubber:
    """Scrubber of one broker. Findings are reported to the partition. Each log directory is scrubbed by itself."""

    def __init__(
        self,
        replicas: Replicas,
        bytes_per_second: int,
        scrub_the_rest: Callable[[], Awaitable[None]],
        found_undecodable: Callable[[Partition, Undecodable], None],
        interval_s: float = PASS_S,
    ) -> None:
        """`scrub_the_rest` has passes of its own, over files beside the logs. A rate of 0 turns scrubbing off."""
        self._replicas, self._scrub_the_rest = replicas, scrub_the_rest
        self._found_undecodable = found_undecodable
        self._step_bytes = max(PIECE_BYTES, bytes_per_second // STEPS_PER_SECOND)
        self._interval_s = interval_s
        self._allowance = TokenBucket(bytes_per_second)
        self._tasks = Tasks()

    def start(self) -> None:
        if self._allowance.rate:
            self._tasks.repeat(partial(self._pass, self._scrub_the_rest), "scrubber")
            for directory in self._replicas.directories:
                scrub = partial(self._scrub_directory, directory)
                self._tasks.repeat(partial(self._pass, scrub), f"scrubber of {directory.path}")

    async def close(self) -> None:
        await self._tasks.close()

    async def scrub(self) -> None:
        """Run one pass over everything."""
        for directory in self._replicas.directories:
            await self._scrub_directory(directory)
        await self._scrub_the_rest()

    async def _pass(self, scrub: Callable[[], Awaitable[None]]) -> None:
        now = asyncio.get_running_loop().time
        began = now()
        try:
            await scrub()
        except (OSError, StorageError) as error:
            # An error of the files beside the logs. The next pass reads them again.
            _events.warning("scrub.postponed", error=str(error))
        await asyncio.sleep(max(self._interval_s - (now() - began), PAUSE_S))

    async def _scrub_directory(self, directory: LogDirectory) -> None:
        await self._scrub_flushed_offsets(directory)
        together: list[Partition] = []
        size = 0
        for count, partition in enumerate(list(self._replicas), 1):
            if count % PARTITIONS_PER_STEP == 0:
                await asyncio.sleep(0)
            if partition.directory is not directory or not _may_be_read(partition):
                continue
            together.append(partition)
            size += _size(partition)
            if size >= self._step_bytes:
                await self._scrub_partitions(directory, together)
                together, size = [], 0
        await self._scrub_partitions(directory, together)

    async def _scrub_partitions(self, directory: LogDirectory, partitions: Iterable[Partition]) -> None:
        views = [(partition, view_of(partition.log)) for partition in partitions if _may_be_read(partition)]
        proofs = _proofs_of(views)
        is_through = not views
        while not is_through:
            found, size, is_through = await directory.run_blocking(_advance, proofs, self._step_bytes)
            for partition, proof in found:
                if _may_be_read(partition):
                    self._handle_finding(partition, proof)
            await self._keep_to_the_rate(size)

    def _handle_finding(self, partition: Partition, found: Found) -> None:
        match found:
            case DamagedLog():
                partition.report_damage(found)
            case Undecodable():
                self._found_undecodable(partition, found)
            case _:
                unpacked(partition.log, found)

    async def _keep_to_the_rate(self, size: int) -> None:
        """Sleep to keep the rate."""
        now = asyncio.get_running_loop().time()
        self._allowance.charge(size, now)
        await asyncio.sleep(self._allowance.debt_s(now))

    async def _scrub_flushed_offsets(self, directory: LogDirectory) -> None:
        for damaged in () if directory.is_offline else directory.flushed_offsets.damaged_entries():
            for place, damage in damaged.items():
                partition = self._replicas.with_id(*place)
                if partition is not None:
                    partition.report_damage(damage)
            await asyncio.sleep(0)


def _proofs_of(views: Iterable[tuple[Partition, LogView]]) -> _Proofs:
    for partition, view in views:
        try:
            for proof in verify(view):
                yield partition, proof
        except StorageError as error:
            # Without resources the log is neither sound nor damaged, and the other logs are scrubbed.
            _events.warning("scrub.skipped", topic=partition.topic, partition=partition.index, error=str(error))


def _advance(proofs: _Proofs, step_bytes: int) -> tuple[list[tuple[Partition, Found]], int, bool]:
    """Verify about `step_bytes`, in a thread. Return the findings, the bytes to charge, and whether that was all."""
    found: list[tuple[Partition, Found]] = []
    size = charge = 0
    for partition, proof in proofs:
        if isinstance(proof, int):
            size += max(proof, FILE_BYTES // FILES_PER_LOG)
            charge += max(proof, FILE_BYTES)
        else:
            found.append((partition, proof))
        if size >= step_bytes:
            return found, charge, False
    return found, charge, True


def _size(partition: Partition) -> int:
    return FILE_BYTES + partition.log.size


def _may_be_read(partition: Partition) -> bool:
    return bool(partition.log.segments) and not partition.is_deleted and not partition.is_offline
