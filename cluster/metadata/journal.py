"""The write-ahead file of the metadata log: entries, truncations, and the vote, in the order in which they happened.

It does what a Raft log needs (random access by position, truncation at either end, a durable vote) and nothing of Raft.
Nothing in it counts before `synced` was told that the file is on disk. The layout is in docs/log-format.md.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from struct import Struct

from crc32c import crc32c

from cordwood.storage.disk import Disk, File, sync_directory
from cordwood.storage.errors import DamagedLog

MAGIC = b"CWMETA\r\n"
VERSION = 1
NAME = "journal"
STAGED = NAME + ".new"
"""A journal that is to take the place of the one there is, and is not yet finished."""

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
    """All entries from this position on are no more."""
    VOTE = 3
    """The current term, and whom we voted for in it (KIP-595's quorum state)."""
    MARK = 4
    """Up to which entry the log is committed, and up to which byte this file was synced."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of the log. `term` is Raft's."""

    index: int
    term: int
    command: bytes


@dataclass(slots=True)
class Content:
    """What the records of a file amount to, and where the sound ones end."""

    entries: list[Entry]
    term: int = 0
    vote: str | None = None
    committed: int = 0
    end: int = _HEADER.size


class Journal:
    """The log as it is on disk, with all its entries in memory too: a snapshot keeps their number small."""

    def __init__(self, disk: Disk, path: str, file: File, content: Content) -> None:
        self._disk, self._path, self._file = disk, path, file
        self._content = content

    @classmethod
    def open(cls, disk: Disk, path: str) -> "Journal":
        """Open, or create, the journal at `path`. Blocks.

        What was being written as the power failed is cut off. Raises DamagedLog where something that had been synced
        is no longer what it was.
        """
        if not disk.exists(path):
            _replace(disk, path, b"")
        file = disk.open(path)
        data = file.pread(file.size(), 0)
        content = parse(path, data)
        if content.end < len(data):
            file.truncate(content.end)
        # A process that was killed may have left entries that only the page cache has. They are about to be believed.
        file.sync()
        return cls(disk, path, file, content)

    @property
    def file(self) -> File:
        """What has to be synced. Another one after each `drop_before`."""
        return self._file

    @property
    def end(self) -> int:
        """The length of the file in bytes: what a sync that starts now will cover."""
        return self._content.end

    @property
    def committed(self) -> int:
        """Up to which index the log was known to be committed; a hint, it may be behind."""
        return self._content.committed

    @property
    def term(self) -> int:
        return self._content.term

    @property
    def vote(self) -> str | None:
        """Whom we voted for in this term."""
        return self._content.vote

    def __len__(self) -> int:
        return len(self._content.entries)

    def __getitem__(self, position: int) -> Entry:
        return self._content.entries[position]

    def append(self, entries: Iterable[Entry]) -> None:
        """Write entries behind the last one. Raises OSError, after which the journal is not to be used."""
        added = list(entries)
        known = self._content.entries
        for entry in added:
            assert not known or entry.index == known[-1].index + 1, "entries follow each other without a gap"
            known.append(entry)
        self._write(b"".join(map(_entry_record, added)))

    def truncate_from(self, position: int) -> None:
        """Forget the entries from `position` on: another leader's log does not have them."""
        del self._content.entries[position:]
        self._write(_record(_Kind.TRUNCATE, _TRUNCATE.pack(position)))

    def drop_before(self, position: int) -> None:
        """Forget the entries before `position`, which a snapshot has. Replaces the file as a whole. Blocks."""
        kept = self._content.entries[position:]
        end = _replace(self._disk, self._path, b"".join([self._vote_record(), *map(_entry_record, kept)]))
        self._file.close()
        self._file = self._disk.open(self._path)
        self._content.entries = kept
        self._content.end = end
        self.synced(end, self.committed)

    def set_vote(self, term: int, vote: str | None) -> None:
        """Durable when this returns, so that no message can leave before. Blocks."""
        self._content.term, self._content.vote = term, vote
        self._write(self._vote_record())
        self._file.sync()
        self.synced(self.end, self.committed)

    def synced(self, end: int, committed: int) -> None:
        """The file is on disk up to `end`, and the log is committed up to the entry `committed`.

        The mark that says so is not synced itself. Where it is found, nothing before `end` can pass for the torn end of
        a write: that is how damage is told from a power cut, and it holds for the newest entry too.
        """
        assert end <= self._content.end, "only what was written can have been synced"
        self._content.committed = committed
        self._write(_record(_Kind.MARK, _MARK.pack(committed, end)))

    def close(self) -> None:
        self._file.close()

    def _vote_record(self) -> bytes:
        return _record(_Kind.VOTE, _VOTE.pack(self.term) + (self.vote or "").encode())

    def _write(self, data: bytes) -> None:
        self._file.pwrite((data,), self._content.end)
        self._content.end += len(data)


def check(path: str, data: bytes) -> Content:
    """As `parse`, for who reads strictly: a torn end raises DamagedLog too."""
    content = parse(path, data)
    if content.end < len(data):
        raise DamagedLog(path, content.end, f"{len(data) - content.end} bytes are no record: torn or damaged")
    return content


def parse(path: str, data: bytes) -> Content:
    """What the bytes of a journal amount to, up to the first that a torn write may have left.

    Raises DamagedLog where they had been synced and are not sound.
    """
    _check_header(path, data)
    content = Content([])
    while (record := _record_at(data, content.end)) is not None:
        kind, body = record
        _take(path, content, kind, body)
        content.end += _RECORD_BYTES + len(body)
    if content.end < _synced_end_behind(data, content.end):
        raise DamagedLog(path, content.end, "a record that had been synced is no longer sound")
    return content


def record_starts(data: bytes) -> list[int]:
    """Where the sound records of a journal begin, and where the last of them ends."""
    starts = [_HEADER.size]
    while (record := _record_at(data, starts[-1])) is not None:
        starts.append(starts[-1] + _RECORD_BYTES + len(record[1]))
    return starts


def replace_file(disk: Disk, path: str, data: bytes) -> None:
    """Put `data` in the place of the file at `path`, if any: after a crash it is the one or the other. Blocks."""
    staged = path + ".new"
    file = disk.open(staged, create=True)
    try:
        file.truncate(0)
        file.pwrite((data,), 0)
        file.sync()
    finally:
        file.close()
    disk.rename(staged, path)
    sync_directory(disk, path.rpartition("/")[0] or ".")


def _record(kind: _Kind, body: bytes) -> bytes:
    prefix = _PREFIX.pack(len(body), kind)
    return prefix + _CHECKSUM.pack(crc32c(body, crc32c(prefix))) + body


def _entry_record(entry: Entry) -> bytes:
    return _record(_Kind.ENTRY, _ENTRY.pack(entry.index, entry.term) + entry.command)


def _replace(disk: Disk, path: str, records: bytes) -> int:
    """Put a journal with these records in the place of the one at `path`, if any. Its length in bytes."""
    fixed = _HEADER.pack(MAGIC, VERSION, 0)[: -_CHECKSUM.size]
    data = fixed + _CHECKSUM.pack(crc32c(fixed)) + records
    replace_file(disk, path, data)
    return len(data)


def _check_header(path: str, data: bytes) -> None:
    if len(data) < _HEADER.size:
        raise DamagedLog(path, len(data), "the file ends within its header")
    magic, version, checksum = _HEADER.unpack_from(data)
    if magic != MAGIC or crc32c(data[: _HEADER.size - _CHECKSUM.size]) != checksum:
        raise DamagedLog(path, 0, "the header is not that of a metadata journal")
    if version != VERSION:
        raise DamagedLog(path, len(MAGIC), f"version {version} is newer than this Cordwood, which knows {VERSION}")


def _record_at(data: bytes, position: int) -> tuple[int, bytes] | None:
    """The record that starts at `position`, or None where no sound one does."""
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


def _take(path: str, content: Content, kind: int, body: bytes) -> None:
    match kind:
        case _Kind.ENTRY:
            index, term = _ENTRY.unpack_from(body)
            if content.entries and index != content.entries[-1].index + 1:
                raise DamagedLog(path, content.end, f"entry {index} follows entry {content.entries[-1].index}")
            content.entries.append(Entry(index, term, body[_ENTRY.size :]))
        case _Kind.TRUNCATE:
            del content.entries[_TRUNCATE.unpack(body)[0] :]
        case _Kind.VOTE:
            (content.term,) = _VOTE.unpack_from(body)
            content.vote = body[_VOTE.size :].decode() or None
        case _Kind.MARK:
            content.committed, _ = _MARK.unpack(body)
        case _:
            raise DamagedLog(path, content.end, f"a record of kind {kind}: a newer Cordwood wrote it")


def _synced_end_behind(data: bytes, position: int) -> int:
    """The highest byte that the marks behind `position` call synced; 0 without marks.

    Behind an unsound record nothing says where the next one starts, so marks are looked for by how they begin.
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
