"""Refetches: damaged segments of one broker, repaired in place from other replicas as soon as one can be asked."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import structlog

from cordwood.cluster.repairs.damage import DamageRegister
from cordwood.replication.file_removal import FileRemoval
from cordwood.replication.log_repair import is_deleted, quarantine_segment, remove_foreign_segment
from cordwood.replication.partition import Partition
from cordwood.replication.range_reads import RangeReader, RangeUnavailable
from cordwood.replication.segment_refetch import refetch
from cordwood.replication.tasks import Tasks
from cordwood.storage.errors import DamagedLog, ForeignSegment, StorageError
from cordwood.storage.scrub import segment_with

AT_ONCE_MAX = 4
"""Largest number of partitions repaired at the same time: each takes a thread, and the disk."""
REST_S = 2.0
REST_MAX_S = 60.0
"""Seconds between two tries: doubled after each failure, up to the maximum."""
TRIES_IN_VAIN_MAX = 3
"""Failed tries after which a segment with uncommitted records is left damaged: no replica may have those records."""

_events = structlog.get_logger("repairs")


@dataclass(slots=True)
class _Pending:
    """Damage of one replica, and the failed tries to repair it."""

    damage: list[DamagedLog] = field(default_factory=list)
    tries: int = 0
    not_before: float = 0.0
    copied: set[str] = field(default_factory=set)
    """Segments of which the quarantine has a copy."""


class Refetches:
    """Repairs in place. Call `look` regularly while damage is pending."""

    def __init__(
        self,
        sources_of: Callable[[Partition], Sequence[int]],
        reader: Callable[[], RangeReader],
        file_removal: FileRemoval,
        register: DamageRegister,
        give_up: Callable[[Partition, DamagedLog], None],
        tasks: Tasks,
    ) -> None:
        """`sources_of` returns the brokers to fetch from. `give_up` takes damage that cannot be repaired in place."""
        self._sources_of, self._reader, self._file_removal = sources_of, reader, file_removal
        self._register, self._give_up, self._tasks = register, give_up, tasks
        self._pending: dict[Partition, _Pending] = {}
        self._running: set[Partition] = set()

    def __bool__(self) -> bool:
        return bool(self._pending)

    def add(self, partition: Partition, damage: DamagedLog) -> None:
        """Queue damage that is noted in the register."""
        pending = self._pending.setdefault(partition, _Pending())
        if all((known.path, known.position) != (damage.path, damage.position) for known in pending.damage):
            pending.damage.append(damage)
        pending.not_before = 0.0

    def look(self) -> None:
        """Start the repairs that are possible now."""
        now = asyncio.get_running_loop().time()
        for partition, pending in list(self._pending.items()):
            if partition in self._running:
                continue
            if partition.is_deleted:
                self._finish(partition, pending, pending.damage)
                continue
            # Where no other replica is, this is the only end of it.
            gone = [damage for damage in pending.damage if is_deleted(partition.log, damage)]
            self._finish(partition, pending, gone)
            if not pending.damage:
                continue
            if len(self._running) < AT_ONCE_MAX and now >= pending.not_before and not partition.is_offline:
                self._begin(partition, pending)

    def _begin(self, partition: Partition, pending: _Pending) -> None:
        sources = self._sources_of(partition)
        if sources or all(isinstance(damage, ForeignSegment) for damage in pending.damage):
            self._running.add(partition)
            self._tasks.spawn(self._repair(partition, pending, sources))

    async def _repair(self, partition: Partition, pending: _Pending, sources: Sequence[int]) -> None:
        """Repair the damaged segments one by one. The failure of one does not stop the next."""
        try:
            async with self._reader() as reader:
                # The last one first: where a later one may have lost records, other replicas must be compacted.
                for stem in sorted(set(map(stem_of, pending.damage)), reverse=True):
                    await self._repair_segment(partition, pending, stem, sources, reader)
        finally:
            self._running.discard(partition)
        if pending.damage:
            pending.tries += 1
            rest_s = min(REST_S * 2 ** (pending.tries - 1), REST_MAX_S)
            pending.not_before = asyncio.get_running_loop().time() + rest_s
            self._give_up_uncommitted(partition, pending)

    async def _repair_segment(
        self, partition: Partition, pending: _Pending, stem: str, sources: Sequence[int], reader: RangeReader
    ) -> None:
        found = [damage for damage in pending.damage if stem_of(damage) == stem]
        try:
            for damage in found:
                self._register.begun(damage)
            if await self._restore(partition, pending, found[0], sources, reader):
                # Damage found in this segment meanwhile is repaired too.
                self._finish(partition, pending, [damage for damage in pending.damage if stem_of(damage) == stem])
        except (RangeUnavailable, StorageError, OSError) as error:
            _events.warning("segment.not_refetched", path=stem, error=str(error))
        except Exception as error:
            # Unexpected errors are retried too.
            _events.error("segment.not_refetched", path=stem, error=repr(error), exc_info=error)

    async def _restore(
        self,
        partition: Partition,
        pending: _Pending,
        damage: DamagedLog,
        sources: Sequence[int],
        reader: RangeReader,
    ) -> bool:
        """Return True if the damage is repaired. Raises RangeUnavailable, StorageError, OSError."""
        if stem_of(damage) not in pending.copied:
            place = await quarantine_segment(partition, damage)
            pending.copied.add(stem_of(damage))
            if place is not None:
                _events.warning("segment.quarantined", path=damage.path, copy=place)
        if isinstance(damage, ForeignSegment):
            await remove_foreign_segment(partition, damage)
            return True
        segment = segment_with(partition.log, damage.path)
        if segment is None:
            # The segment was truncated or removed, and its damage with it.
            return True
        if not await refetch(partition, segment, sources, reader):
            return False
        await self._file_removal.commit_swap(partition, [segment])
        _events.info("segment.refetched", path=damage.path)
        return True

    def _give_up_uncommitted(self, partition: Partition, pending: _Pending) -> None:
        if pending.tries < TRIES_IN_VAIN_MAX:
            return
        for damage in list(pending.damage):
            segment = segment_with(partition.log, damage.path)
            if segment is not None and segment.end_offset > partition.high_watermark:
                pending.damage.remove(damage)
                self._give_up(partition, damage)
        self._finish(partition, pending, [])

    def _finish(self, partition: Partition, pending: _Pending, damage: Sequence[DamagedLog]) -> None:
        for done in list(damage):
            pending.damage.remove(done)
            self._register.done(done)
        if not pending.damage and self._pending.get(partition) is pending:
            del self._pending[partition]


def stem_of(damage: DamagedLog) -> str:
    """Return the path without its suffix: a segment and its index have the same."""
    return damage.path.rpartition(".")[0]
