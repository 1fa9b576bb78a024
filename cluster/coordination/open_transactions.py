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


class _Pending(Generic[_KeyT, _ValueT]):
    """The values of one transaction. Compared by identity: a producer's next one is another."""

    __slots__ = ("producer_id", "values")

    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id
        self.values: dict[_KeyT, WrittenValue[_ValueT] | None] = {}
        """None for a value that a later one has replaced. Its key is pending all the same."""


class OpenTransactions(Generic[_KeyT, _ValueT]):
    """The pending values by producer id and key."""

    __slots__ = ("_by_producer", "_holders")

    def __init__(self) -> None:
        self._by_producer: dict[int, _Pending[_KeyT, _ValueT]] = {}
        self._holders: dict[_KeyT, dict[_Pending[_KeyT, _ValueT], None]] = {}
        """The transactions that have a value of the key, also those that are ending."""

    def __iter__(self) -> Iterator[_KeyT]:
        """Yield the pending keys."""
        return iter(self._holders)

    def __contains__(self, key: object) -> bool:
        return key in self._holders

    def values(self) -> Iterator[tuple[int, _KeyT, WrittenValue[_ValueT] | None]]:
        """Yield producer id, key and value for each pending value of an ongoing transaction."""
        for producer_id, pending in self._by_producer.items():
            for key, written in pending.values.items():
                yield producer_id, key, written

    def write(self, producer_id: int, key: _KeyT, written: WrittenValue[_ValueT] | None) -> None:
        """Note a value of a producer's transaction."""
        pending = self._by_producer.get(producer_id)
        if pending is None:
            pending = self._by_producer[producer_id] = _Pending(producer_id)
        pending.values[key] = written
        self._holders.setdefault(key, {})[pending] = None

    def replaced(self, key: _KeyT, position: int) -> None:
        """Note a value outside of these transactions, which replaces earlier ones."""
        for pending in self._holders.get(key, ()):
            written = pending.values[key]
            if written is not None and written.position < position:
                pending.values[key] = None

    def removed(self, key: _KeyT, position: int) -> None:
        """Note the removal of a key, with the values that these transactions wrote before."""
        for pending in list(self._holders.get(key, ())):
            written = pending.values[key]
            if written is None or written.position < position:
                del pending.values[key]
                self._let_go(key, pending)
                if not pending.values and self._by_producer.get(pending.producer_id) is pending:
                    del self._by_producer[pending.producer_id]

    def end(self, producer_id: int, *, is_commit: bool) -> Iterator[tuple[_KeyT, WrittenValue[_ValueT] | None]]:
        """End a producer's transaction. Yield each key with the value that counts from now on, or None.

        There is none if the transaction was aborted, or if a later value has replaced its own. A key is pending until
        it is yielded, and what is written, replaced or removed in between counts as it did before the end.
        """
        pending = self._by_producer.pop(producer_id, None)
        return iter(()) if pending is None else self._ended(pending, is_commit=is_commit)

    def _ended(
        self, pending: _Pending[_KeyT, _ValueT], *, is_commit: bool
    ) -> Iterator[tuple[_KeyT, WrittenValue[_ValueT] | None]]:
        while pending.values:
            key, written = pending.values.popitem()
            self._let_go(key, pending)
            if is_commit and written is not None:
                self.replaced(key, written.position)
                yield key, written
            else:
                yield key, None

    def _let_go(self, key: _KeyT, pending: _Pending[_KeyT, _ValueT]) -> None:
        holders = self._holders[key]
        del holders[pending]
        if not holders:
            del self._holders[key]
