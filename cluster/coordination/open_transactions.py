"""Values that ongoing transactions have written to a partition of an internal topic, pending until their markers.

As in Kafka, a committed value counts as written at the position of its record, not of the marker. A value stays if it
was written later outside the transaction, or in another one that was committed first.
"""

from collections.abc import Hashable, Iterator
from typing import Generic, NamedTuple, TypeVar

_KeyT = TypeVar("_KeyT", bound=Hashable)
_ValueT = TypeVar("_ValueT")


class WrittenValue(NamedTuple, Generic[_ValueT]):
    """A value, and its position in the order of all writes to the partition."""

    value: _ValueT
    position: int


class OpenTransactions(Generic[_KeyT, _ValueT]):
    """The pending values by producer id and key."""

    __slots__ = ("_by_producer", "_holders")

    def __init__(self) -> None:
        self._by_producer: dict[int, dict[_KeyT, WrittenValue[_ValueT] | None]] = {}
        """None for a value that a later one has replaced. Its key is pending all the same."""
        self._holders: dict[_KeyT, set[int]] = {}
        """The producers whose transactions have a value of the key."""

    def __iter__(self) -> Iterator[_KeyT]:
        """Yield the pending keys."""
        return iter(self._holders)

    def __contains__(self, key: object) -> bool:
        return key in self._holders

    def keys_of(self, producer_id: int) -> list[_KeyT]:
        """Return the keys of a producer's pending values."""
        return list(self._by_producer.get(producer_id, ()))

    def values(self) -> Iterator[tuple[int, _KeyT, WrittenValue[_ValueT] | None]]:
        """Yield producer id, key and value for each pending value."""
        for producer_id, values in self._by_producer.items():
            for key, written in values.items():
                yield producer_id, key, written

    def write(self, producer_id: int, key: _KeyT, written: WrittenValue[_ValueT] | None) -> None:
        """Note a value of a producer's transaction."""
        self._by_producer.setdefault(producer_id, {})[key] = written
        self._holders.setdefault(key, set()).add(producer_id)

    def replaced(self, key: _KeyT, position: int) -> None:
        """Note a value outside of these transactions, which replaces earlier ones."""
        for producer_id in self._holders.get(key, ()):
            values = self._by_producer[producer_id]
            written = values[key]
            if written is not None and written.position < position:
                values[key] = None

    def removed(self, key: _KeyT, position: int) -> None:
        """Note the removal of a key, with the values that these transactions wrote before."""
        for producer_id in list(self._holders.get(key, ())):
            values = self._by_producer[producer_id]
            written = values[key]
            if written is None or written.position < position:
                del values[key]
                self._let_go(key, producer_id)
                if not values:
                    del self._by_producer[producer_id]

    def end(self, producer_id: int, *, is_commit: bool) -> list[tuple[_KeyT, WrittenValue[_ValueT]]]:
        """End a producer's transaction. Return the values that are committed by it, and that no later one replaces."""
        committed: list[tuple[_KeyT, WrittenValue[_ValueT]]] = []
        for key, written in self._by_producer.pop(producer_id, {}).items():
            self._let_go(key, producer_id)
            if is_commit and written is not None:
                self.replaced(key, written.position)
                committed.append((key, written))
        return committed

    def _let_go(self, key: _KeyT, producer_id: int) -> None:
        holders = self._holders[key]
        holders.remove(producer_id)
        if not holders:
            del self._holders[key]
