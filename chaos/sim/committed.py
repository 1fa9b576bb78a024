"""The committed batches of one partition, as first observed on any replica: they never change (rules 2 and 9).

In a compacted log they may become fewer, and their records too, but no key loses its newest value.
"""

from collections.abc import Iterator

from cordwood.chaos.compacted import CompactedContents, losses
from cordwood.chaos.sim.disk import SimulatedDisk
from cordwood.chaos.sim.raw import Cursor, batches, batches_with_headers
from cordwood.replication.partition import Partition
from cordwood.storage.batch import BatchHeader
from cordwood.storage.errors import CorruptBatch
from cordwood.storage.types import NO_PRODUCER_ID

Batch = tuple[int, int, int, int]
"""Base offset, end, checksum and leader epoch."""


class CommittedBatches:
    """Batches by base offset, and the position up to which each replica was compared."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.end = 0
        """The largest high watermark of any leader."""
        self._batches: dict[int, Batch] = {}
        self._known_end = 0
        self._gaps: list[range] = []
        """Offsets below the log start of the replica that was compared first. Another may still have them."""
        self._sequences: dict[tuple[int, int], int] = {}
        self._cursors: dict[Partition, Cursor] = {}
        self._contents = CompactedContents()
        """Of a compacted log, as far as all of it was observed."""
        self._rewritten: dict[Partition, tuple[str, ...]] = {}
        """By replica: the files of its log when it was last read whole."""

    def compare(self, broker_id: int, partition: Partition, disk: SimulatedDisk) -> Iterator[tuple[str, str]]:
        """Compare what a replica has committed since the last call with the known batches."""
        watermark, is_compacted = partition.high_watermark, partition.log.config.compacted
        cursor = self._cursors.get(partition)
        if cursor is None:
            cursor = self._cursors[partition] = Cursor()
        if cursor.offset < watermark <= partition.log.log_end:
            try:
                for header, batch in batches_with_headers(disk, partition, cursor, watermark):
                    known_end = self._known_end
                    yield from self._compare_batch(
                        broker_id, header, is_compacted=is_compacted, log_start=partition.log.log_start
                    )
                    if is_compacted and self._known_end > known_end:
                        self._contents.take(batch)
                if is_compacted:
                    yield from self._compare_keys(broker_id, partition, disk)
            except (CorruptBatch, OSError):
                # Damage, which may not be detected yet. The checks of consumers show whether it is served.
                cursor.lose_place()
        if partition.is_leader:
            self.end = max(self.end, watermark)

    def has_compared(self, partition: Partition) -> bool:
        """Return whether all committed batches of a replica were compared."""
        cursor = self._cursors.get(partition)
        return cursor is not None and cursor.offset >= min(partition.high_watermark, partition.log.log_end)

    def _compare_keys(self, broker_id: int, partition: Partition, disk: SimulatedDisk) -> Iterator[tuple[str, str]]:
        """Compare all that is left of a log with what it had, if the log cleaner has rewritten a part of it."""
        log = partition.log
        files = tuple([segment.path for segment in log.segments])
        if files == self._rewritten.get(partition) or not log.clean_end:
            return
        start, end = log.log_start, min(partition.high_watermark, self._known_end)
        left = CompactedContents(batches(disk, partition, Cursor(start), end))
        self._rewritten[partition] = files
        for loss in losses(self._contents, left, start, end):
            yield "rule-2", f"{self._name} on broker {broker_id} was compacted, and {loss}"

    def _compare_batch(
        self, broker_id: int, header: BatchHeader, *, is_compacted: bool = False, log_start: int = 0
    ) -> Iterator[tuple[str, str]]:
        batch = (header.base_offset, header.end, header.crc, header.leader_epoch)
        known = self._batches.get(header.base_offset)
        if header.end <= log_start and known != batch:
            # Deleted, and in no log any more. A replica that was not in sync may have had another batch there: leaders
            # know epochs from their log start on, so that it is not truncated below that (KIP-101).
            return
        if is_compacted and header.base_offset < self._known_end:
            if not header.record_count and (known is None or header.producer_id == NO_PRODUCER_ID):
                # A batch without records that closes a rewritten segment. It may begin where a removed batch began.
                return
            # Its records are compared with the whole log.
            batch = batch if known is None else (batch[0], batch[1], known[2], batch[3])
        if header.base_offset < self._known_end and known != batch:
            if known is not None or not any(header.base_offset in gap for gap in self._gaps):
                yield "rule-2", f"{self._name}: {known} was committed, and broker {broker_id} has {batch} there"
            else:
                self._batches[header.base_offset] = batch
        if header.base_offset < self._known_end:
            return
        if header.base_offset > self._known_end:
            self._gaps.append(range(self._known_end, header.base_offset))
            self._sequences.clear()
        self._batches[header.base_offset] = batch
        self._known_end = header.end
        yield from self._follow_sequence(header)

    def _follow_sequence(self, header: BatchHeader) -> Iterator[tuple[str, str]]:
        """Rule 9, in log order."""
        if header.producer_id == NO_PRODUCER_ID or header.base_sequence < 0:
            return
        key = (header.producer_id, header.producer_epoch)
        # After a gap, a producer may have any sequence.
        due = self._sequences.get(key, header.base_sequence if self._gaps else 0)
        if header.base_sequence != due:
            sentence = (
                f"{self._name}: producer {header.producer_id} has sequence {header.base_sequence} at offset"
                f" {header.base_offset}, but {due} was expected"
            )
            yield "rule-9", sentence
        self._sequences[key] = header.last_sequence + 1
