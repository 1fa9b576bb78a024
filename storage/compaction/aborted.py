"""Aborted transactions of the batches that a pass of the log cleaner reads, in order of offsets."""

from collections import deque
from collections.abc import Iterable

from cordwood.storage.aborted_index import AbortedRow
from cordwood.storage.batch import BatchHeader


class ExpectedAborted:
    """Aborted transactions whose markers are still to come, by producer.

    A producer has one transaction after the other, so that its rows are in order of both their ends. The memory depends
    on the number of transactions that overlap one segment.
    """

    def __init__(self) -> None:
        self._rows: dict[int, deque[AbortedRow]] = {}
        self._passed = 0

    def expect(self, rows: Iterable[AbortedRow]) -> None:
        """Add transactions in ascending order of markers. Those that are known, or have passed, do not count again."""
        for row in rows:
            known = self._rows.get(row.producer_id)
            if row.marker_offset < self._passed or (known and row.marker_offset <= known[-1].marker_offset):
                continue
            if known is None:
                known = self._rows[row.producer_id] = deque()
            known.append(row)

    def has(self, header: BatchHeader) -> bool:
        """Return whether a batch that is not a control batch belongs to an aborted transaction."""
        self._passed = header.base_offset
        if not header.is_transactional:
            return False
        known = self._rows.get(header.producer_id)
        while known and known[0].marker_offset < header.base_offset:
            known.popleft()
        return known is not None and len(known) > 0 and known[0].first_offset <= header.base_offset

    def ended(self, header: BatchHeader) -> AbortedRow | None:
        """Return the transaction that the marker at this offset aborts, and forget it; None if there is none."""
        self._passed = header.base_offset
        known = self._rows.get(header.producer_id)
        row = None
        while known and known[0].marker_offset <= header.base_offset:
            row = known.popleft()
        if known is not None and not known:
            del self._rows[header.producer_id]
        return row if row is not None and row.marker_offset == header.base_offset else None
