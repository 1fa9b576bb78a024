"""Copy of a log in another log directory of the same broker, which takes the log's place in one step (ADR 46).

Threads copy the segments, verified, into a staging directory, with a checkpoint of the log. The last bytes follow on
the event loop, in the step in which the copy gets its name and the log its new segments. From that step on until
`commit`, a restart may find both copies: a mark in the new one has the offset that it must reach to count. No record is
flushed in between, so that both have everything that counts as flushed.
"""

import struct
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import NamedTuple

from crc32c import crc32c

from cordwood.storage import checkpoint
from cordwood.storage.aborted_index import AbortedRow
from cordwood.storage.batch import headers
from cordwood.storage.compaction.run_writer import write_aborted
from cordwood.storage.disk import Disk, File, sync_directory
from cordwood.storage.index import Interval
from cordwood.storage.log import Log
from cordwood.storage.pending_flush import UnsyncedEntries
from cordwood.storage.segment import Segment
from cordwood.storage.segment_files import SegmentFile, segment_path
from cordwood.storage.segment_roll import directories_to
from cordwood.storage.state import LogState, state_as_of, write_checkpoint

MARK_FILE = "moved"
PIECE_BYTES = 1 << 20
_MARK = struct.Struct(">8sq")
_CHECKSUM = struct.Struct(">I")
_MAGIC = b"CWMOVED1"
COMMITTED = 0
"""End in the mark of a copy that counts, whatever its log end is by now."""
NEVER = (1 << 63) - 1
"""End of a mark whose bytes did not reach the disk: neither did those of the copy, perhaps."""


class WantedSegment(NamedTuple):
    """A segment of the log, and the part of it that is to be copied."""

    segment: Segment
    size: int
    end_offset: int
    is_sealed: bool
    truncations: int


@dataclass(slots=True, eq=False)
class _SegmentCopy:
    new: Segment
    truncations: int
    """Of the old segment, when its copy began."""
    is_complete: bool = False


@dataclass(frozen=True, slots=True)
class Goal:
    """What the copy needs to have of the log, as of one iteration of the event loop."""

    wanted: Sequence[WantedSegment]
    state: LogState | None = None
    """The checkpoint of the copy, if all of it is copied."""
    undecided: int = 0
    aborted: Sequence[AbortedRow] = ()
    """Of the active segment, as of the checkpoint."""


