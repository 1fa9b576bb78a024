"""Records of a consumer group: which of them have to be written, and their keys in the log.

The state in memory is the truth: a change notes the keys of the records that show it, and a write encodes their present
values. A record that could not be written is noted again, and goes with the next write.
"""

from collections.abc import Callable, Iterable, Sequence

from cordwood.cluster.coordination.fields import FieldReader
from cordwood.cluster.coordination.shard import Content
from cordwood.cluster.groups.consumer.formats import RecordKey, RecordType, encode_key, read_key

_ORDER = {
    kind: place
    for place, kind in enumerate(
        (
            RecordType.CLASSIC_GROUP,
            RecordType.MEMBER_METADATA,
            RecordType.REGULAR_EXPRESSION,
            RecordType.GROUP_METADATA,
            RecordType.PARTITION_METADATA,
            RecordType.TARGET_MEMBER,
            RecordType.TARGET_METADATA,
            RecordType.CURRENT_ASSIGNMENT,
        )
    )
}
"""The order in which Kafka replays a change: a member before its partitions, a target before its epoch."""


class GroupRecords:
    """The keys of a group's records: those in the log, and those that have to be written."""

    __slots__ = ("_changed", "_group_id", "in_log")

    def __init__(self, group_id: str, in_log: Iterable[RecordKey] = ()) -> None:
        self._group_id = group_id
        self.in_log: set[RecordKey] = set(in_log)
        """Keys with a value in the log, or with one that is being written."""
        self._changed: dict[RecordKey, None] = {}

    def change(self, kind: RecordType, of: str = "") -> None:
        """Note that a record has to be written, or deleted."""
        self._changed[RecordKey(kind, of)] = None

    def change_again(self, contents: Sequence[Content]) -> None:
        """Note the records of a write that failed."""
        for encoded, value in contents:
            fields = FieldReader(encoded)
            _, key = read_key(fields.int16(), fields)
            self._changed[key] = None
            if value is None:
                self.in_log.add(key)

    def keys(self) -> list[bytes]:
        """Return the encoded keys of all records in the log."""
        return [encode_key(self._group_id, key) for key in self.in_log]

    def take(self, value_of: Callable[[RecordKey], bytes | None]) -> tuple[Content, ...]:
        """Return the records to write: deletions first, in the order in which Kafka replays them."""
        if not self._changed:
            return ()
        values = {key: value_of(key) for key in self._changed}
        self._changed.clear()
        gone = [key for key, value in values.items() if value is None and key in self.in_log]
        gone.sort(key=lambda key: _ORDER[key.type], reverse=True)
        kept = [key for key, value in values.items() if value is not None]
        kept.sort(key=lambda key: _ORDER[key.type])
        self.in_log.difference_update(gone)
        self.in_log.update(kept)
        return tuple((encode_key(self._group_id, key), values[key]) for key in (*gone, *kept))
