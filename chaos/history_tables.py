"""Tables of a history: a column of numbers for each thing that is known of an operation."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, fields
from enum import IntEnum
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

Column = npt.NDArray[np.int64]
Operation = dict[str, int | str]
"""One row in words: its table's name as "operation", and its cells by column."""

UNKNOWN = -1
"""In the place of an offset or a time that nobody was told."""
BY_FOLLOWER = -2
"""In the place of a leader's epoch: a follower has answered, and may lag."""
ACKS_ALL = -1
SEQUENCE_BITS = 40
PRODUCERS_MAX = 1 << (63 - SEQUENCE_BITS)


class Outcome(IntEnum):
    """What became of an operation, as far as its client knows. INFO: it may or may not have happened, now or later."""

    OK = 1
    FAIL = 2
    INFO = 3


def value_of(producer: int, sequence: int) -> int:
    """The number that a record carries: no other record of the run has it."""
    assert 0 <= producer < PRODUCERS_MAX, f"there is no producer {producer}"
    assert 0 <= sequence < 1 << SEQUENCE_BITS, f"there is no sequence {sequence}"
    return producer << SEQUENCE_BITS | sequence


def content_of(key: bytes | None, headers: Iterable[tuple[str, bytes | None]], timestamp: int) -> int:
    """A number for all of a record but its value: equal numbers stand for equal contents."""
    parts = (b"\0" if key is None else b"\1" + key, repr([*headers]).encode(), b"%d" % timestamp)
    return int.from_bytes(blake2b(b"\n".join(parts), digest_size=8).digest(), "big") >> 1


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """Rows in the order in which they were written down. Every field is a column, all are of one length."""

    def __len__(self) -> int:
        first: Column = getattr(self, fields(self)[0].name)
        return len(first)

    def operation(self, row: int) -> Operation:
        """One row in words."""
        cells = {field.name: int(getattr(self, field.name)[row]) for field in fields(self)}
        outcome = {"outcome": Outcome(cells["outcome"]).name.lower()} if "outcome" in cells else {}
        name = re.sub("(?<!^)(?=[A-Z])", "-", type(self).__name__).lower()
        one = name.removesuffix("es") if name.endswith("ches") else name.removesuffix("s")
        return {"operation": one, **cells, **outcome}


@dataclass(frozen=True, slots=True, eq=False)
class Sends(Table):
    """A row for each record that a producer began to send. A producer's sequences are 0, 1, 2, … in this order."""

    producer: Column
    sequence: Column
    partition: Column
    invoked_ns: Column
    ended_ns: Column
    outcome: Column
    offset: Column
    acks: Column
    timestamp: Column
    """In milliseconds, as the producer gave it; UNKNOWN where the broker sets another."""
    content: Column
    """See `content_of`."""

    @property
    def value(self) -> Column:
        """What the records carry, see `value_of`."""
        return self.producer << SEQUENCE_BITS | self.sequence

    def operation(self, row: int) -> Operation:
        """One row in words, with the record's value."""
        return {**Table.operation(self, row), "value": value_of(int(self.producer[row]), int(self.sequence[row]))}


@dataclass(frozen=True, slots=True, eq=False)
class Polls(Table):
    """A row for each record that a consumer was given; `batch` counts its calls of poll."""

    consumer: Column
    partition: Column
    offset: Column
    value: Column
    polled_ns: Column
    batch: Column
    content: Column
    """See `content_of`."""


@dataclass(frozen=True, slots=True, eq=False)
class Assignments(Table):
    """A row for each time that a consumer began at some place of a partition: by assignment, in a group, by a seek."""

    consumer: Column
    partition: Column
    since_ns: Column


@dataclass(frozen=True, slots=True, eq=False)
class Commits(Table):
    """A row for each offset that a group's member committed, or (`is_read` 1) was told as the committed one."""

    group: Column
    generation: Column
    partition: Column
    offset: Column
    outcome: Column
    is_read: Column


@dataclass(frozen=True, slots=True, eq=False)
class Watermarks(Table):
    """A row for each time that a client was told how far a partition is committed, or where it starts, by either of
    Fetch and ListOffsets. UNKNOWN stands for all that was not told."""

    client: Column
    partition: Column
    high_watermark: Column
    log_start: Column
    at_ns: Column
    invoked_ns: Column
    """When it was asked for."""
    leader_epoch: Column
    """Of the leader that answered; BY_FOLLOWER for another replica."""
    last_stable: Column
    read_end: Column
    """The end of the last batch that came with it."""
    leaders_end: Column
    """The largest high watermark that any leader has had until then, as seen from outside of the brokers."""


@dataclass(frozen=True, slots=True, eq=False)
class Elections(Table):
    """A row for each leader epoch of a partition, as seen in the metadata: it has begun after that time."""

    partition: Column
    leader_epoch: Column
    after_ns: Column


@dataclass(frozen=True, slots=True, eq=False)
class Lookups(Table):
    """A row for each time that a client asked for the first record at or after a time, in milliseconds (ListOffsets).

    UNKNOWN is the answer that there is none.
    """

    client: Column
    partition: Column
    invoked_ns: Column
    at_ns: Column
    leader_epoch: Column
    wanted: Column
    offset: Column
    timestamp: Column


@dataclass(frozen=True, slots=True, eq=False)
class EpochEnds(Table):
    """A row for each time that a client asked a leader where an epoch ended (OffsetForLeaderEpoch)."""

    client: Column
    partition: Column
    invoked_ns: Column
    at_ns: Column
    leader_epoch: Column
    """Of the leader that answered."""
    wanted: Column
    epoch: Column
    """The one that was told of: the largest that is not above `wanted`."""
    end: Column


@dataclass(frozen=True, slots=True, eq=False)
class Batches(Table):
    """A row for each batch that a consumer was given."""

    partition: Column
    base: Column
    end: Column
    leader_epoch: Column
    at_ns: Column


@dataclass(frozen=True, slots=True, eq=False)
class Deletions(Table):
    """A row for each time that an administrator allowed a partition's oldest records to be deleted. UNKNOWN in every
    column but one of `before`, `age_ms` and `keep_records`."""

    partition: Column
    before: Column
    """DeleteRecords: every record below this offset is to go."""
    age_ms: Column
    """Retention by time: records may go whose timestamp is so far in the past, by the shared clock."""
    keep_records: Column
    """Retention by size: at least so many of the youngest records stay."""
    invoked_ns: Column
    ended_ns: Column
    outcome: Column


@dataclass(frozen=True, slots=True, eq=False)
class Faults(Table):
    """A row for each fault, in the order in which they struck."""

    kind: Column
    """By its number in `checks.unavailable`."""
    since_ns: Column
    until_ns: Column
    """When what was done to the cluster was taken back."""
    is_alone: Column
    """Whether everything was well when it struck."""


@dataclass(frozen=True, slots=True, eq=False)
class Logs(Table):
    """A row for each replica that was read raw at the end, when it was in sync."""

    broker: Column
    partition: Column
    log_start: Column
    high_watermark: Column


@dataclass(frozen=True, slots=True, eq=False)
class Replicas(Table):
    """A row for each record of those replicas. A control record has a number below 0 that stands for its content."""

    broker: Column
    partition: Column
    offset: Column
    value: Column
