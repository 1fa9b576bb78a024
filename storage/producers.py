"""Producer state of a log: epoch and last ten batches of each idempotent producer (KIP-98, KIP-360).

With this state a duplicate batch is recognised, and a gap is refused, across restarts and failovers (rule 9).
"""

import heapq
import struct
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from cordwood.storage.batch import BatchHeader
from cordwood.storage.errors import OutOfOrderSequence, StaleProducerEpoch

BATCHES_REMEMBERED = 10
"""Batches per producer. A producer has at most five requests in flight, so a batch whose response was lost is among the
last five; a truncation removes at most those five, and leaves the five before them."""

SEQUENCE_MAX = 0x7FFFFFFF

FIRST_OF_ONE_BATCH = 1 << 62
"""First of the producer ids that are never allocated: each stands for a single batch that may be sent again."""
ONE_BATCH_PRODUCERS_MAX = 5000
"""Limit of such producers, the latest ones: about 1 KB of memory each."""
PRODUCERS_MAX = 10_000
"""Limit of the producers of a log, about 1 KB of memory each. Past it the oldest tenth is removed together."""
_PRODUCER = struct.Struct(">qhqB")
_BATCH = struct.Struct(">iiqq")


def is_later(sequence: int, than: int) -> bool:
    """Return whether a sequence number comes after another one. Sequence numbers wrap around."""
    return 0 < (sequence - than) & SEQUENCE_MAX <= SEQUENCE_MAX // 2


class KnownBatch(NamedTuple):
    """A batch in the log by its producer's sequence numbers. `last_sequence` is inclusive, `end_offset` is not."""

    first_sequence: int
    last_sequence: int
    base_offset: int
    end_offset: int


@dataclass(slots=True)
class ProducerStateEntry:
    """State of one producer after its last batches."""

    epoch: int
    last_timestamp: int
    """Time of its last append to the log (milliseconds), for expiry."""
    batches: deque[KnownBatch] = field(default_factory=lambda: deque(maxlen=BATCHES_REMEMBERED))

    @property
    def next_sequence(self) -> int:
        return (self.batches[-1].last_sequence + 1) & SEQUENCE_MAX


