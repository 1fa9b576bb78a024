"""The files of an audit log: `audit-<first sequence number>.jsonl`, appended, rotated and verified. Blocks."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cordwood.cluster.security.audit import chain
from cordwood.cluster.security.audit.chain import BrokenLine, ChainHead
from cordwood.storage.disk import Disk, File, sync_directory

READ_BYTES = 1 << 20

_NAME = re.compile(r"audit-(\d{16})\.jsonl")


class AuditFiles:
    """The newest file of one directory, open for appending. Continues the chain of the existing lines."""

    def __init__(self, disk: Disk, directory: str, file_bytes_max: int, files_max: int) -> None:
        """Open the newest file. Raises OSError."""
        self._disk, self._directory = disk, directory
        self._file_bytes_max, self._files_max = file_bytes_max, files_max
        for parent in disk.make_directories(directory):
            sync_directory(disk, parent)
        self.cut_off_bytes = 0
        """The length of an incomplete last line, which a crash had left and which was removed."""
        self.last = ChainHead()
        self._file: File | None = None
        self._end = 0
        self._is_torn = False
        """Whether bytes of a failed append may follow `_end`."""
        names = names_in(disk, directory)
        if names:
            self._continue(names[-1])
            self.last = _last_link(disk, directory, names)

    def append(self, rows: Sequence[Mapping[str, Any]]) -> list[bytes]:
        """Append a line for each row. Durable on return. Return the lines. Raises OSError: nothing was appended."""
        last, lines = self.last, []
        for row in rows:
            last, line = chain.append(last, row)
            lines.append(line)
        if self._file is None or self._end >= self._file_bytes_max:
            self._rotate()
        assert self._file is not None, "the file was opened by the rotation"
        if self._is_torn:
            self._file.truncate(self._end)
        self._is_torn = True
        self._file.pwrite(lines, self._end)
        self._file.sync()
        self._is_torn = False
        self._end += sum(map(len, lines))
        self.last = last
        return lines

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _continue(self, name: str) -> None:
        file = self._disk.open(f"{self._directory}/{name}")
        self._file, size = file, file.size()
        tail = file.pread(min(size, chain.LINE_BYTES_MAX), max(0, size - chain.LINE_BYTES_MAX))
        self.cut_off_bytes = len(tail) - (tail.rfind(b"\n") + 1)
        self._end = size - self.cut_off_bytes
        if self.cut_off_bytes:
            file.truncate(self._end)
            file.sync()

    def _rotate(self) -> None:
        path = f"{self._directory}/audit-{self.last.sequence + 1:016}.jsonl"
        file = self._disk.open(path, create=True)
        sync_directory(self._disk, self._directory)
        self.close()
        self._file, self._end = file, 0
        for name in names_in(self._disk, self._directory)[: -self._files_max]:
            self._disk.remove(f"{self._directory}/{name}")


def names_in(disk: Disk, directory: str) -> list[str]:
    """Return the names of the files, oldest first. Raises FileNotFoundError."""
    return [name for name in disk.list_directory(directory) if _NAME.fullmatch(name)]


def verify(disk: Disk, directory: str) -> tuple[ChainHead, str, BrokenLine | None]:
    """Verify all files. Return the last good link; the file, and its first line that does not fit, if there is one.

    Raises OSError. An incomplete last line, which a crash leaves, is no line.
    """
    last: ChainHead | None = None
    name = ""
    for name in names_in(disk, directory):
        first = _first_in(name)
        if last is None and first == 1:
            last = ChainHead()
        if last is not None and first != last.sequence + 1:
            return last, name, BrokenLine(1, f"the file begins with line {first} where {last.sequence + 1} belongs")
        for found in chain.verify(_lines(disk, f"{directory}/{name}"), last):
            if isinstance(found, BrokenLine):
                return last or ChainHead(first - 1), name, found
            last = found
    return last or ChainHead(), name, None


def has_hash(disk: Disk, directory: str, wanted: str) -> bool:
    """Return whether a line has this hash. Raises OSError."""
    end = f'"hash":"{wanted}"}}'.encode()
    return any(line.endswith(end) for name in names_in(disk, directory) for line in _lines(disk, f"{directory}/{name}"))


def _last_link(disk: Disk, directory: str, names: Sequence[str]) -> ChainHead:
    """Return the link of the last line. A crash may have left the newest file without a line."""
    for name in reversed(names):
        newest, count = b"", 0
        for count, newest in enumerate(_lines(disk, f"{directory}/{name}"), 1):  # noqa: B007
            pass
        if count:
            try:
                return chain.link_of(newest)[0]
            except ValueError:
                # The line was changed. A new chain begins, and `verify` names this line.
                return ChainHead(_first_in(name) + count - 1)
    return ChainHead(_first_in(names[-1]) - 1)


def _lines(disk: Disk, path: str) -> Iterator[bytes]:
    file = disk.open(path)
    try:
        rest, position = b"", 0
        while piece := file.pread(READ_BYTES, position):
            position += len(piece)
            *lines, rest = (rest + piece).split(b"\n")
            yield from lines
    finally:
        file.close()


def _first_in(name: str) -> int:
    """Return the sequence number of the first line of a file."""
    match = _NAME.fullmatch(name)
    assert match is not None, "only names of audit files are listed"
    return int(match[1])
