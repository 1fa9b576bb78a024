"""What clients asked and were told, and what every replica holds in the end: rows of numbers, kept by column."""

import zipfile
from array import array
from collections.abc import Callable, Iterable, Mapping
from dataclasses import Field, dataclass, fields
from typing import Any, BinaryIO, Generic, TypeVar

import numpy as np

from cordwood.chaos.history_tables import (
    ACKS_ALL,
    BY_FOLLOWER,
    PRODUCERS_MAX,
    SEQUENCE_BITS,
    UNKNOWN,
    Assignments,
    Batches,
    Column,
    Commits,
    Deletions,
    Elections,
    EpochEnds,
    Faults,
    Logs,
    Lookups,
    Operation,
    Outcome,
    Polls,
    Replicas,
    Sends,
    Table,
    Watermarks,
    content_of,
    value_of,
)

__all__ = [
    "ACKS_ALL",
    "BY_FOLLOWER",
    "PRODUCERS_MAX",
    "SEQUENCE_BITS",
    "UNKNOWN",
    "Assignments",
    "Batches",
    "Column",
    "Commits",
    "Deletions",
    "Elections",
    "EpochEnds",
    "Faults",
    "History",
    "HistoryBuilder",
    "Logs",
    "Lookups",
    "NotAHistory",
    "Operation",
    "Outcome",
    "Polls",
    "Replicas",
    "Sends",
    "Table",
    "Watermarks",
    "content_of",
    "value_of",
]


class NotAHistory(ValueError):
    """The file holds something else. The message is a sentence for whoever named it."""


@dataclass(frozen=True, slots=True, eq=False)
class History:
    """All that is known of a run. Partitions, numbered over all topics, clients and brokers are small numbers."""

    sends: Sends
    polls: Polls
    assignments: Assignments
    commits: Commits
    watermarks: Watermarks
    elections: Elections
    lookups: Lookups
    epoch_ends: EpochEnds
    batches: Batches
    deletions: Deletions
    faults: Faults
    logs: Logs
    replicas: Replicas

    def save(self, file: BinaryIO) -> None:
        """Write it as numpy's .npz, one array a column, named table.column."""
        columns = {
            f"{table.name}.{column.name}": getattr(getattr(self, table.name), column.name)
            for table in fields(self)
            for column in fields(getattr(self, table.name))
        }
        np.savez(file, **columns)

    @classmethod
    def load(cls, file: BinaryIO) -> "History":
        """Read what `save` wrote. Raises NotAHistory."""
        try:
            with np.load(file, allow_pickle=False) as columns:
                return cls(**{table.name: _loaded(table, columns) for table in fields(cls)})
        except (AttributeError, EOFError, KeyError, TypeError, ValueError, zipfile.BadZipFile) as error:
            raise NotAHistory(f"This is not a history of this version: {error}") from error


def _loaded(table: Field[Any], columns: Mapping[str, Column]) -> Any:
    form: Any = table.type
    return form(*(columns[f"{table.name}.{column.name}"] for column in fields(form)))


AnyTable = TypeVar("AnyTable", bound=Table)


class _Rows(Generic[AnyTable]):
    """A table that still grows."""

    def __init__(self, table: type[AnyTable]) -> None:
        self._table = table
        self.columns = {field.name: array("q") for field in fields(table)}

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def append(self, *cells: int) -> None:
        for column, cell in zip(self.columns.values(), cells, strict=True):
            column.append(cell)

    def table(self) -> AnyTable:
        return self._table(*(np.array(column, dtype=np.int64) for column in self.columns.values()))


