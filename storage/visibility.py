"""Visibility of fetched batches to a read_committed consumer: no control batches, no aborted transactions (KIP-98)."""

from collections import deque
from collections.abc import Iterable

from cordwood.storage.batch import BatchHeader
from cordwood.storage.control import read_marker
from cordwood.storage.disk import Bytes


class Visibility:
    """The batches of one Fetch response, in order.

    A producer's transactional batches are aborted from the first offset of its aborted transaction to the abort marker
    that ends it. The response lists the transactions; for read_uncommitted it lists none.
    """

    def __init__(self, aborted: Iterable[tuple[int, int]]) -> None:
        """Take the aborted transactions: pairs of producer id and first offset."""
        self._to_begin = deque(sorted(aborted, key=lambda transaction: transaction[1]))
        self._aborting: set[int] = set()

    def shows(self, header: BatchHeader, batch: Bytes) -> bool:
        """Return whether the next batch has records for the consumer. Raises CorruptBatch for a malformed marker."""
        while self._to_begin and self._to_begin[0][1] < header.end:
            self._aborting.add(self._to_begin.popleft()[0])
        is_aborting = header.producer_id in self._aborting
        if header.is_control:
            if is_aborting and (marker := read_marker(batch)) is not None and not marker.is_commit:
                self._aborting.remove(header.producer_id)
            return False
        return not (is_aborting and header.is_transactional)
