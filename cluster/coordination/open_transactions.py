"""Values that ongoing transactions have written to a partition of an internal topic, pending until their markers.

As in Kafka, a committed value counts as written at the position of its record, not of the marker: a value that was
written later outside the transaction, or in another one that was committed first, stays.
"""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

_KeyT = TypeVar("_KeyT", bound=Hashable)
_ValueT = TypeVar("_ValueT")


class WrittenValue(NamedTuple, Generic[_ValueT]):
    """A value, and its position in the order of all writes to the partition."""

    value: _ValueT
    position: int


@dataclass(slots=True)
class _Transaction(Generic[_KeyT, _ValueT]):
    first_offset: int
    values: dict[_KeyT, WrittenValue[_ValueT] | None] = field(default_factory=dict)
    """None for a value that a later one has replaced. Its key is pending all the same."""


class OpenTransactions(Generic[_KeyT, _ValueT]):
    """The pending values by producer id and key."""

    __slots__ = ("_by_producer", "_count", "_holders")

    def __init__(self) -> None:
        self._by_producer: dict[int, _Transaction[_KeyT, _ValueT]] = {}
        self._holders: dict[_KeyT, set[int]] = {}
        """The producers whose transactions have a value of the key."""
        self._count = 0

    def __len__(self) -> int:
        """Return the number of pending values."""
        return self._count

    def __iter__(self) -> Iterator[_KeyT]:
        """Yield the pending keys."""
        return iter(self._holders)

    def __contains__(self, key: object) -> bool:
        return key in self._holders

    @property
    def first_offset(self) -> int | None:
        """Offset of the first record of all ongoing transactions; None without one."""
        return min((transaction.first_offset for transaction in self._by_producer.values()), default=None)

    def keys_of(self, producer_id: int) -> list[_KeyT]:
        """Return the keys of a producer's pending values."""
        transaction = self._by_producer.get(producer_id)
        return [] if transaction is None else list(transaction.values)

    def values(self) -> Iterator[tuple[int, int, _KeyT, WrittenValue[_ValueT] | None]]:
        """Yield producer id, first offset of its transaction, key and value for each pending value."""
        for producer_id, transaction in self._by_producer.items():
            for key, written in transaction.values.items():
                yield producer_id, transaction.first_offset, key, written

    def write(self, producer_id: int, offset: int, key: _KeyT, written: WrittenValue[_ValueT] | None) -> None:
        """Note a value of a producer's transaction, which begins at `offset` if this is its first value."""
        transaction = self._by_producer.get(producer_id)
        if transaction is None:
            transaction = self._by_producer[producer_id] = _Transaction(offset)
        self._count += key not in transaction.values
        transaction.values[key] = written
        self._holders.setdefault(key, set()).add(producer_id)

    def replaced(self, key: _KeyT, position: int) -> None:
        """Note a value outside of these transactions, which replaces earlier ones."""
        for producer_id in self._holders.get(key, ()):
            values = self._by_producer[producer_id].values
            written = values[key]
            if written is not None and written.position < position:
                values[key] = None

    def removed(self, key: _KeyT, position: int) -> None:
        """Note the removal of a key, with the values that these transactions wrote before."""
        for producer_id in list(self._holders.get(key, ())):
            transaction = self._by_producer[producer_id]
            written = transaction.values[key]
            if written is None or written.position < position:
                del transaction.values[key]
                self._let_go(key, producer_id)
                if not transaction.values:
                    del self._by_producer[producer_id]

    def end(self, producer_id: int, *, is_commit: bool) -> list[tuple[_KeyT, WrittenValue[_ValueT]]]:
        """End a producer's transaction. Return the values that are committed by it, and that no later one replaces."""
        transaction = self._by_producer.pop(producer_id, None)
        committed: list[tuple[_KeyT, WrittenValue[_ValueT]]] = []
        for key, written in {} if transaction is None else transaction.values.items():
            self._let_go(key, producer_id)
            if is_commit and written is not None:
                self.replaced(key, written.position)
                committed.append((key, written))
        return committed

    def _let_go(self, key: _KeyT, producer_id: int) -> None:
        holders = self._holders[key]
        holders.remove(producer_id)
        self._count -= 1
        if not holders:
            del self._holders[key]
