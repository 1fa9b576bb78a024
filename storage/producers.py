"""Producer state of a log: epoch, last ten batches and transaction of each idempotent producer (KIP-98, KIP-360).

With this state a duplicate batch is recognised, and a gap is refused, across restarts and failovers (rule 9). The rules
of transactions and their markers are Kafka's (`ProducerAppendInfo`, `ProducerStateManager`).
"""

import heapq
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from cordwood.storage.batch import TRANSACTIONAL, BatchHeader
from cordwood.storage.control import EndTransactionMarker
from cordwood.storage.errors import (
    InvalidTransactionState,
    OutOfOrderSequence,
    StaleProducerEpoch,
    TransactionCoordinatorFenced,
)
from cordwood.storage.transactions import NO_TRANSACTION, LogTransactions, ReplacedEntry
from cordwood.storage.types import ProducerIdAndEpoch

BATCHES_REMEMBERED = 10
"""Batches per producer. A producer has at most five requests in flight, so a batch whose response was lost is among the
last five; a truncation removes at most those five, and leaves the five before them."""

SEQUENCE_MAX = 0x7FFFFFFF

FIRST_OF_ONE_BATCH = 1 << 62
"""First of the producer ids that are never allocated: each stands for a single batch that may be sent again."""
ONE_BATCH_PRODUCERS_MAX = 5000
"""Limit of such producers, the latest ones: some 300 bytes of memory each."""
PRODUCERS_MAX = 10_000
"""Limit of a log's producers without an ongoing transaction, at most some 600 bytes of memory each. Past it the oldest
tenth is removed together."""
NO_COORDINATOR_EPOCH = -1
NO_MARKER = -1
_PRODUCER = struct.Struct(">qhqB")
_BATCH = struct.Struct(">iiqq")
_IN_TRANSACTIONS = struct.Struct(">iqq")
_IS_IN_TRANSACTIONS = 0x80
"""Bit of the number of batches: coordinator epoch, marker offset and first offset of the transaction follow."""
_TRANSACTIONS = struct.Struct(">qqII")
_REPLACED = struct.Struct(">qqB")


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
    packed: bytes = b""
    """The last BATCHES_REMEMBERED, as a snapshot has them: 24 bytes each. There may be hundreds of thousands of open
    transactions, and a list with a tuple of numbers takes 180 bytes for the only batch of one."""
    coordinator_epoch: int = NO_COORDINATOR_EPOCH
    """Epoch of the transaction coordinator that wrote the last marker."""
    marker_offset: int = NO_MARKER
    """Offset of the last marker."""
    current_transaction_first_offset: int = NO_TRANSACTION

    @property
    def end(self) -> int:
        """End offset of its last batch or marker; 0 for none."""
        return max(_BATCH.unpack_from(self.packed, -_BATCH.size)[-1] if self.packed else 0, self.marker_offset + 1)

    @property
    def batches(self) -> list[KnownBatch]:
        return [KnownBatch._make(fields) for fields in _BATCH.iter_unpack(self.packed)]

    @property
    def is_in_transactions(self) -> bool:
        """Whether the log has a marker of the producer, or a part of its current transaction."""
        return self.marker_offset != NO_MARKER or self.current_transaction_first_offset != NO_TRANSACTION

    @property
    def next_sequence(self) -> int:
        """The sequence number after its last batch, which there must be."""
        last_sequence: int = _BATCH.unpack_from(self.packed, -_BATCH.size)[1]
        return (last_sequence + 1) & SEQUENCE_MAX

    def duplicate_of(self, header: BatchHeader) -> KnownBatch:
        """Return the batch with the same sequence numbers. Raises OutOfOrderSequence if it is not known."""
        for batch in self.batches:
            if batch.first_sequence == header.base_sequence and batch.last_sequence == header.last_sequence:
                return batch
        raise OutOfOrderSequence(
            f"producer {header.producer_id} sent sequence {header.base_sequence}, but {self.next_sequence} was expected"
        )


