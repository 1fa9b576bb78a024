"""Batch filter of a round of the log cleaner: removes records that later ones of the same key have replaced.

The rules are Kafka's (`Cleaner`, `CleanedTransactionMetadata`, `MemoryRecords.filterTo`):

- A record stays if it is the last one of its key. A record without a key goes.
- A tombstone, and the marker of a transaction of which no data is left, go in two steps: the first round that finds
  them sets the batch's delete horizon, and a round after that time removes them.
- Data of aborted transactions goes at once.
- A batch without records stays while its last offset is needed: the last batch of a live producer, which has its
  sequence numbers, and the last batch of the round.

Offsets, producer fields and the codec of a batch stay as they are, and so do the records' bytes; gaps appear between
offsets. Only a delete horizon, which takes the place of the base timestamp, changes bytes of records: the deltas.
"""

from collections.abc import Collection, Iterable

from cordwood.storage.aborted_index import AbortedRow
from cordwood.storage.compaction.offset_map import OffsetMap
from cordwood.storage.disk import Bytes
from cordwood.storage.producers import Producers


def needed_offsets(producers: Producers) -> set[int]:
    """Return the last offsets of the batches that stay even without records: each producer's last batch and marker."""
    raise NotImplementedError


class BatchFilter:
    """The second pass of a round, over all segments from the log's start on: one filter for all groups of segments."""

    records_read: int
    records_kept: int

    def __init__(
        self, offsets: OffsetMap, *, end: int, now_ms: int, delete_retention_ms: int, needed: Collection[int]
    ) -> None:
        """Filter the records below `end`, which is `offsets.end` unless the round is to end earlier.

        What is at or above `end` stays as it is. The batch that ends at `end` stays, without records if need be.
        """
        raise NotImplementedError

    def expect(self, aborted: Iterable[AbortedRow]) -> None:
        """Add aborted transactions that overlap the batches to come: like `OffsetMapBuilder.expect`."""
        raise NotImplementedError

    def filter(self, data: Bytes) -> bytes:
        """Return what is left of whole batches, which the caller has verified: batches with gaps, perhaps none.

        Successive calls have successive batches, in order of offsets, without a gap in the segments. A batch may become
        larger than `max.message.bytes`. Raises CorruptBatch; then the round has to be given up.
        """
        raise NotImplementedError

    def take_aborted(self) -> list[AbortedRow]:
        """Return the aborted transactions whose markers were seen since the last call, and whose data was not gone.

        They are the rows of a rewritten segment's aborted index.
        """
        raise NotImplementedError
