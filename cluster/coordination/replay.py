"""Replay of a partition of an internal topic: the newest value of each key, and the values of ongoing transactions."""

from cordwood.cluster.coordination.open_transactions import OpenTransactions, WrittenValue
from cordwood.storage.batch import BatchHeader, check, peek, split
from cordwood.storage.compaction.run_writer import closing_batch
from cordwood.storage.control import decode_marker
from cordwood.storage.disk import Bytes
from cordwood.storage.records import Header, Record, RecordCursor, decode
from cordwood.storage.steps import Steps, portions

COPY: tuple[Header, ...] = (("copy", b""),)
"""The headers of a record that a coordinator of an earlier version has appended again, to delete the older records.

Such a record only stands for one that was deleted. It may come after the marker of a transaction that has changed the
key: so it never replaces a value.
"""

_ENCODED_COPY = b"\x08copy\x00"
"""The header of a copy, as records have it."""


class Replay:
    """The state after the batches so far, which are taken in order."""

    def __init__(self) -> None:
        self.newest: dict[bytes, bytes] = {}
        self.open: OpenTransactions[bytes, bytes] = OpenTransactions()

    def take(self, batch: bytes, start: int) -> Steps[int]:
        """Apply a batch's records from `start` on, one a step. Return the offset after it. Raises CorruptBatch."""
        header = check(batch)
        if header.is_control:
            yield from self._end(header, batch)
            yield
        else:
            for record in RecordCursor(batch, start).records():
                self._apply(record, header)
                yield
        return header.end

    def _end(self, header: BatchHeader, batch: bytes) -> Steps[None]:
        marker = decode_marker(batch)
        if marker is None:
            return
        for portion in portions(self.open.end(header.producer_id, is_commit=marker.is_commit)):
            self.newest.update((key, written.value) for key, written in portion if written is not None)
            yield

    def _apply(self, record: Record, header: BatchHeader) -> None:
        key, value = record.key, record.value
        if key is None:
            return
        if header.is_transactional:
            if value is not None:
                self.open.write(header.producer_id, key, WrittenValue(value, record.offset))
        elif value is None:
            self.newest.pop(key, None)
            self.open.removed(key, record.offset)
        elif record.headers != COPY:
            self.newest[key] = value
            self.open.replaced(key, record.offset)
        else:
            self.newest.setdefault(key, value)


def without_copies(batches: Bytes) -> Bytes:
    """Return batches with the same offsets, those of copies emptied: for the log cleaner a copy replaces no value."""
    data = bytes(batches)
    if _ENCODED_COPY not in data:
        return batches
    return b"".join([_emptied(batch) if _has_copies(batch) else batch for batch in split(data)])


def _has_copies(batch: bytes) -> bool:
    """Return whether the records are copies: either all of a batch are, or none."""
    return not peek(batch).is_control and any(record.headers == COPY for record in decode(batch))


def _emptied(batch: bytes) -> bytes:
    header = peek(batch)
    return closing_batch(header.base_offset, header.end, header.leader_epoch)