class ProducersSnapshot(NamedTuple):
    """Producers of a log as of offset `end`, by id. Nothing in it changes, so any thread may encode it."""

    end: int
    entries: Mapping[int, ProducerStateEntry | None]
    replaced: Sequence[ReplacedEntry]
    complete_from: int
    end_of_transactions: int

    def encode(self) -> bytes:
        """Return per producer id, epoch, last timestamp and batches below `end`.

        Recovery finds later batches by reading them. In the snapshot, a lost one would be acknowledged as a duplicate.
        """
        end, out = self.end, bytearray()
        for producer_id, known in self.entries.items():
            if known is not None and _is_known_at(end, known):
                out += _encoded(producer_id, known, end)
        head = _TRANSACTIONS.pack(self.complete_from, self.end_of_transactions, len(self.replaced), len(out))
        for offset, producer_id, former in self.replaced:
            out += _REPLACED.pack(offset, producer_id, former is not None)
            out += b"" if former is None else _encoded(producer_id, former, end)
        return head + bytes(out)


class Producers:
    """Idempotent producers of one log, and their transactions."""

    __slots__ = ("_by_id", "_frozen", "_of_one_batch", "transactions")

    def __init__(self) -> None:
        self._by_id: dict[int, ProducerStateEntry] = {}
        self._frozen: Mapping[int, ProducerStateEntry | None] | None = None
        """Entries of a snapshot that may still be encoded: a batch replaces such an entry and does not change it."""
        self._of_one_batch: dict[int, None] | None = None
        self.transactions = LogTransactions()

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[tuple[int, ProducerStateEntry]]:
        return iter(self._by_id.items())

    @property
    def oldest_in_transaction(self) -> ProducerStateEntry | None:
        """The producer of the oldest ongoing transaction; None if there is none."""
        producer_id = self.transactions.oldest_producer_id
        return None if producer_id is None else self._by_id[producer_id]

    def check(self, header: BatchHeader) -> KnownBatch | None:
        """Check whether the batch may be appended. Return the batch that it duplicates, if any.

        Raises StaleProducerEpoch for a fenced producer, OutOfOrderSequence for a gap, InvalidTransactionState for a
        batch outside of its producer's transaction. A producer of which the log knows no batch (any more) may begin at
        any sequence number (KIP-360). A batch without sequence numbers is the broker's own: only its epoch counts.
        """
        known = self._by_id.get(header.producer_id)
        if known is None:
            return None
        if header.producer_epoch < known.epoch:
            raise StaleProducerEpoch(
                f"producer {header.producer_id} has epoch {known.epoch}, but the batch has {header.producer_epoch}"
            )
        if header.producer_epoch > known.epoch:
            if header.base_sequence > 0:
                raise OutOfOrderSequence(f"a new epoch of producer {header.producer_id} must begin at sequence 0")
        elif known.packed and header.base_sequence != known.next_sequence and header.base_sequence >= 0:
            return known.duplicate_of(header)
        if known.current_transaction_first_offset >= 0 and not header.attributes & TRANSACTIONAL:
            raise InvalidTransactionState(f"producer {header.producer_id} has a transaction, and the batch is outside")
        return None

    def next_sequence(self, producer_id: int, epoch: int) -> int | None:
        """Return the sequence number after the producer's last batch of that epoch; None if the log has none."""
        known = self._by_id.get(producer_id)
        return None if known is None or not known.packed or known.epoch != epoch else known.next_sequence

    def check_marker(self, producer: ProducerIdAndEpoch, marker: EndTransactionMarker, *, is_v2: bool) -> None:
        """Check whether a leader may append the marker. Raises StaleProducerEpoch, TransactionCoordinatorFenced.

        In the second protocol (KIP-890) the coordinator raises the epoch before each marker. A marker of the same epoch
        is a repetition if no transaction is open; otherwise it belongs to another transaction.
        """
        known = self._by_id.get(producer.producer_id)
        if known is None:
            return
        has_ended = known.current_transaction_first_offset == NO_TRANSACTION
        if producer.epoch < known.epoch or (is_v2 and producer.epoch == known.epoch and not has_ended):
            raise StaleProducerEpoch(
                f"producer {producer.producer_id} has epoch {known.epoch}, but the marker has {producer.epoch}"
            )
        if marker.coordinator_epoch < known.coordinator_epoch:
            raise TransactionCoordinatorFenced(
                f"the last marker of producer {producer.producer_id} is of coordinator epoch {known.coordinator_epoch},"
                f" but this one is of {marker.coordinator_epoch}"
            )

    def has_begun(self, header: BatchHeader) -> bool:
        """Return whether the batch belongs to a transaction of which the log has a batch."""
        known = self._by_id.get(header.producer_id)
        return (
            known is not None
            and known.current_transaction_first_offset != NO_TRANSACTION
            and known.epoch == header.producer_epoch
        )

    def has_batches(self, producer_id: int) -> bool:
        """Return whether the log has a known batch of the producer's epoch."""
        known = self._by_id.get(producer_id)
        return known is not None and bool(known.packed)

    def appended(self, header: BatchHeader, base_offset: int, end_offset: int, timestamp: int) -> None:
        """Record that the batch, of no transaction, is in the log from `base_offset` to `end_offset`."""
        known = self._by_id.get(header.producer_id)
        if known is None or header.producer_epoch > known.epoch:
            known = self._begin_epoch(header, known, base_offset, timestamp)
        elif self._frozen and self._frozen.get(header.producer_id) is known:
            known = self._by_id[header.producer_id] = replace(known)
        if timestamp > known.last_timestamp:
            known.last_timestamp = timestamp
        if header.base_sequence >= 0:
            batch = _BATCH.pack(header.base_sequence, header.last_sequence, base_offset, end_offset)
            known.packed = (known.packed + batch)[-BATCHES_REMEMBERED * _BATCH.size :]

    def appended_in_transaction(self, header: BatchHeader, base_offset: int, end_offset: int, timestamp: int) -> None:
        """Record a batch as `appended` does: the batch begins or continues its producer's transaction."""
        self.appended(header, base_offset, end_offset, timestamp)
        known = self._by_id[header.producer_id]
        if known.current_transaction_first_offset == NO_TRANSACTION:
            known.current_transaction_first_offset = base_offset
            self.transactions.began(base_offset, header.producer_id)
        self.transactions.end = end_offset

    def ended(self, header: BatchHeader, offset: int, marker: EndTransactionMarker, timestamp: int) -> int:
        """Record that the marker is in the log. Return the first offset of the transaction; NO_TRANSACTION for none."""
        producer_id, transactions = header.producer_id, self.transactions
        former = self._by_id.get(producer_id)
        ended = ProducerStateEntry(
            header.producer_epoch, timestamp, coordinator_epoch=marker.coordinator_epoch, marker_offset=offset
        )
        if former is not None and former.epoch == header.producer_epoch:
            ended.packed = former.packed
        replaced = ReplacedEntry(offset, producer_id, former)
        transactions.replaces(replaced)
        transactions.end = offset + 1
        if replaced.first_offset != NO_TRANSACTION:
            transactions.decided(replaced.first_offset)
        self._set(producer_id, ended)
        return replaced.first_offset

    def _begin_epoch(
        self, header: BatchHeader, former: ProducerStateEntry | None, base_offset: int, timestamp: int
    ) -> ProducerStateEntry:
        known = ProducerStateEntry(header.producer_epoch, timestamp)
        if former is not None and former.is_in_transactions:
            self.transactions.replaces(ReplacedEntry(base_offset, header.producer_id, former))
            known.coordinator_epoch, known.marker_offset = former.coordinator_epoch, former.marker_offset
            known.current_transaction_first_offset = former.current_transaction_first_offset
        self._set(header.producer_id, known)
        return known

    def _set(self, producer_id: int, known: ProducerStateEntry) -> None:
        self._by_id[producer_id] = known
        if producer_id >= FIRST_OF_ONE_BATCH:
            self._remember_of_one_batch(producer_id)
        if len(self._by_id) - self.transactions.ongoing > PRODUCERS_MAX:
            self._forget_oldest(producer_id)

    def replace_all(self, again: "Producers") -> None:
        """Take the states of `again`, which has seen all batches, and of which nothing else is used from now on."""
        for producer_id, known in self:
            # The log knows when it took a batch, and the batch does not.
            if (entry := again._by_id.get(producer_id)) is not None:
                entry.last_timestamp = max(entry.last_timestamp, known.last_timestamp)
        self._by_id, self._of_one_batch, self._frozen = again._by_id, again._of_one_batch, None
        self.transactions = again.transactions

    def expire(self, now_ms: int, expiry_ms: int) -> None:
        """Remove producers that have sent nothing for `producer.id.expiration.ms`, and have no transaction."""
        expired = [
            producer_id
            for producer_id, producer in self._by_id.items()
            if now_ms - producer.last_timestamp > expiry_ms
            and producer.current_transaction_first_offset == NO_TRANSACTION
        ]
        for producer_id in expired:
            del self._by_id[producer_id]
        if expired:
            self._recall_of_one_batch()

    def truncate_end(self, end: int, again: "Producers | None" = None) -> None:
        """Remove batches that end above `end`, and producers without others: their next batch may have any sequence.

        Markers from `end` on are undone. Where `transactions` does not go back so far, `again` has the states of
        transactional producers at `end`, from their batches.
        """
        for producer_id, former in self.transactions.restored_at(end).items():
            if former is None:
                self._by_id.pop(producer_id, None)
            else:
                self._by_id[producer_id] = former
        for producer_id, producer in list(self._by_id.items()):
            producer.packed = _below(end, producer.packed)
            if producer.current_transaction_first_offset >= end:
                producer.current_transaction_first_offset = NO_TRANSACTION
            if producer.marker_offset >= end:
                producer.marker_offset = NO_MARKER
            if not producer.packed and not producer.is_in_transactions:
                del self._by_id[producer_id]
        self.transactions.truncate_end(end)
        if again is not None:
            self._replace_with(again)
        self._recall_of_one_batch()
        self._recall_ongoing()

    def replace_transactional(self, start: int, again: "Producers") -> None:
        """Replace the states of transactional producers by `again`, which has seen all batches up to the log's end.

        It has all transactions whose markers are at or above `start`.
        """
        self._replace_with(again)
        self.transactions.replace_from(start, again.transactions)
        self._recall_of_one_batch()
        self._recall_ongoing()

    def _replace_with(self, again: "Producers") -> None:
        for producer_id, producer in self._by_id.items():
            if producer.current_transaction_first_offset != NO_TRANSACTION:
                # A checkpoint that is being written keeps the former entry.
                self._by_id[producer_id] = replace(producer, current_transaction_first_offset=NO_TRANSACTION)
        for producer_id, producer in again:
            known = self._by_id.get(producer_id)
            if not producer.packed and known is not None and known.epoch == producer.epoch:
                # The batches before its marker were not read again.
                producer.packed = known.packed
            self._by_id[producer_id] = producer

    def snapshot(self, end: int) -> ProducersSnapshot:
        """Return a snapshot as of offset `end`. It stays as it is until `encoded`, unless the log is truncated."""
        transactions = self.transactions
        as_of_end = {**self._by_id, **transactions.restored_at(end)}
        self._frozen = as_of_end
        replaced, end_of_transactions = transactions.replaced_below(end), min(transactions.end, end)
        return ProducersSnapshot(end, as_of_end, replaced, transactions.complete_from, end_of_transactions)

    def encoded(self) -> None:
        """Record that the last snapshot is not needed any more."""
        self._frozen = None

    @classmethod
    def decode(cls, content: bytes, *, has_transactions: bool = True) -> "Producers":
        """Return the producers of a snapshot; those of earlier versions have no transactions."""
        producers, position, end, count = cls(), 0, len(content), 0
        if has_transactions:
            complete_from, end_of_transactions, count, size = _TRANSACTIONS.unpack_from(content)
            producers.transactions.complete_from, producers.transactions.end = complete_from, end_of_transactions
            position, end = _TRANSACTIONS.size, _TRANSACTIONS.size + size
        while position < end:
            producer_id, known, position = _decoded(content, position)
            producers._by_id[producer_id] = known
        producers._recall_replaced(content, position, count)
        producers._recall_of_one_batch()
        producers._recall_ongoing()
        return producers

    def _recall_replaced(self, content: bytes, position: int, count: int) -> None:
        replaced: list[ReplacedEntry] = []
        for _ in range(count):
            offset, producer_id, is_known = _REPLACED.unpack_from(content, position)
            position += _REPLACED.size
            former: ProducerStateEntry | None = None
            if is_known:
                _, former, position = _decoded(content, position)
            replaced.append(ReplacedEntry(offset, producer_id, former))
        later = dict(self._by_id)
        for _, producer_id, former in reversed(replaced):
            following = later.get(producer_id)
            if former is not None and following is not None and former.epoch == following.epoch:
                # Within an epoch the batches go on after a marker: both entries have the same ones.
                former.packed = following.packed
            if former is not None:
                later[producer_id] = former
        self.transactions.replaced = replaced

    def _recall_ongoing(self) -> None:
        self.transactions.set_ongoing(
            (producer.current_transaction_first_offset, producer_id)
            for producer_id, producer in self._by_id.items()
            if producer.current_transaction_first_offset != NO_TRANSACTION
        )

    def _remember_of_one_batch(self, producer_id: int) -> None:
        """Add a producer of one batch, and evict the oldest one: the same one on every replica."""
        if (of_one_batch := self._of_one_batch) is None:
            of_one_batch = self._of_one_batch = {}
        of_one_batch[producer_id] = None
        if len(of_one_batch) > ONE_BATCH_PRODUCERS_MAX:
            first = next(iter(of_one_batch))
            del of_one_batch[first], self._by_id[first]

    def _forget_oldest(self, newest: int) -> None:
        """Remove the producers whose last batch or marker is the oldest in the log: the same ones on every replica."""
        others = (
            producer_id
            for producer_id, producer in self._by_id.items()
            if producer_id != newest and producer.current_transaction_first_offset == NO_TRANSACTION
        )
        for producer_id in heapq.nsmallest(PRODUCERS_MAX // 10, others, key=lambda known: self._by_id[known].end):
            del self._by_id[producer_id]
        self._recall_of_one_batch()

    def _recall_of_one_batch(self) -> None:
        """Collect the producers of one batch again; all producers are kept in order of arrival."""
        self._of_one_batch = {known: None for known in self._by_id if known >= FIRST_OF_ONE_BATCH} or None


def before_transactions(snapshot: bytes) -> bytes | None:
    """Return a snapshot as it was encoded before there were transactions; None if the log has had any."""
    _, end_of_transactions, _, _ = _TRANSACTIONS.unpack_from(snapshot)
    return None if end_of_transactions else snapshot[_TRANSACTIONS.size :]


def _below(end: int, packed: bytes) -> bytes:
    """Return those of a producer's batches that end at or below `end`."""
    size = len(packed)
    while size and _BATCH.unpack_from(packed, size - _BATCH.size)[-1] > end:
        size -= _BATCH.size
    return packed[:size]


def _is_known_at(end: int, producer: ProducerStateEntry) -> bool:
    """Return whether the log below `end` has a batch or a marker of the producer."""
    return (
        bool(_below(end, producer.packed))
        or 0 <= producer.marker_offset < end
        or 0 <= producer.current_transaction_first_offset < end
    )


def _encoded(producer_id: int, producer: ProducerStateEntry, end: int) -> bytes:
    batches = _below(end, producer.packed)
    first_offset = producer.current_transaction_first_offset
    first_offset = first_offset if first_offset < end else NO_TRANSACTION
    is_in_transactions = producer.marker_offset != NO_MARKER or first_offset != NO_TRANSACTION
    count = len(batches) // _BATCH.size | (_IS_IN_TRANSACTIONS if is_in_transactions else 0)
    out = [_PRODUCER.pack(producer_id, producer.epoch, producer.last_timestamp, count)]
    if is_in_transactions:
        out.append(_IN_TRANSACTIONS.pack(producer.coordinator_epoch, producer.marker_offset, first_offset))
    out.append(batches)
    return b"".join(out)


def _decoded(content: bytes, position: int) -> tuple[int, ProducerStateEntry, int]:
    """Return producer id and entry at `position`, and the position after them."""
    producer_id, epoch, timestamp, count = _PRODUCER.unpack_from(content, position)
    position += _PRODUCER.size
    known = ProducerStateEntry(epoch, timestamp)
    if count & _IS_IN_TRANSACTIONS:
        known.coordinator_epoch, known.marker_offset, known.current_transaction_first_offset = (
            _IN_TRANSACTIONS.unpack_from(content, position)
        )
        position += _IN_TRANSACTIONS.size
    end = position + (count & ~_IS_IN_TRANSACTIONS) * _BATCH.size
    known.packed = content[position:end]
    return producer_id, known, end
