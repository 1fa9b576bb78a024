"""The journal: the write-ahead log of the metadata log's entries, truncations and votes, in order.

The journal has what a Raft log needs (random access by position, truncation at either end, a durable vote) and nothing
of Raft. A record counts only once `synced` was called for it. The layout is in docs/log-format.md.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise
from struct import Struct

from crc32c import crc32c

from cordwood.cluster.metadata.postponed_work import postponed
from cordwood.storage import checkpoint
from cordwood.storage.disk import Disk, File
from cordwood.storage.errors import DamagedLog

MAGIC = b"CWMETA\r\n"
VERSION = 1
NAME = "journal"
STAGED = NAME + checkpoint.STAGED
"""The name of an unfinished journal that is to replace the current one."""

_HEADER = Struct("<8sII")
"""Magic, version, CRC-32C of both."""
_PREFIX = Struct("<IB")
"""A record: length of its body, its kind; then a CRC-32C of these and the body, then the body."""
_CHECKSUM = Struct("<I")
_RECORD_BYTES = _PREFIX.size + _CHECKSUM.size

_ENTRY = Struct("<QQ")
_TRUNCATE = Struct("<Q")
_VOTE = Struct("<Q")
_MARK = Struct("<QQ")


class _Kind(IntEnum):
    ENTRY = 1
    """Index, term and command of the next entry."""
    TRUNCATE = 2
    """The position from which all entries are removed."""
    VOTE = 3
    """The current term, and the candidate that got this voter's vote in it (KIP-595's quorum state)."""
    MARK = 4
    """The commit index, and the byte up to which this file was synced."""


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One entry of the metadata log. `term` is Raft's."""

    index: int
    term: int
    command: bytes


@dataclass(slots=True)
class JournalContent:
    """The contents of a journal file. `end` is the end of the last valid record."""

    entries: list[JournalEntry]
    term: int = 0
    vote: str | None = None
    committed: int = 0
    end: int = _HEADER.size


class Journal:
    """The journal on disk, with all its entries in memory. Snapshots keep their number small."""

    def __init__(self, disk: Disk, path: str, file: File, content: JournalContent) -> None:
        self._disk, self._path, self._file = disk, path, file
        self._content = content
        self._is_torn = False
        """Whether a write failed, and may have left a part of its bytes after the last record."""

    @classmethod
    def open(cls, disk: Disk, path: str) -> "Journal":
        """Open the journal at `path`, or create it. Blocks.

        A torn write at the end of the file is cut off. Raises DamagedLog if bytes that had been synced have changed.
        """
        file = disk.open(path) if disk.exists(path) else _replace(disk, path, b"")
        data = file.pread(file.size(), 0)
        content = parse(path, data)
        if content.end < len(data):
            file.truncate(content.end)
        # A killed process may have left entries only in the page cache. Sync them before they count.
        file.sync()
        return cls(disk, path, file, content)

    @property
    def file(self) -> File:
        """The file to sync. `drop_before` replaces it."""
        return self._file

    @property
    def end(self) -> int:
        """The length of the file in bytes, which a sync that starts now covers."""
        return self._content.end

    @property
    def committed(self) -> int:
        """The last known commit index. The real commit index may be higher."""
        return self._content.committed

    @property
    def term(self) -> int:
        return self._content.term

    @property
    def vote(self) -> str | None:
        """The candidate that got this voter's vote in the current term."""
        return self._content.vote

    def __len__(self) -> int:
        return len(self._content.entries)

    def __getitem__(self, position: int) -> JournalEntry:
        return self._content.entries[position]

    def append(self, entries: Iterable[JournalEntry]) -> None:
        """Append entries. Raises OSError, with no entry appended."""
        added, known = list(entries), self._content.entries
        for before, entry in pairwise([*known[-1:], *added]):
            assert entry.index == before.index + 1, "entries follow each other without a gap"
        self._write(b"".join(map(_entry_record, added)))
        known += added

    def truncate_from(self, position: int) -> None:
        """Remove the entries from `position` on: the leader's log has others there. Raises OSError, with all kept."""
        self._write(_record(_Kind.TRUNCATE, _TRUNCATE.pack(position)))
        del self._content.entries[position:]

    def drop_before(self, position: int) -> None:
        """Remove the entries before `position`, which a snapshot has. Replaces the whole file. Blocks.

        Raises OSError; if resources are lacking, nothing has changed.
        """
        kept = self._content.entries[position:]
        file = _replace(self._disk, self._path, b"".join([_vote_record(self._content), *map(_entry_record, kept)]))
        self._file.close()
        self._file, self._content.entries, self._content.end = file, kept, file.size()
        self.synced(self.end, self.committed)

    def set_vote(self, term: int, vote: str | None) -> None:
        """Set the current term and vote. Durable on return, so that no message of the term is sent before. Blocks.

        Raises OSError, with term and vote as they were.
        """
        self._write(_vote_record(JournalContent([], term, vote)))
        self._file.sync()
        self._content.term, self._content.vote = term, vote
        self.synced(self.end, self.committed)

    def synced(self, end: int, committed: int) -> None:
        """Record that the file is on disk up to `end`, and that the log is committed up to entry `committed`.

        This appends a mark, which is not synced itself. Where a mark is found, no byte before its `end` can be part of
        a torn write: a bad checksum there is damage, in the newest entry too. A mark that cannot be written for want of
        resources is left out.
        """
        assert end <= self._content.end, "only written entries can have been synced"
        self._content.committed = committed
        try:
            self._write(_record(_Kind.MARK, _MARK.pack(committed, end)))
        except OSError as error:
            if not postponed("metadata.mark_postponed", error):
                raise

    def close(self) -> None:
        self._file.close()

    def _write(self, data: bytes) -> None:
        end = self._content.end
        if self._is_torn:
            # The end of a longer record must not stay after a shorter one that is written in its place.
            self._file.truncate(end)
        self._is_torn = True
        self._file.pwrite((data,), end)
        self._is_torn = False
        self._content.end = end + len(data)


