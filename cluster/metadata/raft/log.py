"""The Raft log: the journal's entries by index, behind the one before them; and how much of it is on disk.

It is also what PySyncObj takes for its journal, hence the few names in its manner at the end.
"""

from typing import Any

from cordwood.cluster.metadata.journal import Entry, Journal
from cordwood.cluster.metadata.raft.messages import Row
from cordwood.storage.disk import File

NO_OP = b"\x01"
"""What PySyncObj puts in the log at the start of a term. No command of ours is that short."""


class RaftLog:
    """`base_index` is the entry before the first one there is: 0, or one that a snapshot has. Its term is known."""

    def __init__(self, journal: Journal, base_index: int = 0, base_term: int = 0) -> None:
        self._journal = journal
        self._rows: list[Row] = [(NO_OP, base_index, base_term)]
        for entry in map(journal.__getitem__, range(len(journal))):
            if entry.index > base_index:
                self._rows.append((entry.command, entry.index, entry.term))
        self._flushed_end = self.end
        self._flushing_end: int | None = None
        self._journal_end_before = journal.end
        self.is_dirty = False

    @property
    def base_index(self) -> int:
        return self._rows[0][1]

    @property
    def base_term(self) -> int:
        return self._rows[0][2]

    @property
    def end(self) -> int:
        """The last entry; the base where there is none."""
        return self._rows[-1][1]

    @property
    def end_term(self) -> int:
        return self._rows[-1][2]

    @property
    def flushed_end(self) -> int:
        """Entries up to here are on disk, and so may be counted."""
        return self._flushed_end

    @property
    def bytes_on_disk(self) -> int:
        return self._journal.end

    @property
    def entries(self) -> list[Entry]:
        """What the journal should hold; for who holds the file against it."""
        return [self._journal[position] for position in range(len(self._journal))]

    def term_at(self, index: int) -> int | None:
        """The term of an entry; None below the base and behind the end."""
        position = index - self.base_index
        return self._rows[position][2] if 0 <= position < len(self._rows) else None

    def between(self, after: int, end: int, bytes_max: int = 1 << 62) -> tuple[Row, ...]:
        """The entries behind `after` up to `end`, at least one, as many as fit in `bytes_max`."""
        start = after + 1 - self.base_index
        rows = self._rows[start : end + 1 - self.base_index]
        size = 0
        for count, (command, _, _) in enumerate(rows):
            size += len(command)
            if count and size > bytes_max:
                return tuple(rows[:count])
        return tuple(rows)

    def start_of_tail(self, index: int, entries_max: int, bytes_max: int) -> int:
        """The first entry of the longest stretch up to `index` that is neither too many entries nor too many bytes."""
        start, size = index, 0
        while start > self.base_index and index - start < entries_max and size <= bytes_max:
            size += len(self._rows[start - self.base_index][0])
            start -= 1
        return start

    def extend(self, rows: tuple[Row, ...]) -> None:
        """Raises OSError, after which nothing more is to be done with it."""
        if rows:
            self._rows.extend(rows)
            self._journal.append(Entry(index, term, command) for command, index, term in rows)
            self.is_dirty = True

    def truncate_from(self, index: int) -> None:
        """Forget entry `index` and all behind it: another leader's log has others there."""
        assert index > self.base_index, "what a snapshot has is final"
        del self._rows[index - self.base_index :]
        self._journal.truncate_from(index - self._journal[0].index)
        self._flushed_end = min(self._flushed_end, index - 1)
        if self._flushing_end is not None:
            self._flushing_end = min(self._flushing_end, index - 1)
        self.is_dirty = True

    def drop_before(self, index: int, commit_index: int) -> None:
        """Keep entry `index` as the base, and what is behind it. Blocks; not while a flush is under way."""
        position = index - self.base_index
        if position > 0 and len(self._journal):
            del self._rows[:position]
            self._replace(index - self._journal[0].index, commit_index)

    def restart_behind(self, index: int, term: int) -> None:
        """Have nothing but a base, whose image has been installed. Blocks; not while a flush is under way."""
        self._rows = [(NO_OP, index, term)]
        self._replace(len(self._journal), index)

    def rewrite(self, commit_index: int) -> None:
        """Write the file anew from memory. Blocks; not while a flush is under way."""
        self._replace(0, commit_index)

    def begin_flush(self) -> File:
        """The file to be synced, off the loop; then comes `end_flush`. One at a time."""
        assert self._flushing_end is None, "one flush at a time"
        self._flushing_end, self._journal_end_before = self.end, self._journal.end
        self.is_dirty = False
        return self._journal.file

    def end_flush(self, commit_index: int) -> None:
        assert self._flushing_end is not None, "a flush was begun"
        self._flushed_end = max(self._flushed_end, self._flushing_end)
        self._flushing_end = None
        # Never more than we hold: whoever reads the mark takes what is missing below it for lost.
        self._journal.synced(self._journal_end_before, min(commit_index, self._flushed_end))

    def flush(self, commit_index: int) -> None:
        """Both at once. Blocks."""
        self.begin_flush().sync()
        self.end_flush(commit_index)

    def _replace(self, position: int, commit_index: int) -> None:
        assert self._flushing_end is None, "the file is not replaced under a flush"
        self._journal.drop_before(position)
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
        """Durable when this returns: no message of the new term leaves before. Blocks."""
        self._journal.set_vote(term, None if vote is None else str(vote))

    def getCurrentTerm(self) -> int:  # noqa: N802
        return self._journal.term

    def getVotedForNodeId(self) -> int | None:  # noqa: N802
        vote = self._journal.vote
        return None if vote is None else int(vote)

    def setRaftCommitIndex(self, index: int) -> None:  # noqa: N802
        """Written down with the next flush."""

    def getRaftCommitIndex(self) -> int:  # noqa: N802
        return min(max(self._journal.committed, self.base_index), self.end)

    def onOneSecondTimer(self) -> None:  # noqa: N802
        """Nothing is left for it to do."""
