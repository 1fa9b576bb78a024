"""Records of a group that has one for each member: which of them have to be written, and their keys in the log.

The state in memory is the truth: a change notes the keys of the records that show it, and a write encodes their present
values. A record that could not be written is noted again, and is part of the next write.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Generic, TypeVar

from cordwood.cluster.coordination.fields import FieldReader
from cordwood.cluster.coordination.shard import Content
from cordwood.storage.steps import Steps, in_order

KeyT = TypeVar("KeyT", bound=Hashable)


class ChangedRecords(Generic[KeyT]):
    """The keys of one group's records: those in the log, and those that have to be written.

    `order` is the place of a record among those of one write; deletions come first, in the reverse order, but for
    those that `is_deleted_last`.
    """

    __slots__ = ("_changed", "_encode_key", "_group_id", "_is_deleted_last", "_order", "_read_key", "in_log")

    def __init__(
        self,
        group_id: str,
        encode_key: Callable[[str, KeyT], bytes],
        read_key: Callable[[int, FieldReader], tuple[str, KeyT]],
        order: Callable[[KeyT], int],
        in_log: Iterable[KeyT] = (),
        is_deleted_last: Callable[[KeyT], bool] = lambda _: False,
    ) -> None:
        self._group_id, self._encode_key, self._read_key, self._order = group_id, encode_key, read_key, order
        self._is_deleted_last = is_deleted_last
        self.in_log: dict[KeyT, None] = dict.fromkeys(in_log)
        """Keys with a value in the log, or with one that is being written, in the order of their first writes."""
        self._changed: dict[KeyT, None] = {}

    def change(self, key: KeyT) -> None:
        """Note that a record has to be written, or deleted."""
        self._changed[key] = None

    def change_again(self, contents: Sequence[Content]) -> None:
        """Note the records of a write that failed."""
        for encoded, value in contents:
            fields = FieldReader(encoded)
            _, key = self._read_key(fields.int16(), fields)
            self._changed[key] = None
            if value is None:
                self.in_log[key] = None

    def encoded_keys(self) -> Iterator[bytes]:
        """Yield the encoded keys of all records in the log, in the order of their first writes."""
        return (self._encode_key(self._group_id, key) for key in list(self.in_log))

    def take(self, value_of: Callable[[KeyT], Steps[bytes | None]]) -> Steps[tuple[Content, ...]]:
        """Return the records to write, and forget that they changed. Nothing may change between the steps."""
        if not self._changed:
            return ()
        changed = list(self._changed)
        self._changed.clear()
        values: dict[KeyT, bytes | None] = {}
        for key in changed:
            values[key] = yield from value_of(key)
            yield
        gone = [key for key, value in values.items() if value is None and key in self.in_log]
        gone.sort(key=self._order, reverse=True)
        kept = yield from in_order([key for key, value in values.items() if value is not None], self._order)
        for key in gone:
            del self.in_log[key]
        self.in_log |= dict.fromkeys(kept)
        last = [key for key in gone if self._is_deleted_last(key)]
        contents = []
        for key in (*(key for key in gone if key not in last), *kept, *last):
            contents.append((self._encode_key(self._group_id, key), values[key]))
            yield
        return tuple(contents)
