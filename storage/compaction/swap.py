"""Swap of a rewritten segment for the segments that it replaces.

The files get their names and the log's segments are changed in one go, on the event loop; nothing is synced there. The
next checkpoint of the log syncs the names and then writes a manifest with the new generation: that one atomic write
commits the swap, for all files together. Until then a restart finds the old files and the old manifest, and removes the
new files; after it, it removes the old ones.
"""

from collections.abc import Sequence

from cordwood.storage.log import Log
from cordwood.storage.manifest import SealedSegment
from cordwood.storage.segment import Segment


def has_run(log: Log, segments: Sequence[Segment]) -> bool:
    """Return whether the log has these segments, one after the other."""
    if not segments or segments[0] not in log.segments:
        return False
    first = log.segments.index(segments[0])
    return log.segments[first : first + len(segments)] == list(segments)


def swap(log: Log, old: Sequence[Segment], new: Segment) -> None:
    """Replace a run of segments by `new`, which is complete and synced in another directory. Raises OSError.

    After an error the log has the old segments, and the files of `new` may have either name (`discard`).
    """
    row = SealedSegment(new.base_offset, old[-1].end_offset, new.size, new.max_timestamp, new.aborted.undecided,
                        new.aborted.count, new.generation)  # fmt: skip
    named = Segment.listed(log.disk, log.directory, row, log.config.index_interval_bytes, log.opened)
    # The segment last: without it, the other files count for nothing.
    for source, target in zip(new.paths(), named.paths(), strict=True):
        if source != new.aborted.path or row.aborted:
            log.disk.rename(source, target)
    log.replace(old, named)


def discard(log: Log, new: Segment) -> None:
    """Remove the files of a rewritten segment that was not swapped. Blocks on the disk. Raises OSError."""
    new.release()
    name = new.path.rpartition("/")[2]
    is_live = any(segment.path == f"{log.directory}/{name}" for segment in log.segments)
    named = [f"{log.directory}/{path.rpartition('/')[2]}" for path in new.paths()]
    for path in (*new.paths(), *(() if is_live else named)):
        if log.disk.exists(path):
            log.disk.remove(path)