class Producers:
    """Idempotent producers of one log."""

    __slots__ = ("_by_id", "_of_one_batch")

    def __init__(self) -> None:
        self._by_id: dict[int, ProducerStateEntry] = {}
        self._of_one_batch: dict[int, None] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[tuple[int, ProducerStateEntry]]:
        return iter(self._by_id.items())

    def check(self, header: BatchHeader) -> KnownBatch | None:
        """Check whether the batch may be appended. Return the batch that it duplicates, if any.

        Raises StaleProducerEpoch for a fenced producer, OutOfOrderSequence for a gap. A producer that the log does not
        know (any more) may begin at any sequence number (KIP-360).
        """
        known = self._by_id.get(header.producer_id)
        if known is None:
            return None
        if header.producer_epoch < known.epoch:
            raise StaleProducerEpoch(
                f"producer {header.producer_id} has epoch {known.epoch}, but the batch has {header.producer_epoch}"
            )
        if header.producer_epoch > known.epoch:
            if header.base_sequence != 0:
                raise OutOfOrderSequence(f"a new epoch of producer {header.producer_id} must begin at sequence 0")
            return None
        if not known.batches or header.base_sequence == known.next_sequence:
            return None
        for batch in known.batches:
            if batch.first_sequence == header.base_sequence and batch.last_sequence == header.last_sequence:
                return batch
        raise OutOfOrderSequence(
            f"producer {header.producer_id} sent sequence {header.base_sequence}, but {known.next_sequence} was"
            " expected"
        )

    def next_sequence(self, producer_id: int, epoch: int) -> int | None:
        """Return the sequence number after the producer's last batch of that epoch; None if the log has none."""
        known = self._by_id.get(producer_id)
        return None if known is None or not known.batches or known.epoch != epoch else known.next_sequence

    def appended(self, header: BatchHeader, base_offset: int, end_offset: int, timestamp: int) -> None:
        """Record that the batch is in the log, from `base_offset` to `end_offset`."""
        known = self._by_id.get(header.producer_id)
        if known is None or header.producer_epoch > known.epoch:
            known = self._by_id[header.producer_id] = ProducerStateEntry(header.producer_epoch, timestamp)
            if header.producer_id >= FIRST_OF_ONE_BATCH:
                self._remember_of_one_batch(header.producer_id)
            if len(self._by_id) > PRODUCERS_MAX:
                self._forget_oldest(header.producer_id)
        if timestamp > known.last_timestamp:
            known.last_timestamp = timestamp
        if header.base_sequence >= 0:
            known.batches.append(KnownBatch(header.base_sequence, header.last_sequence, base_offset, end_offset))

    def expire(self, now_ms: int, expiry_ms: int) -> None:
        """Remove producers that have sent nothing for `producer.id.expiration.ms`."""
        expired = [pid for pid, producer in self._by_id.items() if now_ms - producer.last_timestamp > expiry_ms]
        for producer_id in expired:
            del self._by_id[producer_id]
        if expired:
            self._recall_of_one_batch()

    def truncate_end(self, end: int) -> None:
        """Remove batches that end above `end`, and producers without others: their next batch may have any sequence."""
        for producer_id, producer in list(self._by_id.items()):
            while producer.batches and producer.batches[-1].end_offset > end:
                producer.batches.pop()
            if not producer.batches:
                del self._by_id[producer_id]
        self._recall_of_one_batch()

    def encode(self, end: int) -> bytes:
        """Return a snapshot as of offset `end`: per producer id, epoch, last timestamp and batches below that offset.

        Recovery finds later batches by reading them. In the snapshot, a lost one would be acknowledged as a duplicate.
        """
        out = bytearray()
        for producer_id, producer in self._by_id.items():
            batches = [batch for batch in producer.batches if batch.end_offset <= end]
            if batches or not producer.batches:
                out += _PRODUCER.pack(producer_id, producer.epoch, producer.last_timestamp, len(batches))
                out += b"".join(_BATCH.pack(*batch) for batch in batches)
        return bytes(out)

    @classmethod
    def decode(cls, content: bytes) -> "Producers":
        producers, position = cls(), 0
        while position < len(content):
            producer_id, epoch, timestamp, count = _PRODUCER.unpack_from(content, position)
            position += _PRODUCER.size
            known = producers._by_id[producer_id] = ProducerStateEntry(epoch, timestamp)
            for _ in range(count):
                known.batches.append(KnownBatch._make(_BATCH.unpack_from(content, position)))
                position += _BATCH.size
        producers._recall_of_one_batch()
        return producers

    def _remember_of_one_batch(self, producer_id: int) -> None:
        """Add a producer of one batch, and evict the oldest one: the same one on every replica."""
        self._of_one_batch[producer_id] = None
        if len(self._of_one_batch) > ONE_BATCH_PRODUCERS_MAX:
            first = next(iter(self._of_one_batch))
            del self._of_one_batch[first], self._by_id[first]

    def _forget_oldest(self, newest: int) -> None:
        """Remove the producers whose last batch is the oldest in the log: the same ones on every replica."""

        def end(producer_id: int) -> int:
            batches = self._by_id[producer_id].batches
            return batches[-1].end_offset if batches else -1

        others = (producer_id for producer_id in self._by_id if producer_id != newest)
        for producer_id in heapq.nsmallest(PRODUCERS_MAX // 10, others, key=end):
            del self._by_id[producer_id]
        self._recall_of_one_batch()

    def _recall_of_one_batch(self) -> None:
        """Collect the producers of one batch again; all producers are kept in order of arrival."""
        self._of_one_batch = {known: None for known in self._by_id if known >= FIRST_OF_ONE_BATCH}
