"""Transactions of a log that lost its end, went on, and has got the lost batches back from another replica.

Recovery has not seen these batches: what the log knows of its transactions is as if they did not exist. A transaction
that one of their markers has ended is still open, and one that began among them is unknown, so that its records are not
left out when it is aborted. Once they are back, the transactions are read again from all batches, from the segment in
which the loss begins up to the log's end, while the log takes more.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from cordwood.storage.aborted_index import AbortedIndex, AbortedRow
from cordwood.storage.batch import BatchHeader
from cordwood.storage.boundaries import headers_from
from cordwood.storage.errors import DamagedLog
from cordwood.storage.producers import Producers
from cordwood.storage.segment import Segment
from cordwood.storage.transaction_log import record_again

if TYPE_CHECKING:
    from cordwood.storage.log import Log
    from cordwood.storage.state import Unseen

ON_LOOP_MAX_BYTES = 128 << 10
"""Bytes of batches that may be read on the event loop: some 2,000 of the smallest ones, some 5 ms."""


class UnseenBatches:
    """Transactions read from the batches of a log: `read_on` in a thread while it `is_behind`, then `put_in_place`."""

    def __init__(self, log: "Log", unseen: "Unseen", segments: Callable[[], Sequence[Segment]]) -> None:
        """`segments` returns those of the log as of now, and the rebuilt ones that are about to take a place there."""
        self._log, self._segments, self._producers = log, segments, Producers()
        self._first_base, self._due, self._may_span_archive = log.local_start, log.local_start, False
        if log.segments:
            first = log.segment_of(unseen.start)
            self._first_base, self._due = first.base_offset, max(first.aborted.undecided, log.local_start)
            self._may_span_archive = log.may_span_archive(first)
        self._read: tuple[int, int] = (-1, 0)
        """Base offset of the segment that was read last, and the bytes of it that were read."""
        self._undecided: dict[Segment, int] = {}
        self._rows: dict[Segment, list[AbortedRow]] = {}

    def is_behind(self) -> bool:
        """Return whether the event loop would wait for long while the rest is read."""
        base, size = self._read
        left = sum(segment.size for segment in self._segments() if segment.base_offset >= max(base, self._first_base))
        return left - size > ON_LOOP_MAX_BYTES

    def read_on(self, bytes_max: int | None = None) -> None:
        """Read the batches up to the log's end as of now, or at least `bytes_max` of them. Blocks on the disk.

        Raises DamagedLog if one of them is not back yet; OutOfResources, DiskFailed.
        """
        end, read = self._log.log_end, 0
        for segment, position, header in headers_from(self._segments(), self._due, end):
            self._enter(segment)
            row = self._record(segment, position, header)
            if row is not None and segment in self._rows:
                self._rows[segment].append(row)
            self._read, self._due = (segment.base_offset, position + header.size), header.end
            read += header.size
            if bytes_max is not None and read >= bytes_max:
                return
        self._due = end

    def put_in_place(self, indexes: Mapping[Segment, AbortedIndex]) -> None:
        """Let the log have these transactions, unless its segments were replaced meanwhile: then a restart does it.

        `indexes` has the aborted indexes of segments that take the place of others.
        """
        log, segments = self._log, self._segments()
        assert self._due == log.log_end, "the transactions are those of all batches"
        if any(segment.base_offset >= log.local_start for segment in self._undecided.keys() - set(segments)):
            return
        undecided = self._producers.transactions.first_undecided(log.log_end)
        for segment in reversed(segments):
            if segment.base_offset >= self._first_base:
                undecided = min(self._undecided.get(segment, undecided), undecided)
                index = indexes.get(segment, segment.aborted)
                index.undecided = undecided
                index.replace(self._rows.get(segment, ()))
        lacked, log.unseen = log.lacks_archived_producers, None
        if lacked or self._may_span_archive:
            log.lost_archived_producers()
        self._replace_producers()

    def _record(self, segment: Segment, position: int, header: BatchHeader) -> AbortedRow | None:
        return record_again(self._producers, segment, position, header)

    def _replace_producers(self) -> None:
        self._log.producers.replace_transactional(self._first_base, self._producers)

    def _enter(self, segment: Segment) -> None:
        if segment.base_offset >= self._first_base and segment not in self._rows:
            self._undecided[segment] = self._producers.transactions.first_undecided(segment.base_offset)
            self._rows[segment] = []


def look_again(log: "Log") -> None:
    """Read what an earlier start has not seen, if all of it is back. Blocks on the disk. Raises as `read_on`.

    What only the archive has is not back (`after_archive.py`).
    """
    if log.unseen is None or not log.segments or log.lacks_archived_producers:
        return
    again = UnseenBatches(log, log.unseen, lambda: log.segments)
    with suppress(DamagedLog):
        again.read_on()
        again.put_in_place({})