class LogCopy:
    """The copy of one log. Methods that block on the disk run in threads, one at a time; the others on the loop."""

    def __init__(self, log: Log, directory: str) -> None:
        """`directory` holds the unfinished copy, on the file system of the place that the log moves to."""
        self._log, self._directory = log, directory
        self._copies: dict[Segment, _SegmentCopy] = {}
        self._outdated: list[Segment] = []
        """Copies of segments that are gone, or were truncated. The next step removes their files."""
        self._mark: File | None = None

    @property
    def size(self) -> int:
        """Bytes of batches copied so far."""
        return sum(copy.new.size for copy in list(self._copies.values()))

    @property
    def missing_bytes(self) -> int:
        return sum(segment.size - self._size_of(segment) for segment in self._log.segments)

    @property
    def log_end(self) -> int:
        """End of the segments whose bytes are all copied; the log start offset if there is none."""
        end = self._log.log_start
        for segment in self._log.segments:
            if self._size_of(segment) < segment.size:
                break
            end = max(end, segment.end_offset)
        return end

    def begin(self) -> None:
        """Make the empty staging directory. Blocks on the disk. Raises OSError."""
        self.abandon()
        disk = self._log.disk
        for changed in disk.make_directories(self._directory):
            sync_directory(disk, changed)

    def goal(self, *, with_state: bool = False) -> Goal:
        """Return what the log has now. Copies of segments that are gone, or were truncated, are begun again.

        `with_state` takes a checkpoint, too: no other may be made before its end (`write_state`). Raises DamagedLog if
        an aborted index has to be read.
        """
        log = self._log
        current = set(log.segments)
        for old, copy in list(self._copies.items()):
            if old not in current or old.truncations != copy.truncations:
                self._outdated.append(copy.new)
                del self._copies[old]
        wanted = [_all_of(segment) for segment in log.segments]
        if not with_state:
            return Goal(wanted)
        state = state_as_of(log, log.flushed_end, log.epochs.encode())
        # The copies of closed segments are synced with their indexes and names.
        state = state._replace(aborted=(), new_names=(), new_indexes=())
        if not log.segments:
            return Goal(wanted, state)
        rows = log.segment_of(state.recovery_point).aborted.rows()[: state.active.aborted]
        return Goal(wanted, state, state.active.undecided, rows)

    def steps(self, goal: Goal) -> Iterator[int]:
        """Copy what the goal has and the copy lacks. Yield bytes copied. Blocks on the disk.

        Raises OSError, and DamagedLog if the log is damaged, or truncated meanwhile.
        """
        self._remove_outdated()
        for wanted in goal.wanted:
            copy = self._copies.get(wanted.segment)
            if copy is None:
                copy = self._copies[wanted.segment] = self._begun(wanted.segment)
            yield from _extend(wanted, copy.new)
            if wanted.is_sealed and not copy.is_complete:
                self._complete(wanted, copy)

    def write_state(self, goal: Goal, destination: str) -> None:
        """Make the copy durable up to the goal, with its checkpoint. Blocks on the disk. Raises OSError.

        `destination` is the directory whose name `take_over` gives to the copy.
        """
        disk, state = self._log.disk, goal.state
        assert state is not None, "the goal has the checkpoint"
        for wanted in goal.wanted:
            copy = self._copies[wanted.segment]
            if not copy.is_complete:
                # The active segment.
                copy.new.file.sync()
                if wanted.segment.base_offset <= state.recovery_point:
                    write_aborted(disk, copy.new, goal.undecided, goal.aborted)
        write_checkpoint(disk, self._directory, state)
        if self._mark is None:
            self._mark = disk.open(f"{self._directory}/{MARK_FILE}", create=True)
        self._mark.truncate(0)
        self._mark.pwrite([bytes(_MARK.size + _CHECKSUM.size)], 0)
        self._mark.sync()
        sync_directory(disk, self._directory)
        for changed in disk.make_directories(destination.rpartition("/")[0]):
            sync_directory(disk, changed)

    def has_changed(self, goal: Goal) -> bool:
        """Return whether a segment of the goal is gone, or was truncated."""
        current = set(self._log.segments)
        return any(one.segment not in current or one.segment.truncations != one.truncations for one in goal.wanted)

    def is_current(self, goal: Goal) -> bool:
        """Return whether the log still has the segments of the goal, and the copy all of them."""
        copies = [(wanted, self._copies.get(wanted.segment)) for wanted in goal.wanted]
        return all(
            copy is not None
            and wanted.segment.truncations == copy.truncations
            and wanted.is_sealed == wanted.segment.is_sealed
            for wanted, copy in copies
        ) and [wanted.segment for wanted in goal.wanted] == list(self._log.segments)

    def may_take_over(self, goal: Goal, bytes_max: int) -> bool:
        """Return whether the copy of the goal is up to date, but for `bytes_max` bytes at the end of the log."""
        log = self._log
        is_idle = not log.is_flushing and not log.has_unsynced_truncation
        return is_idle and self.is_current(goal) and self.missing_bytes <= bytes_max

    def take_over(self, goal: Goal, destination: str) -> list[Segment]:
        """Copy the rest, and let the log continue in `destination`. Return the segments it had before.

        Nothing may count as flushed from here on until `commit` has ended. Raises OSError or DamagedLog: the log is
        unchanged.
        """
        log, state, mark = self._log, goal.state, self._mark
        assert state is not None, "the goal has the checkpoint"
        assert mark is not None, "the checkpoint is written"
        old, new = list(log.segments), [self._copies[segment].new for segment in log.segments]
        active = None if not old or old[-1].is_sealed else new[-1]
        if active is not None:
            for _ in _extend(_all_of(old[-1]), active):
                pass
            rows = old[-1].aborted.rows()
        mark.pwrite([_encoded(log.log_end)], 0)
        log.disk.rename(self._directory, destination)
        # Nothing fails from here on.
        mark.close()
        unsynced = UnsyncedEntries()
        unsynced.changed(*directories_to(destination))
        taken = [self._named(segment, copied, destination) for segment, copied in zip(old, new, strict=True)]
        if active is not None:
            taken[-1] = active
            _rename(active, destination)
            active.aborted.undecided = old[-1].aborted.undecided
            active.aborted.replace(rows)
            unsynced.wrote(active.path, active.file)
        for before, after in zip(old, taken, strict=True):
            after.first_timestamp, after.decoded_to = before.first_timestamp, before.decoded_to
        log.moved(destination, taken, unsynced)
        log.recovery_point, log.flushed_start = state.recovery_point, state.log_start
        log.listed_end = state.segments[-1].end_offset if state.segments else 0
        # The file has the epochs of the state, and a checkpoint elsewhere may have taken later ones.
        log.epochs.must_be_rewritten()
        return old

    def abandon(self) -> None:
        """Remove the unfinished copy. Blocks on the disk. Raises OSError."""
        for segment in (*self._outdated, *[copy.new for copy in self._copies.values()]):
            segment.release()
        self._copies.clear()
        self._outdated.clear()
        if self._mark is not None:
            self._mark.close()
            self._mark = None
        if self._log.disk.exists(self._directory):
            self._log.disk.remove_tree(self._directory)

    def _remove_outdated(self) -> None:
        """Remove what a restart would take for segments of the log."""
        while self._outdated:
            segment = self._outdated[-1]
            segment.release()
            for path in filter(self._log.disk.exists, segment.paths()):
                self._log.disk.remove(path)
            self._outdated.pop()

    def _size_of(self, segment: Segment) -> int:
        copy = self._copies.get(segment)
        return 0 if copy is None else copy.new.size

    def _begun(self, old: Segment) -> _SegmentCopy:
        log, file = self._log, SegmentFile(old.base_offset, old.generation)
        interval = log.config.index_interval_bytes
        return _SegmentCopy(Segment.create(log.disk, self._directory, file, interval, log.opened), old.truncations)

    def _complete(self, wanted: WantedSegment, copy: _SegmentCopy) -> None:
        """Seal and sync the copy of a sealed segment, with its indexes."""
        old, new = wanted.segment, copy.new
        new.close_interval()
        new.seal()
        new.file.sync()
        new.save_index(sync=True)
        write_aborted(self._log.disk, new, old.aborted.undecided, old.aborted.rows())
        sync_directory(self._log.disk, self._directory)
        new.release()
        copy.is_complete = True

    def _named(self, old: Segment, copied: Segment, destination: str) -> Segment:
        """Return the copy of a sealed segment under its new name."""
        row, log = old.listing()._replace(max_timestamp=copied.max_timestamp), self._log
        return Segment.listed(log.disk, destination, row, log.config.index_interval_bytes, log.opened)


