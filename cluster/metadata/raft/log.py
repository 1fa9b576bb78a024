"""The Raft log: the journal's entries by index, after a base entry, and the end that is flushed to disk.

PySyncObj uses this class as its journal: the methods at the end have the names that it calls.
"""

from collections.abc import Callable
from typing import Any

from cordwood.cluster.metadata.journal import Journal, JournalEntry
from cordwood.cluster.metadata.raft.messages import Row
from cordwood.cluster.metadata.raft.voter_log import VoterLog
from cordwood.cluster.metadata.voters import Voters
from cordwood.storage.disk import File

APPLIED_BYTES_PER_STEP = 8 << 10
"""Bytes of the entries that are applied in one step of the event loop."""
NO_OP = b"\x01"
"""The entry that PySyncObj appends at the start of a term. No other entry is that short."""


class RaftLog:
    """The Raft log after `base_index`, which is 0 or an entry that a snapshot has. The base's term is known."""

    def __init__(
        self, journal: Journal, base_index: int = 0, base_term: int = 0, voter_log: VoterLog | None = None
    ) -> None:
        """`voter_log` has the voters of the snapshot's image, if there is one."""
        self._journal = journal
        self._rows: list[Row] = [(NO_OP, base_index, base_term)]
        for entry in map(journal.__getitem__, range(len(journal))):
            if entry.index > base_index:
                self._rows.append((entry.command, entry.index, entry.term))
        self._flushed_end = self.end
        self._flushing_end: int | None = None
        self._journal_end_before = journal.end
        self.is_dirty = False
        self.voter_log = voter_log or VoterLog(0, {})
        self.voter_log.extend(self._rows[1:])
        self.voters_changed: Callable[[], None] = lambda: None
        """Called after every change of the voters in force."""

    @property
    def base_index(self) -> int:
        return self._rows[0][1]

    @property
    def base_term(self) -> int:
        return self._rows[0][2]

    @property
    def end(self) -> int:
        """The last entry; the base if there is none."""
        return self._rows[-1][1]

    @property
    def end_term(self) -> int:
        return self._rows[-1][2]

    @property
    def flushed_end(self) -> int:
        """The last entry on disk: entries up to it count for a majority."""
        return self._flushed_end

    @property
    def bytes_on_disk(self) -> int:
        return self._journal.end

    @property
    def entries(self) -> list[JournalEntry]:
        """The entries that the journal file must have; the scrubber compares the file with them."""
        return [self._journal[position] for position in range(len(self._journal))]

    def term_at(self, index: int) -> int | None:
        """Return the term of an entry; None below the base and past the end."""
        position = index - self.base_index
        return self._rows[position][2] if 0 <= position < len(self._rows) else None

    def between(self, after: int, end: int, bytes_max: int = 1 << 62) -> tuple[Row, ...]:
        """Return the entries after `after` up to `end`, at least one, as many as fit in `bytes_max`."""
        start = after + 1 - self.base_index
        return fitting(tuple(self._rows[start : end + 1 - self.base_index]), bytes_max)

    def start_of_tail(self, index: int, entries_max: int, bytes_max: int) -> int:
        """Return the base of the longest stretch up to `index` of at most `entries_max` and about `bytes_max`."""
        start, size = index, 0
        while start > self.base_index and index - start < entries_max and size <= bytes_max:
            size += len(self._rows[start - self.base_index][0])
            start -= 1
        return start

    def extend(self, rows: tuple[Row, ...]) -> None:
        """Append entries. Raises OSError, with no entry appended."""
        if rows:
            self._journal.append(JournalEntry(index, term, command) for command, index, term in rows)
            self._rows.extend(rows)
            self.is_dirty = True
            if self.voter_log.extend(rows):
                self.voters_changed()

    def truncate_from(self, index: int) -> None:
        """Remove entry `index` and all after it: the leader's log has others there. Raises OSError, with all kept."""
        assert index > self.base_index, "entries in a snapshot are final"
        self._journal.truncate_from(index - self._journal[0].index)
        del self._rows[index - self.base_index :]
        self._flushed_end = min(self._flushed_end, index - 1)
        if self._flushing_end is not None:
            self._flushing_end = min(self._flushing_end, index - 1)
        self.is_dirty = True
        if self.voter_log.truncate_from(index):
            self.voters_changed()

    def drop_before(self, index: int, commit_index: int) -> None:
        """Make entry `index` the base, and keep the entries after it. Blocks; not during a flush.

        Raises OSError, as `restart_behind` and `rewrite` do; if resources are lacking, nothing has changed.
        """
        position = index - self.base_index
        if position > 0 and len(self._journal):
            self._replace(index - self._journal[0].index, self._rows[position:], commit_index)

    def restart_behind(self, index: int, term: int) -> None:
        """Drop all entries, and make the last entry of an installed image the base. Blocks; not during a flush."""
        self._replace(len(self._journal), [(NO_OP, index, term)], index)
        self.voter_log.truncate_from(0)

    def image_installed(self, index: int, voters: Voters) -> None:
        """Take the voters of an installed image."""
        self.voter_log.restart(index, voters)
        self.voters_changed()

    def rewrite(self, commit_index: int) -> None:
        """Write the journal file anew from memory. Blocks; not during a flush."""
        self._replace(0, self._rows, commit_index)

    def begin_flush(self) -> File:
        """Begin a flush. Return the file to sync off the event loop; call `end_flush` after it. One flush at a time."""
        assert self._flushing_end is None, "one flush at a time"
        self._flushing_end, self._journal_end_before = self.end, self._journal.end
        self.is_dirty = False
        return self._journal.file

    def end_flush(self, commit_index: int) -> None:
        assert self._flushing_end is not None, "a flush was begun"
        self._flushed_end = max(self._flushed_end, self._flushing_end)
        self._flushing_end = None
        # Never above the last entry: a reader of the mark reports missing entries below it as lost.
        self._journal.synced(self._journal_end_before, min(commit_index, self._flushed_end))

    def flush(self, commit_index: int) -> None:
        """Flush synchronously. Blocks."""
        self.begin_flush().sync()
        self.end_flush(commit_index)

    def _replace(self, position: int, rows: list[Row], commit_index: int) -> None:
        assert self._flushing_end is None, "the file is not replaced under a flush"
        self._journal.drop_before(position)
        self._rows = rows
        self._flushed_end = self.end
        self.is_dirty = False
        self._journal.synced(self._journal.end, min(commit_index, self.end))

    def close(self) -> None:
        self._journal.close()

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, at: Any) -> Any:
        return self._rows[at]

    def add(self, command: bytes, index: int, term: int) -> None:
        assert index == self.end + 1, "entries follow each other without a gap"
        self.extend(((command, index, term),))

    def setCurrentTerm(self, term: int, vote: int | None) -> None:  # noqa: N802
        """Set the term and vote. Durable on return, so that no message of the new term is sent before. Blocks."""
        self._journal.set_vote(term, None if vote is None else str(vote))

    def getCurrentTerm(self) -> int:  # noqa: N802
        return self._journal.term

    def getVotedForNodeId(self) -> int | None:  # noqa: N802
        vote = self._journal.vote
        return None if vote is None else int(vote)

    def setRaftCommitIndex(self, index: int) -> None:  # noqa: N802
        """Do nothing: the next flush writes the commit index."""

    def getRaftCommitIndex(self) -> int:  # noqa: N802
        return min(max(self._journal.committed, self.base_index), self.end)

    def onOneSecondTimer(self) -> None:  # noqa: N802
        """Do nothing."""


def fitting(rows: tuple[Row, ...], bytes_max: int) -> tuple[Row, ...]:
    """Return the first rows, at least one, as many as fit in `bytes_max`."""
    size = 0
    for count, (command, _, _) in enumerate(rows):
        size += len(command)
        if count and size > bytes_max:
            return rows[:count]
    return rows
