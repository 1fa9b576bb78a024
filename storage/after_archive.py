"""Producers of a log whose first records are only in the archive, read again from all batches that are here.

A log whose `recovery` is lost knows only what its own batches tell. A transaction that began where only the archive has
batches is then unknown to it: a marker here aborts nothing, and its records in the archive count as committed. Likewise
if an aborted index or a lost segment is found again. The archive has the producers as of the log's first batch here;
the batches are read again from there.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from cordwood.storage.aborted_index import AbortedIndex, AbortedRow
from cordwood.storage.batch import BatchHeader
from cordwood.storage.errors import DamagedLog, Unfinished
from cordwood.storage.producers import Producers
from cordwood.storage.segment import Segment
from cordwood.storage.state import RECOVERY_FILE, Unseen
from cordwood.storage.transaction_log import replay
from cordwood.storage.unseen_batches import UnseenBatches

if TYPE_CHECKING:
    from cordwood.storage.log import Log

PIECE_BYTES = 16 << 20
"""Bytes of batches that a thread reads at a time: other work of the log directory waits for it."""


class AfterArchive(UnseenBatches):
    """All producers of a log, read again while it takes more: used as `UnseenBatches`, unless it `is_outdated`."""

    def __init__(self, log: "Log", before: Producers) -> None:
        """`before` are the producers as of the local start, and belong to this object from now on."""
        super().__init__(log, Unseen(log.local_start, log.log_end), lambda: log.segments)
        # No truncation goes back to archived records.
        before.transactions.committed_to(log.local_start)
        self._producers = before
        self._began = log.local_start, log.truncations, tuple(log.segments)

    @property
    def is_outdated(self) -> bool:
        """Whether batches have gone or were replaced since this began, or whether it is not needed any more."""
        log, (local_start, truncations, segments) = self._log, self._began
        is_same = (log.local_start, log.truncations) == (local_start, truncations)
        return not (is_same and log.lacks_archived_producers and tuple(log.segments[: len(segments)]) == segments)

    def read_on(self, bytes_max: int | None = PIECE_BYTES) -> None:
        """Read as `UnseenBatches.read_on`. Raises DamagedLog if a batch is damaged or missing."""
        super().read_on(bytes_max)

    def put_in_place(self, indexes: Mapping[Segment, AbortedIndex]) -> None:
        """Let the log have these producers. It must not be outdated."""
        assert not self.is_outdated, "these are the producers of the log's batches"
        super().put_in_place(indexes)
        self._log.unseen = None

    def _record(self, segment: Segment, position: int, header: BatchHeader) -> AbortedRow | None:
        return replay(self._producers, segment, position, header)

    def _replace_producers(self) -> None:
        self._log.producers.replace_all(self._producers)


def lacking_producers(log: "Log") -> DamagedLog:
    """Return what is reported of a log that lacks the producers of archived records: its repair asks the archive."""
    what = "it lacks the producers of records that only the archive has"
    return Unfinished(f"{log.directory}/{RECOVERY_FILE}", 0, what)