def commit(disk: Disk, directory: str, staging: str, file: File | None = None) -> None:
    """Make a copy that has taken over durable, and let it count from now on. Blocks on the disk. Raises OSError.

    `file` is that of the active segment, `staging` the directory from which the copy was renamed.
    """
    if file is not None:
        file.sync()
    for changed in (*directories_to(directory), staging):
        if disk.exists(changed):
            sync_directory(disk, changed)
    checkpoint.replace_file(disk, f"{directory}/{MARK_FILE}", (_encoded(COMMITTED),)).close()


def marked_end(disk: Disk, directory: str) -> int | None:
    """Return the end that the copy in `directory` must reach to count; None for a log that was never moved."""
    path = f"{directory}/{MARK_FILE}"
    try:
        with closing(disk.open(path)) as file:
            content = file.pread(_MARK.size + _CHECKSUM.size, 0)
    except FileNotFoundError:
        return None
    except OSError:
        return NEVER
    if len(content) < _MARK.size + _CHECKSUM.size:
        return NEVER
    magic, end = _MARK.unpack_from(content)
    is_whole = magic == _MAGIC and crc32c(content[: _MARK.size]) == _CHECKSUM.unpack_from(content, _MARK.size)[0]
    return int(end) if is_whole else NEVER


def remove_mark(disk: Disk, directory: str) -> None:
    """Remove the mark of a copy whose former one is gone. Durable on return. Blocks on the disk. Raises OSError."""
    if disk.exists(f"{directory}/{MARK_FILE}"):
        disk.remove(f"{directory}/{MARK_FILE}")
        sync_directory(disk, directory)


def _encoded(end: int) -> bytes:
    content = _MARK.pack(_MAGIC, end)
    return content + _CHECKSUM.pack(crc32c(content))


def _all_of(segment: Segment) -> WantedSegment:
    return WantedSegment(segment, segment.size, segment.end_offset, segment.is_sealed, segment.truncations)


def _rename(active: Segment, directory: str) -> None:
    active.path = segment_path(directory, active.base_offset, active.generation)
    active.aborted.moved_to(active.path)
    active.file.moved_to(active.path)


def _extend(wanted: WantedSegment, new: Segment) -> Iterator[int]:
    """Append to `new` what it lacks of a segment. Yield bytes copied. Blocks on the disk."""
    old = wanted.segment
    while new.size < wanted.size:
        intervals = _closed_from(old, new.size, wanted.size)
        if intervals:
            stop = intervals[-1].end
            data = old.read(new.size, stop)
            new.adopt([data], intervals)
        else:
            # Within an interval, of which the copy has the first batches, or which is still open.
            row = old.index.row_of_position(new.size)
            stop = min(wanted.size, old.index[row].end) if row < len(old.index) else wanted.size
            data = old.read(new.size, stop)
            rows = [(header.base_offset, header.size, header.max_timestamp) for header in headers(data)]
            new.append((data,), rows, wanted.end_offset)
        yield len(data)
    new.end_offset = wanted.end_offset


def _closed_from(segment: Segment, position: int, end: int) -> list[Interval]:
    """Return the closed intervals from `position` on, of about PIECE_BYTES; none if it is within an interval."""
    index = segment.index
    row = index.row_of_position(position)
    found: list[Interval] = []
    while row < len(index) and index[row].end <= end and sum(one.size for one in found) < PIECE_BYTES:
        if not found and index[row].position != position:
            break
        found.append(index[row])
        row += 1
    return found
