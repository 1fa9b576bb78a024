"""Batch filter of a round of the log cleaner: removes records that later ones of the same key have replaced.

The rules are Kafka's (`Cleaner`, `CleanedTransactionMetadata`, `MemoryRecords.filterTo`):

- A record stays if it is the last one of its key. A record without a key goes.
- A tombstone, and the marker of a transaction of which no data is left, go in two steps: the first round that finds
  them sets the batch's delete horizon, and a round after that time removes them.
- Data of aborted transactions goes at once.
- A batch without records stays while its last offset is needed: the last batch of a live producer, which has its
  sequence numbers, and the last batch of the round. A producer's last marker stays whole: it has the epoch of the
  coordinator that wrote it.

Offsets, producer fields and the codec of a batch stay as they are, and so do the records' bytes; gaps appear between
offsets. Only a delete horizon, which takes the place of the base timestamp, changes bytes of records: the deltas.
"""

from array import array
from collections.abc import Collection, Iterable

from cordwood.storage.aborted_index import AbortedRow
from cordwood.storage.batch import CODEC_MASK, DELETE_HORIZON, HEADER_BYTES, BatchHeader, Compression, peek
from cordwood.storage.compaction.aborted import ExpectedAborted
from cordwood.storage.compaction.offset_map import OffsetMap
from cordwood.storage.compaction.rebuilt import emptied, is_needed, rebuilt, unpacked, whole_batch_at
from cordwood.storage.compaction.rules import OTHER_KINDS, Rules
from cordwood.storage.control import read_marker
from cordwood.storage.disk import Bytes
from cordwood.storage.producers import NO_MARKER, Producers
from cordwood.storage.records import compress, decode, encode

_HORIZON_MAX_MS = 1 << 62
"""`delete.retention.ms` may be 2⁶³-1."""
_NEVER_DUE_MS = -1
"""A time before every horizon."""


def needed_offsets(producers: Producers) -> set[int]:
    """Return the last offsets of the batches that stay even without records: each producer's last batch and marker."""
    needed = {known.batches[-1].end_offset - 1 for _, known in producers if known.batches}
    return needed | {known.marker_offset for _, known in producers if known.marker_offset != NO_MARKER}


class BatchFilter:
    """The second pass of a round, over all segments from the log's start on: one filter for all groups of segments."""

    def __init__(
        self,
        offsets: OffsetMap,
        *,
        end: int,
        now_ms: int,
        delete_retention_ms: int,
        needed: Collection[int],
        is_whole: bool = True,
    ) -> None:
        """Filter the records below `end`, which is `offsets.end` unless the round is to end earlier.

        Records at or above `end` stay as they are. The batch that ends at `end` stays, without records if need be.
        Unless the log `is_whole`, tombstones and markers stay: the part that is not here may have records that they
        delete or end.
        """
        horizon_ms = min(now_ms + delete_retention_ms, _HORIZON_MAX_MS)
        due_ms = now_ms if is_whole else _NEVER_DUE_MS
        self._rules = Rules(end, due_ms, horizon_ms, array("q", sorted({*needed, end - 1})))
        self._is_whole = is_whole
        self._table, self._aborted = offsets.table, ExpectedAborted()
        self._in_transaction: set[int] = set()
        """Producers with data since their last marker."""
        self._rows: list[AbortedRow] = []
        self.records_read = self.records_kept = 0

    def expect(self, aborted: Iterable[AbortedRow]) -> None:
        """Add aborted transactions that overlap the batches to come: like `OffsetMapBuilder.expect`."""
        self._aborted.expect(aborted)

    def filter(self, data: Bytes) -> bytes:
        """Return the retained records of whole batches, which the caller has verified: batches with gaps, perhaps none.

        Successive calls have successive batches, in order of offsets, from the log's start on. A batch may become
        larger than `max.message.bytes`. Raises CorruptBatch; then the round has to be aborted.
        """
        out: list[Bytes] = []
        position = 0
        while position < len(data):
            header, batch = whole_batch_at(data, position)
            if not header.attributes & OTHER_KINDS:
                position, content, read, kept = self._table.sift(data, position, self._rules)
                self.records_read += read
                self.records_kept += kept
                out.append(content)
                continue
            position += header.size
            out.append(self._marker(header, batch) if header.is_control else self._data(header, batch))
        return b"".join(out)

    def take_aborted(self) -> list[AbortedRow]:
        """Return the aborted transactions whose markers were seen since the last call, and which still had data.

        They are the rows of a rewritten segment's aborted index.
        """
        rows, self._rows = self._rows, []
        return rows

    def _data(self, header: BatchHeader, batch: Bytes) -> Bytes:
        """Return the retained records of a batch of a transaction, or of a compressed one."""
        rules = self._rules
        is_aborted = self._aborted.has(header)
        if header.is_transactional:
            # Also if it goes now, or has no records: its marker stays at least until the next round.
            self._in_transaction.add(header.producer_id)
        self.records_read += header.record_count
        if header.base_offset >= rules.end:
            self.records_kept += header.record_count
            return batch
        if is_aborted:
            return emptied(header) if is_needed(header, rules.needed) else b""
        codec = Compression(header.attributes & CODEC_MASK)
        plain = unpacked(header, batch) if codec else batch
        sifted = self._table.sift_batch(plain, rules)
        self.records_kept += sifted.records_kept
        if not codec or not sifted.records_kept:
            return sifted.content
        if sifted.content == plain:
            return batch
        changed = peek(sifted.content)
        content = compress(codec, memoryview(sifted.content)[HEADER_BYTES:])
        return rebuilt(changed._replace(attributes=changed.attributes | codec), content)

    def _marker(self, header: BatchHeader, batch: Bytes) -> Bytes:
        """Return a control batch as it stays, or nothing."""
        rules = self._rules
        row = self._aborted.ended(header)
        has_data = header.producer_id in self._in_transaction
        self._in_transaction.discard(header.producer_id)
        if row is not None and (has_data or not self._is_whole or header.base_offset >= rules.end):
            self._rows.append(row)
        if has_data or header.end > rules.end or header.record_count != 1 or read_marker(batch) is None:
            return batch
        if not header.attributes & DELETE_HORIZON:
            return _with_horizon(header, batch, rules.horizon_ms)
        is_over = header.base_timestamp <= rules.now_ms and not is_needed(header, rules.needed)
        return b"" if is_over else batch


def _with_horizon(header: BatchHeader, batch: Bytes, horizon_ms: int) -> bytes:
    """Return a marker with the time from which on it may go."""
    return encode(
        decode(bytes(batch)),
        base_offset=header.base_offset,
        leader_epoch=header.leader_epoch,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        attributes=header.attributes | DELETE_HORIZON,
        base_timestamp=horizon_ms,
    )
