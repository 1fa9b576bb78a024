"""What a client saw, in rows of fixed size in a file of its own: written by its process, followed by ours."""

import struct
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar


class Answered(NamedTuple):
    """A producer was told what became of a record. Times in seconds of the monotonic clock, which processes share."""

    partition: int
    number: int
    offset: int
    """UNSAID for a failed send, and for a repeat that was acknowledged without an offset."""
    error: int
    """librdkafka's number for what failed; 0 for nothing."""
    sent_at: float
    answered_at: float


class Read(NamedTuple):
    """A reader was given a record; `error` is why it was not, the other fields are then -1."""

    partition: int
    offset: int
    producer: int
    named_partition: int
    """The partition that the record itself names."""
    number: int
    error: int


ANSWERED = struct.Struct("<iqqidd")
READ = struct.Struct("<iqiiqi")

Row = TypeVar("Row", bound=tuple[Any, ...])


class Rows(Generic[Row]):
    """Follows a file of rows while another process writes it."""

    def __init__(self, path: Path, form: struct.Struct, make: Callable[[Iterable[Any]], Row]) -> None:
        self._path, self._form, self._make = path, form, make
        self._read_bytes = 0

    def news(self) -> Iterator[Row]:
        """The rows that have come since the last call."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._read_bytes)
            content = file.read()
        whole = len(content) - len(content) % self._form.size
        self._read_bytes += whole
        for fields in self._form.iter_unpack(content[:whole]):
            yield self._make(fields)