def check(path: str, data: bytes) -> JournalContent:
    """Parse strictly, for offline verification: as `parse`, but a torn write at the end raises DamagedLog too."""
    content = parse(path, data)
    if content.end < len(data):
        raise DamagedLog(path, content.end, f"{len(data) - content.end} bytes are not a valid record: torn or damaged")
    return content


def parse(path: str, data: bytes) -> JournalContent:
    """Parse a journal up to the first record that may be torn.

    Raises DamagedLog if an invalid record had been synced, or if the file is not a journal of this version.
    """
    _check_header(path, data)
    content = JournalContent([])
    while (record := _record_at(data, content.end)) is not None:
        kind, body = record
        _take(path, content, kind, body)
        content.end += _RECORD_BYTES + len(body)
    if content.end < _synced_end_behind(data, content.end):
        raise DamagedLog(path, content.end, "a synced record is damaged")
    return content


def record_starts(data: bytes) -> list[int]:
    """Return the start of every valid record, and the end of the last one."""
    starts = [_HEADER.size]
    while (record := _record_at(data, starts[-1])) is not None:
        starts.append(starts[-1] + _RECORD_BYTES + len(record[1]))
    return starts


def _record(kind: _Kind, body: bytes) -> bytes:
    prefix = _PREFIX.pack(len(body), kind)
    return prefix + _CHECKSUM.pack(crc32c(body, crc32c(prefix))) + body


def _vote_record(content: JournalContent) -> bytes:
    return _record(_Kind.VOTE, _VOTE.pack(content.term) + (content.vote or "").encode())


def _entry_record(entry: JournalEntry) -> bytes:
    return _record(_Kind.ENTRY, _ENTRY.pack(entry.index, entry.term) + entry.command)


def _replace(disk: Disk, path: str, records: bytes) -> File:
    """Replace or create the journal at `path` with one that has these records. Return the new file."""
    fixed = _HEADER.pack(MAGIC, VERSION, 0)[: -_CHECKSUM.size]
    return checkpoint.replace_file(disk, path, (fixed, _CHECKSUM.pack(crc32c(fixed)), records))


def _check_header(path: str, data: bytes) -> None:
    if len(data) < _HEADER.size:
        raise DamagedLog(path, len(data), "the file ends within its header")
    magic, version, checksum = _HEADER.unpack_from(data)
    if magic != MAGIC or crc32c(data[: _HEADER.size - _CHECKSUM.size]) != checksum:
        raise DamagedLog(path, 0, "the header is not a metadata journal's")
    if version != VERSION:
        raise DamagedLog(
            path, len(MAGIC), f"version {version} is newer than this version of Cordwood, which supports {VERSION}"
        )


def _record_at(data: bytes, position: int) -> tuple[int, bytes] | None:
    """Return the kind and body of the record at `position`, or None if there is no valid record."""
    body_at = position + _RECORD_BYTES
    if body_at > len(data):
        return None
    length, kind = _PREFIX.unpack_from(data, position)
    body = data[body_at : body_at + length]
    prefix = data[position : position + _PREFIX.size]
    (checksum,) = _CHECKSUM.unpack_from(data, position + _PREFIX.size)
    if len(body) < length or crc32c(body, crc32c(prefix)) != checksum:
        return None
    return kind, body


def _take(path: str, content: JournalContent, kind: int, body: bytes) -> None:
    match kind:
        case _Kind.ENTRY:
            index, term = _ENTRY.unpack_from(body)
            if content.entries and index != content.entries[-1].index + 1:
                raise DamagedLog(path, content.end, f"entry {index} follows entry {content.entries[-1].index}")
            content.entries.append(JournalEntry(index, term, body[_ENTRY.size :]))
        case _Kind.TRUNCATE:
            del content.entries[_TRUNCATE.unpack(body)[0] :]
        case _Kind.VOTE:
            (content.term,) = _VOTE.unpack_from(body)
            content.vote = body[_VOTE.size :].decode() or None
        case _Kind.MARK:
            content.committed, _ = _MARK.unpack(body)
        case _:
            raise DamagedLog(path, content.end, f"a record of kind {kind}, written by a newer version of Cordwood")


def _synced_end_behind(data: bytes, position: int) -> int:
    """Return the highest byte that marks after `position` record as synced; 0 without marks.

    After an invalid record the start of the next one is unknown, so marks are searched for by their first bytes.
    """
    begin = _PREFIX.pack(_MARK.size, _Kind.MARK)
    highest = 0
    found = data.find(begin, position)
    while found >= 0:
        record = _record_at(data, found)
        if record is not None:
            highest = max(highest, _MARK.unpack(record[1])[1])
        found = data.find(begin, found + 1)
    return highest
