"""What the clients of a run write down while it goes on: rows of numbers in a file of each, followed by us."""

import struct
from enum import IntEnum
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

RowArray = npt.NDArray[Any]
"""Rows with named columns, all of int64."""

NONE = -1
"""In a column that means nothing for this kind of row."""


class SendKind(IntEnum):
    """What a producer's row says of a record."""

    INVOKED = 0
    ACKNOWLEDGED = 1
    GIVEN_UP = 2
    """The client does not know what became of it; `error` says why."""


class SendRow(NamedTuple):
    """Times in nanoseconds of the monotonic clock, which processes share."""

    kind: SendKind
    sequence: int
    partition: int
    offset: int
    error: int
    """librdkafka's number; 0 for nothing."""
    invoked_ns: int
    at_ns: int
    content: int = NONE
    """Of key, headers and timestamp, in INVOKED; see `history.content_of`."""


class PollKind(IntEnum):
    """What a consumer's row says."""

    POLLED = 0
    ASSIGNED = 1
    """It begins at some place of the partition."""
    COMMITTED = 2
    COMMIT_UNSURE = 3
    WATERMARK = 4
    """`offset` is the high watermark, `value` where the log starts."""
    TOLD_ERROR = 5
    """`value` is librdkafka's number."""


class PollRow(NamedTuple):
    """`batch` counts the calls of poll; in rows about commits, and in ASSIGNED, it counts the member's assignments."""

    kind: PollKind
    partition: int
    offset: int
    value: int
    batch: int
    at_ns: int
    content: int = NONE
    """Of key, headers and timestamp, in POLLED; see `history.content_of`."""


def _dtype(row: type[NamedTuple]) -> "np.dtype[Any]":
    return np.dtype([(name, np.int64) for name in row._fields])


SENDS, POLLS = _dtype(SendRow), _dtype(PollRow)
pack_send = struct.Struct(f"={len(SendRow._fields)}q").pack
pack_poll = struct.Struct(f"={len(PollRow._fields)}q").pack


class Tail:
    """Follows a file of rows while another process writes it."""

    def __init__(self, path: Path, form: "np.dtype[Any]") -> None:
        self._path, self._form = path, form
        self._read_rows = 0

    def news(self) -> RowArray:
        """The rows that have come since the last call."""
        if not self._path.exists():
            return np.empty(0, self._form)
        whole = self._path.stat().st_size // self._form.itemsize - self._read_rows
        rows = np.fromfile(self._path, self._form, whole, offset=self._read_rows * self._form.itemsize)
        self._read_rows += len(rows)
        return rows
