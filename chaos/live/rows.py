"""A client's log as a file of fixed-size rows: written by the client's process, followed by ours."""

import struct
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar


class Answered(NamedTuple):
    """The outcome of one send. Times in seconds of the monotonic clock, which processes share."""

    partition: int
    number: int
    offset: int
    """UNSAID for a failed send, and for a duplicate that was acknowledged without an offset."""
    error: int
    """librdkafka's error code; 0 for none."""
    sent_at: float
    answered_at: float


class PolledRecord(NamedTuple):
    """One polled record, or an error: then `error` is its code and the other fields are -1."""

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


class RowsReader(Generic[Row]):
    """A follower of a file of rows while another process writes it."""

    def __init__(self, path: Path, form: struct.Struct, make: Callable[[Iterable[Any]], Row]) -> None:
        self._path, self._form, self._make = path, form, make
        self._read_bytes = 0

    def new_rows(self) -> Iterator[Row]:
        """Yield the rows since the last call."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._read_bytes)
            content = file.read()
        whole = len(content) - len(content) % self._form.size
        self._read_bytes += whole
        for fields in self._form.iter_unpack(content[:whole]):
            yield self._make(fields)
