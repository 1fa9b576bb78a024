"""Transactions of one log: the ongoing ones, and the producer states that a truncation may have to bring back.

A transaction is decided by its marker, and stable once the marker is below the high watermark: until then a truncation
may remove the marker, and the transaction is ongoing again. Rules as in Kafka's `ProducerStateManager`.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from cordwood.storage.producers import ProducerStateEntry

NO_TRANSACTION = -1
"""Stands for the first offset of the current transaction of a producer that has none."""
DECIDED_SHARE, DECIDED_MAX = 2, 1000
"""Limit of the places that decided transactions keep after an old ongoing one: a multiple of the ongoing ones, and so
many."""
_DECIDED = -1
"""In place of the producer id of a transaction that is decided."""


class ReplacedEntry(NamedTuple):
    """State of a producer, if any, before the batch at `offset`, which is a marker or the first batch of an epoch."""

    offset: int
    producer_id: int
    entry: "ProducerStateEntry | None"

    @property
    def first_offset(self) -> int:
        """First offset of the transaction that the marker at `offset` decided; NO_TRANSACTION if there was none."""
        return NO_TRANSACTION if self.entry is None else self.entry.current_transaction_first_offset


class LogTransactions:
    """Transactional state of one log."""

    __slots__ = (
        "_first_offsets",
        "_place",
        "_producer_ids",
        "_unstable",
        "complete_from",
        "end",
        "ongoing",
        "replaced",
    )

    def __init__(self) -> None:
        self.ongoing = 0
        """Number of undecided transactions."""
        self._first_offsets, self._producer_ids = array("q"), array("q")
        """First offsets of transactions in ascending order, and their producers. Those before `_place` are decided, and
        the one at `_place` is not. There may be hundreds of thousands: a dict takes 45 to 60 bytes of each."""
        self._place = 0
        self.replaced: list[ReplacedEntry] = []
        """In ascending order of offsets; those below the high watermark are removed."""
        self.complete_from = 0
        """Offset from which on no entry was removed from `replaced`."""
        self.end = 0
        """End of the last batch of a transaction."""
        self._unstable: tuple[int, int | None] = (-1, None)
        """High watermark and result of the last `first_unstable`. New batches are above it, and do not change it."""

    def began(self, first_offset: int, producer_id: int) -> None:
        self.ongoing += 1
        self._first_offsets.append(first_offset)
        self._producer_ids.append(producer_id)

    def replaces(self, replaced: ReplacedEntry) -> None:
        """Record the entry that a marker or a new epoch replaces; a marker ends the entry's transaction."""
        self.replaced.append(replaced)

    def decided(self, first_offset: int) -> None:
        """Remove the ongoing transaction that begins at `first_offset`."""
        place = bisect_left(self._first_offsets, first_offset, self._place)
        assert self._first_offsets[place] == first_offset, f"no transaction begins at {first_offset}"
        self._producer_ids[place] = _DECIDED
        self.ongoing -= 1
        while self._place < len(self._producer_ids) and self._producer_ids[self._place] == _DECIDED:
            self._place += 1
        if not self.ongoing:
            del self._first_offsets[:], self._producer_ids[:]
            self._place = 0
        elif len(self._first_offsets) > DECIDED_SHARE * self.ongoing + DECIDED_MAX:
            pairs = zip(self._first_offsets, self._producer_ids, strict=True)
            self._set_ongoing([pair for pair in pairs if pair[1] != _DECIDED])

    @property
    def oldest_producer_id(self) -> int | None:
        """Producer id of the oldest ongoing transaction; None if there is none."""
        return self._producer_ids[self._place] if self.ongoing else None

    def first_undecided(self, otherwise: int) -> int:
        """Return the first offset of the oldest ongoing transaction; `otherwise` if there is none."""
        return self._first_offsets[self._place] if self.ongoing else otherwise

    def first_unstable(self, high_watermark: int) -> int | None:
        """Return the first offset that is undecided, or decided by a marker that is not below the high watermark."""
        known_watermark, first = self._unstable
        if known_watermark == high_watermark:
            return first
        first = self._first_offsets[self._place] if self.ongoing else None
        for replaced in self.replaced[self._place_of(high_watermark) :]:
            decided = replaced.first_offset
            if decided != NO_TRANSACTION and (first is None or decided < first):
                first = decided
        self._unstable = (high_watermark, first)
        return first

    def committed_to(self, end: int) -> None:
        """Remove the entries of batches below `end`, which no truncation removes unless data are lost."""
        self.complete_from = max(self.complete_from, end)
        del self.replaced[: self._place_of(end)]

    def replaced_below(self, end: int) -> list[ReplacedEntry]:
        """Return the entries that were replaced below `end`."""
        return self.replaced[: self._place_of(end)]

    def restored_at(self, end: int) -> dict[int, "ProducerStateEntry | None"]:
        """Return the states as of `end` of the producers whose entries were replaced at or above it, by id."""
        later = self.replaced[self._place_of(end) :]
        return {replaced.producer_id: replaced.entry for replaced in reversed(later)}

    def truncate_end(self, end: int) -> None:
        """Remove the entries of batches at or above `end`. The caller then sets the ongoing transactions."""
        del self.replaced[self._place_of(end) :]
        self.end, self.complete_from = min(self.end, end), min(self.complete_from, end)

    def replace_from(self, start: int, again: "LogTransactions") -> None:
        """Replace the entries from `start` on by those of `again`. The caller then sets the ongoing transactions."""
        self.replaced = [*self.replaced_below(start), *again.replaced[again._place_of(start) :]]
        self.end = max(self.end, again.end)

    def set_ongoing(self, ongoing: Iterable[tuple[int, int]]) -> None:
        """Replace the ongoing transactions: pairs of first offset and producer id."""
        self._unstable = (-1, None)
        self._set_ongoing(sorted(ongoing))

    def _set_ongoing(self, ongoing: Sequence[tuple[int, int]]) -> None:
        self._first_offsets = array("q", [first_offset for first_offset, _ in ongoing])
        self._producer_ids = array("q", [producer_id for _, producer_id in ongoing])
        self.ongoing, self._place = len(ongoing), 0

    def _place_of(self, offset: int) -> int:
        return bisect_left(self.replaced, offset, key=lambda replaced: replaced.offset)
