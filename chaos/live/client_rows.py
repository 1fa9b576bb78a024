"""Log formats of the client programs: rows of int64 columns, one file per client, followed while it grows."""

import struct
from enum import IntEnum
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

RowArray = npt.NDArray[Any]
"""Rows with named columns, all of int64."""

NONE = -1
"""In a column that this kind of row does not use."""


TRANSACTIONS_SUFFIX = ".transactions"
"""Of the file of a client's transactions, beside that of its sends."""


class SendKind(IntEnum):
    """The kind of a producer's row."""

    INVOKED = 0
    ACKNOWLEDGED = 1
    GIVEN_UP = 2
    """The outcome of the send is unknown to the client; `error` is the reason."""


class SendRow(NamedTuple):
    """One row of a producer. Times in nanoseconds of the monotonic clock, which processes share."""

    kind: SendKind
    sequence: int
    partition: int
    offset: int
    error: int
    """librdkafka's error code; 0 for none."""
    invoked_ns: int
    at_ns: int
    content: int = NONE
    """The number of key, headers and timestamp, in INVOKED; see `history.content_of`."""
    transaction: int = NONE
    """The client's number of the transaction, in INVOKED."""


class TransactionKind(IntEnum):
    """The kind of a transactional client's row."""

    INITIALIZING = 0
    """`first` is the transaction timeout in milliseconds."""
    INITIALIZED = 1
    """`first` is the producer id and `second` the epoch, where the client has them."""
    OFFSET_READ = 2
    """`first` is the committed offset, `second` the time before the request."""
    BEGUN = 3
    OFFSET_SENT = 4
    """The consumed range is from `first` to before `second`."""
    COMMITTING = 5
    ABORTING = 6
    ENDED = 7
    """`first` is the outcome of the first request, as in history.Transactions."""


class TransactionRow(NamedTuple):
    """One row of a transactional client. `transaction` is the client's number of it, over all of its lives."""

    kind: TransactionKind
    transaction: int
    first: int
    second: int
    at_ns: int


class PollKind(IntEnum):
    """The kind of a consumer's row."""

    POLLED = 0
    ASSIGNED = 1
    """The start of reading at an offset of the partition."""
    COMMITTED = 2
    COMMIT_UNSURE = 3
    WATERMARK = 4
    """`offset` is the high watermark, `value` the log start offset."""
    REPORTED_ERROR = 5
    """`value` is librdkafka's error code."""
    REACHED_END = 6
    """`offset` is the end of what may be read, where markers follow the last record."""
    TRANSFER = 7
    """A transfer's entry: `partition` is the account, `offset` the balance, `content` the amount, and `value` the
    transaction, made of client and number by `history.value_of`."""

    REVOKED = 8
    """The end of reading at the request of the group; the time is before the last commit."""
    LOST = 9
    """The end of reading because the group has forgotten the member."""


class PollRow(NamedTuple):
    """One row of a consumer.

    `batch` counts the calls of poll; in ASSIGNED and in rows about commits, it counts the member's assignments.
    """

    kind: PollKind
    partition: int
    offset: int
    value: int
    batch: int
    at_ns: int
    content: int = NONE
    """The number of key, headers and timestamp, in POLLED; see `history.content_of`."""


class ShareKind(IntEnum):
    """The kind of a row of a share group's member."""

    JOINED = 0
    ACQUIRED = 1
    """`number` is the delivery count."""
    ACKNOWLEDGED = 2
    """`number` is Kafka's number of the type, `value` the error code, or NONE without an answer."""


class ShareRow(NamedTuple):
    """One row of a member of a share group. Times in nanoseconds of the monotonic clock, which processes share."""

    kind: ShareKind
    partition: int
    offset: int
    value: int
    number: int
    invoked_ns: int
    at_ns: int
    content: int = NONE
    """The number of key, headers and timestamp, in ACQUIRED; see `history.content_of`."""


def _dtype(row: type[NamedTuple]) -> "np.dtype[Any]":
    return np.dtype([(name, np.int64) for name in row._fields])


SENDS, POLLS, TRANSACTIONS, SHARES = map(_dtype, (SendRow, PollRow, TransactionRow, ShareRow))
pack_send = struct.Struct(f"={len(SendRow._fields)}q").pack
pack_poll = struct.Struct(f"={len(PollRow._fields)}q").pack
pack_share = struct.Struct(f"={len(ShareRow._fields)}q").pack
pack_transaction = struct.Struct(f"={len(TransactionRow._fields)}q").pack


class Tail:
    """A follower of a file of rows while another process writes it."""

    def __init__(self, path: Path, form: "np.dtype[Any]") -> None:
        self._path, self._form = path, form
        self._read_rows = 0

    def new_rows(self) -> RowArray:
        """Return the rows since the last call."""
        if not self._path.exists():
            return np.empty(0, self._form)
        whole = self._path.stat().st_size // self._form.itemsize - self._read_rows
        rows = np.fromfile(self._path, self._form, whole, offset=self._read_rows * self._form.itemsize)
        self._read_rows += len(rows)
        return rows
