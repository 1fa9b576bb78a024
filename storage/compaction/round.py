"""Round of the log cleaner over one log: the last offset of each key is collected, and the segments are rewritten.

First the offset map takes the keys from the log's clean end on, as far as it has room. Then all segments from the log's
start to the map's end are rewritten in groups: a run of segments becomes one segment of the next generation. Each
rewritten segment is complete, indexed, verified and synced before it replaces the old ones (`swap.py`).
"""

from collections.abc import Iterator
from typing import NamedTuple

from cordwood.storage.log import Log
from cordwood.storage.segment import Segment


class Rewritten(NamedTuple):
    """A run of segments that was rewritten: to be swapped before the next step."""

    old: tuple[Segment, ...]
    new: Segment
    """In the round's directory. Its offsets are those of the old ones together."""


class CleaningRound:
    """One round. Iterate over `steps` in a thread, and call `swap` for each `Rewritten` before the next step.

    Create it, and call `swap` and `finish`, where the log is changed (the event loop); `steps` and `abort` block on the
    disk. Between two steps it may be given up at any time: with `abort`, and never with a swap after that. What has
    been swapped stays, and the next round begins at the log's unchanged clean end.
    """

    bytes_read: int
    bytes_written: int
    records_read: int
    records_kept: int
    map_utilization: float

    def __init__(self, log: Log, directory: str, limit: int, now_ms: int, buffer_bytes: int) -> None:
        """Begin a round that leaves everything at or above `limit` as it is.

        `limit` is at most the last stable offset, the high watermark and any pinned cut, and only whole segments below
        it that the manifest on disk lists are cleaned: a checkpoint just before the round makes it reach further.
        `directory` holds unfinished segments; it exists, belongs to this log alone, and is on the log's file system.
        `buffer_bytes` limits the offset map. `delete.retention.ms` is taken from the log's configuration.
        """
        raise NotImplementedError

    @property
    def is_needed(self) -> bool:
        """Whether there is a segment to clean."""
        raise NotImplementedError

    def steps(self) -> Iterator[int | Rewritten]:
        """Yield the bytes read or written since the last step, or a run to swap. Blocks on the disk.

        Raises DamagedLog if a segment is damaged, CorruptBatch if its batches cannot be decoded: it has to be repaired
        before it can be cleaned. Raises OSError, OutOfResources and DiskFailed as well. After each of them: `abort`.
        """
        raise NotImplementedError

    def swap(self, rewritten: Rewritten) -> bool:
        """Replace the old segments in the log. Return False if the log was truncated, dropped or repaired meanwhile.

        Then the round has to be given up (`abort`). A checkpoint of the log commits the swap; until then a restart
        finds the old segments. Their files are to be deleted after that checkpoint and the delete delay, those that
        `log.replaced.take(rewritten.old)` returns then. Raises OSError, after which the log has the old segments.
        """
        raise NotImplementedError

    def finish(self) -> bool:
        """Raise the log's clean end after the last step. Return False if the log was truncated meanwhile."""
        raise NotImplementedError

    def abort(self) -> None:
        """Remove the files of an unfinished segment. Blocks on the disk. May be called at any time, also twice."""
        raise NotImplementedError