class HistoryBuilder:
    """Write down each thing as it happens; each client's in the order in which they happened to it.

    Times are nanoseconds of one clock that all clients share, simulated or real. `leaders_end` tells, at any time, the
    largest high watermark that any leader of a partition has had: there is such an observer in a simulated world only.
    """

    def __init__(self, leaders_end: Callable[[int], int] = lambda _partition: UNKNOWN) -> None:
        self._leaders_end = leaders_end
        self._sends = _Rows(Sends)
        self._polls = _Rows(Polls)
        self._assignments = _Rows(Assignments)
        self._commits = _Rows(Commits)
        self._watermarks = _Rows(Watermarks)
        self._elections = _Rows(Elections)
        self._lookups = _Rows(Lookups)
        self._epoch_ends = _Rows(EpochEnds)
        self._batches = _Rows(Batches)
        self._deletions = _Rows(Deletions)
        self._faults = _Rows(Faults)
        self._logs = _Rows(Logs)
        self._replicas = _Rows(Replicas)

    def invoke(
        self,
        producer: int,
        sequence: int,
        partition: int,
        at_ns: int,
        acks: int = ACKS_ALL,
        timestamp: int = UNKNOWN,
        content: int = UNKNOWN,
    ) -> int:
        """A send begins. Its outcome is INFO until another is told; returns the number to tell it by."""
        self._sends.append(
            producer, sequence, partition, at_ns, UNKNOWN, Outcome.INFO, UNKNOWN, acks, timestamp, content
        )
        return len(self._sends) - 1

    def sealed(self, send: int, timestamp: int, content: int) -> None:
        """Its record has got the timestamp, and the content, that it is sent with."""
        self._sends.columns["timestamp"][send] = timestamp
        self._sends.columns["content"][send] = content

    def ok(self, send: int, offset: int, at_ns: int) -> None:
        """It was acknowledged. `offset` is UNKNOWN for a repeat whose place the broker no longer knew."""
        self._end(send, Outcome.OK, at_ns)
        self._sends.columns["offset"][send] = offset

    def fail(self, send: int, at_ns: int) -> None:
        """It was refused, and is certainly in no log. When in doubt it is `info`."""
        self._end(send, Outcome.FAIL, at_ns)

    def info(self, send: int, at_ns: int) -> None:
        """The client gave up, and does not know."""
        self._end(send, Outcome.INFO, at_ns)

    def _end(self, send: int, outcome: Outcome, at_ns: int) -> None:
        self._sends.columns["outcome"][send] = outcome
        self._sends.columns["ended_ns"][send] = at_ns

    def poll(
        self,
        consumer: int,
        partition: int,
        offset: int,
        value: int,
        at_ns: int,
        batch: int = 0,
        content: int = UNKNOWN,
    ) -> None:
        """A consumer was given a record."""
        self._polls.append(consumer, partition, offset, value, at_ns, batch, content)

    def batch(self, partition: int, base: int, end: int, leader_epoch: int, at_ns: int) -> None:
        """A consumer was given a batch: its offsets, and the epoch of the leader that appended it."""
        self._batches.append(partition, base, end, leader_epoch, at_ns)

    def assign(self, consumer: int, partition: int, at_ns: int) -> None:
        """A consumer begins at some place of a partition; what it was given before is no longer continued."""
        self._assignments.append(consumer, partition, at_ns)

    def commit(self, group: int, generation: int, partition: int, offset: int, outcome: Outcome = Outcome.OK) -> None:
        """A member of that generation committed the offset that it is to be given next."""
        self._commits.append(group, generation, partition, offset, outcome, False)

    def read_commit(self, group: int, generation: int, partition: int, offset: int) -> None:
        """A member of that generation asked for the committed offset; UNKNOWN where it was told that there is none."""
        self._commits.append(group, generation, partition, offset, Outcome.OK, True)

    def watermark(
        self,
        client: int,
        partition: int,
        high_watermark: int,
        log_start: int,
        at_ns: int,
        *,
        invoked_ns: int = UNKNOWN,
        leader_epoch: int = UNKNOWN,
        last_stable: int = UNKNOWN,
        read_end: int = UNKNOWN,
    ) -> None:
        """A client was told how far a partition is committed, or where it starts; see Watermarks."""
        self._watermarks.append(
            client,
            partition,
            high_watermark,
            log_start,
            at_ns,
            invoked_ns,
            leader_epoch,
            last_stable,
            read_end,
            UNKNOWN if read_end == UNKNOWN else self._leaders_end(partition),
        )

    def elected(self, partition: int, leader_epoch: int, after_ns: int) -> None:
        """A leader epoch was first seen; at that time it had not begun. Those of a partition rise."""
        self._elections.append(partition, leader_epoch, after_ns)

    def looked_up(
        self,
        client: int,
        partition: int,
        wanted: int,
        answer: tuple[int, int],
        times_ns: tuple[int, int],
        leader_epoch: int = UNKNOWN,
    ) -> None:
        """A client was told the first record at or after a time: offset and timestamp, or UNKNOWN twice."""
        self._lookups.append(client, partition, *times_ns, leader_epoch, wanted, *answer)

    def epoch_end(
        self,
        client: int,
        partition: int,
        wanted: int,
        answer: tuple[int, int],
        times_ns: tuple[int, int],
        leader_epoch: int,
    ) -> None:
        """A client was told by a leader of this epoch where another ended: which epoch that is, and its end."""
        self._epoch_ends.append(client, partition, *times_ns, leader_epoch, wanted, *answer)

    def delete(
        self,
        partition: int,
        at_ns: int,
        *,
        before: int = UNKNOWN,
        age_ms: int = UNKNOWN,
        keep_records: int = UNKNOWN,
    ) -> int:
        """An administrator begins to allow it; see Deletions. Returns the number to tell its end by."""
        self._deletions.append(partition, before, age_ms, keep_records, at_ns, UNKNOWN, Outcome.INFO)
        return len(self._deletions) - 1

    def deleted(self, deletion: int, at_ns: int) -> None:
        """All of it is gone for good, or may go from now on."""
        self._deletions.columns["outcome"][deletion] = Outcome.OK
        self._deletions.columns["ended_ns"][deletion] = at_ns

    def fault(self, kind: int, since_ns: int, until_ns: int, *, is_alone: bool) -> None:
        """A fault strikes; see Faults."""
        self._faults.append(kind, since_ns, until_ns, is_alone)

    def replica(
        self, broker: int, partition: int, log_start: int, high_watermark: int, records: Iterable[tuple[int, int]]
    ) -> None:
        """The end: one in-sync replica read raw, as (offset, value). Without records too: then they are all gone."""
        self._logs.append(broker, partition, log_start, high_watermark)
        for offset, value in records:
            self._replicas.append(broker, partition, offset, value)

    def build(self) -> History:
        """Everything up to now."""
        return History(
            sends=self._sends.table(),
            polls=self._polls.table(),
            assignments=self._assignments.table(),
            commits=self._commits.table(),
            watermarks=self._watermarks.table(),
            elections=self._elections.table(),
            lookups=self._lookups.table(),
            epoch_ends=self._epoch_ends.table(),
            batches=self._batches.table(),
            deletions=self._deletions.table(),
            faults=self._faults.table(),
            logs=self._logs.table(),
            replicas=self._replicas.table(),
        )
