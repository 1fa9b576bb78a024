"""What a log remembers of its idempotent producers: their epoch and their last five batches (KIP-98, KIP-360).

With them a batch sent again is recognised, and a gap is refused, across restarts and failover (rule 9).
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
"""A producer has at most five requests on their way, so an answer that it lost is among the last five; and a truncation
takes no more than those five, and leaves the last ones before them."""

SEQUENCE_MAX = 0x7FFFFFFF

FIRST_OF_ONE_BATCH = 1 << 62
"""Producer ids from here on are never handed out: each stands for a single batch that somebody may send again."""
ONE_BATCH_PRODUCERS_MAX = 5000
"""So many of them are remembered, the latest: about 1 KB of memory each."""
PRODUCERS_MAX = 10_000
"""So many producers of a log are remembered, about 1 KB of memory each. The oldest tenth goes at once."""
_PRODUCER = struct.Struct(">qhqB")
_BATCH = struct.Struct(">iiqq")


def is_later(sequence: int, than: int) -> bool:
    """Whether a sequence number comes after another one, where they wrap around."""
    return 0 < (sequence - than) & SEQUENCE_MAX <= SEQUENCE_MAX // 2


class KnownBatch(NamedTuple):
    """A batch in the log, by its producer's numbers. `last_sequence` belongs to it, `end_offset` does not."""

    first_sequence: int
    last_sequence: int
    base_offset: int
    end_offset: int


@dataclass(slots=True)
class Producer:
    """One producer as its last batches left it."""

    epoch: int
    last_timestamp: int
    """When the log last took a batch of it (milliseconds), for expiry."""
    batches: deque[KnownBatch] = field(default_factory=lambda: deque(maxlen=BATCHES_REMEMBERED))

    @property
    def next_sequence(self) -> int:
        return (self.batches[-1].last_sequence + 1) & SEQUENCE_MAX


class Producers:
    """The idempotent producers of one log."""

    __slots__ = ("_by_id", "_of_one_batch")

    def __init__(self) -> None:
        self._by_id: dict[int, Producer] = {}
        self._of_one_batch: dict[int, None] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[tuple[int, Producer]]:
        return iter(self._by_id.items())

    def check(self, header: BatchHeader) -> KnownBatch | None:
        """Whether the batch may be appended. Returns the batch it repeats, if it was appended before.

        Raises StaleProducerEpoch for a producer that was replaced, OutOfOrderSequence for a gap. A producer that the
        log does not know (any more) may begin at any sequence number (KIP-360).
        """
        known = self._by_id.get(header.producer_id)
        if known is None:
            return None
        if header.producer_epoch < known.epoch:
            raise StaleProducerEpoch(
                f"producer {header.producer_id} has epoch {known.epoch}, the batch {header.producer_epoch}"
            )
        if header.producer_epoch > known.epoch:
            if header.base_sequence != 0:
                raise OutOfOrderSequence(f"a new epoch of producer {header.producer_id} begins at sequence 0")
            return None
        if not known.batches or header.base_sequence == known.next_sequence:
            return None
        for batch in known.batches:
            if batch.first_sequence == header.base_sequence and batch.last_sequence == header.last_sequence:
                return batch
        raise OutOfOrderSequence(
            f"producer {header.producer_id} sent sequence {header.base_sequence} where {known.next_sequence} is due"
        )

    def next_sequence(self, producer_id: int, epoch: int) -> int | None:
        """The sequence number behind the producer's last batch of that epoch; None where the log has none."""
        known = self._by_id.get(producer_id)
        return None if known is None or not known.batches or known.epoch != epoch else known.next_sequence

    def appended(self, header: BatchHeader, base_offset: int, end_offset: int, timestamp: int) -> None:
        """The batch is in the log, from `base_offset` to `end_offset`."""
        known = self._by_id.get(header.producer_id)
        if known is None or header.producer_epoch > known.epoch:
            known = self._by_id[header.producer_id] = Producer(header.producer_epoch, timestamp)
            if header.producer_id >= FIRST_OF_ONE_BATCH:
                self._remember_of_one_batch(header.producer_id)
            if len(self._by_id) > PRODUCERS_MAX:
                self._forget_oldest(header.producer_id)
        if timestamp > known.last_timestamp:
            known.last_timestamp = timestamp
        if header.base_sequence >= 0:
            known.batches.append(KnownBatch(header.base_sequence, header.last_sequence, base_offset, end_offset))

    def expire(self, now_ms: int, expiry_ms: int) -> None:
        """Forget producers that have sent nothing for `producer.id.expiration.ms`."""
        gone = [pid for pid, producer in self._by_id.items() if now_ms - producer.last_timestamp > expiry_ms]
        for producer_id in gone:
            del self._by_id[producer_id]
        if gone:
            self._recall_of_one_batch()

    def truncate_end(self, end: int) -> None:
        """Forget the batches behind `end`, and whoever has no others: the next one of theirs is taken as it comes."""
        for producer_id, producer in list(self._by_id.items()):
            while producer.batches and producer.batches[-1].end_offset > end:
                producer.batches.pop()
            if not producer.batches:
                del self._by_id[producer_id]
        self._recall_of_one_batch()

    def encode(self, end: int) -> bytes:
        """A snapshot as of offset `end`: per producer id, epoch, last timestamp and batches below that offset.

        Batches above are found again by reading them; remembered without them, they would be acknowledged as repeats.
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
            known = producers._by_id[producer_id] = Producer(epoch, timestamp)
            for _ in range(count):
                known.batches.append(KnownBatch._make(_BATCH.unpack_from(content, position)))
                position += _BATCH.size
        producers._recall_of_one_batch()
        return producers

    def _remember_of_one_batch(self, producer_id: int) -> None:
        """The first to have come is the first to be forgotten, on every replica alike."""
        self._of_one_batch[producer_id] = None
        if len(self._of_one_batch) > ONE_BATCH_PRODUCERS_MAX:
            first = next(iter(self._of_one_batch))
            del self._of_one_batch[first], self._by_id[first]

    def _forget_oldest(self, newest: int) -> None:
        """Those whose last batch lies furthest back in the log, on every replica alike."""

        def end(producer_id: int) -> int:
            batches = self._by_id[producer_id].batches
            return batches[-1].end_offset if batches else -1

        others = (producer_id for producer_id in self._by_id if producer_id != newest)
        for producer_id in heapq.nsmallest(PRODUCERS_MAX // 10, others, key=end):
            del self._by_id[producer_id]
        self._recall_of_one_batch()

    def _recall_of_one_batch(self) -> None:
        """Producers are kept in the order in which they came."""
        self._of_one_batch = {known: None for known in self._by_id if known >= FIRST_OF_ONE_BATCH}
