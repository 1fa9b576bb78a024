"""The history of a run: client operations and final replica contents, as tables of integer columns."""

import re
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import Field, dataclass, fields
from enum import IntEnum
from hashlib import blake2b
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

Column = npt.NDArray[np.int64]
Operation = dict[str, int | str]
"""One row as a dict: the name of the table as "operation", and the cells by column."""

UNKNOWN = -1
"""Placeholder of an offset or a time that no client received."""
BY_FOLLOWER = -2
"""Placeholder of a leader epoch where a follower answered. A follower may lag."""
ACKS_ALL = -1
SEQUENCE_BITS = 40
PRODUCERS_MAX = 1 << (63 - SEQUENCE_BITS)


class Outcome(IntEnum):
    """The outcome of an operation for its client. INFO: the operation may take effect now, later or never."""

    OK = 1
    FAIL = 2
    INFO = 3


def value_of(producer: int, sequence: int) -> int:
    """Return the value of a record, unique within the run."""
    assert 0 <= producer < PRODUCERS_MAX, f"there is no producer {producer}"
    assert 0 <= sequence < 1 << SEQUENCE_BITS, f"there is no sequence {sequence}"
    return producer << SEQUENCE_BITS | sequence


def content_of(key: bytes | None, headers: Iterable[tuple[str, bytes | None]], timestamp: int) -> int:
    """Return a hash of the key, headers and timestamp of a record. Equal contents have equal hashes."""
    parts = (b"\0" if key is None else b"\1" + key, repr([*headers]).encode(), b"%d" % timestamp)
    return int.from_bytes(blake2b(b"\n".join(parts), digest_size=8).digest(), "big") >> 1


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """Rows in the order in which they were recorded. Every field is a column; all columns have the same length."""

    def __len__(self) -> int:
        first: Column = getattr(self, fields(self)[0].name)
        return len(first)

    def operation(self, row: int) -> Operation:
        """Return one row as a dict."""
        cells = {field.name: int(getattr(self, field.name)[row]) for field in fields(self)}
        outcome = {"outcome": Outcome(cells["outcome"]).name.lower()} if "outcome" in cells else {}
        name = re.sub("(?<!^)(?=[A-Z])", "-", type(self).__name__).lower()
        one = name.removesuffix("es") if name.endswith("ches") else name.removesuffix("s")
        return {"operation": one, **cells, **outcome}


@dataclass(frozen=True, slots=True, eq=False)
class Sends(Table):
    """One row per record that a producer began to send. The sequences of a producer are 0, 1, 2, … in this order."""

    producer: Column
    sequence: Column
    partition: Column
    invoked_ns: Column
    ended_ns: Column
    outcome: Column
    offset: Column
    acks: Column
    timestamp: Column
    """Milliseconds, as the producer set them; UNKNOWN where the broker sets the timestamp."""
    content: Column
    """Hash by `content_of`."""
    transaction: Column
    """The row of the record's transaction in Transactions; UNKNOWN for a record outside transactions."""

    @property
    def value(self) -> Column:
        """The values of the records, by `value_of`."""
        return self.producer << SEQUENCE_BITS | self.sequence

    def operation(self, row: int) -> Operation:
        """Return one row as a dict, with the value of the record."""
        return {**Table.operation(self, row), "value": value_of(int(self.producer[row]), int(self.sequence[row]))}


@dataclass(frozen=True, slots=True, eq=False)
class Polls(Table):
    """One row per record that a consumer received. `batch` is the number of the consumer's poll call."""

    consumer: Column
    partition: Column
    offset: Column
    value: Column
    polled_ns: Column
    batch: Column
    content: Column
    """Hash by `content_of`."""


@dataclass(frozen=True, slots=True, eq=False)
class ConsumerAssignments(Table):
    """One row per start of a consumer at a position of a partition: by assignment, by a rebalance, or by a seek."""

    consumer: Column
    partition: Column
    since_ns: Column


@dataclass(frozen=True, slots=True, eq=False)
class Commits(Table):
    """One row per offset that a group member committed, or (`is_read` 1) fetched as the committed offset."""

    group: Column
    generation: Column
    partition: Column
    offset: Column
    outcome: Column
    is_read: Column


@dataclass(frozen=True, slots=True, eq=False)
class ProducerSessions(Table):
    """One row per InitProducerId of a transactional id, until it is answered. A later session fences the earlier ones.

    Transactional ids are small numbers.
    """

    transactional_id: Column
    producer_id: Column
    producer_epoch: Column
    timeout_ms: Column
    invoked_ns: Column
    began_ns: Column
    """The time of the successful answer; UNKNOWN if there was none."""


@dataclass(frozen=True, slots=True, eq=False)
class Transactions(Table):
    """One row per transaction that a client began. Its records are the sends that name it."""

    session: Column
    """The row in ProducerSessions."""
    began_ns: Column
    """The time before the first request of the transaction."""
    end_invoked_ns: Column
    """The time at which EndTxn was first sent; UNKNOWN if it never was."""
    ended_ns: Column
    is_commit: Column
    """Whether EndTxn asked for a commit: 1 or 0; UNKNOWN if EndTxn was never sent."""
    outcome: Column
    """OK: EndTxn was acknowledged. FAIL: the transaction is not, and never will be, what EndTxn asked for. An EndTxn
    that was never sent leaves INFO: the coordinator aborts the transaction some time."""


@dataclass(frozen=True, slots=True, eq=False)
class TransactionOffsets(Table):
    """One row per consumed range of a partition whose end a transaction committed as the offset of a group.

    Records from `begin` to before `end` are the transaction's input.
    """

    transaction: Column
    group: Column
    partition: Column
    begin: Column
    end: Column


@dataclass(frozen=True, slots=True, eq=False)
class OffsetReads(Table):
    """One row per committed offset of a group that a client fetched with require_stable; UNKNOWN where there is none.

    Only groups whose offsets are committed in transactions have rows.
    """

    group: Column
    partition: Column
    offset: Column
    invoked_ns: Column
    at_ns: Column


@dataclass(frozen=True, slots=True, eq=False)
class MemberEpochs(Table):
    """One row per epoch that a member of a group (KIP-848) got in an answer, in the order of its answers."""

    group: Column
    member: Column
    epoch: Column
    invoked_ns: Column
    at_ns: Column


@dataclass(frozen=True, slots=True, eq=False)
class Ownerships(Table):
    """One row per time in which a partition was certainly a group member's (KIP-848), as one coordinator confirmed it.

    It begins with the answer that has the partition, and ends as the last request was sent that named the partition and
    was accepted: the member may have been fenced after that.
    """

    group: Column
    member: Column
    partition: Column
    epoch: Column
    """The member's epoch in the answer."""
    coordinator: Column
    """The broker that confirmed it; UNKNOWN if the client does not know."""
    since_ns: Column
    until_ns: Column


@dataclass(frozen=True, slots=True, eq=False)
class ShareGroupLimits(Table):
    """One row per share group (KIP-932). Share groups begin at the start of the log."""

    group: Column
    delivery_limit: Column
    has_dead_letters: Column
    """Whether the history has all records of the group's dead-letter topic (KIP-1191): 1 or 0."""


@dataclass(frozen=True, slots=True, eq=False)
class Acquisitions(Table):
    """One row per range of offsets, from `begin` to before `end`, that a member of a share group acquired by a fetch.

    A fetch that acquired nothing has a row with an empty range. A fetch without an answer has the outcome INFO and an
    empty range: it may have acquired anything.
    """

    group: Column
    member: Column
    session: Column
    """Numbers the member's share sessions, which end with their connection. No two members have the same session."""
    partition: Column
    begin: Column
    end: Column
    delivery_count: Column
    lock_ms: Column
    """The time for which the records are locked."""
    leader_epoch: Column
    """The epoch of the leader that answered; UNKNOWN if that is not known."""
    invoked_ns: Column
    at_ns: Column
    outcome: Column


class AckType(IntEnum):
    """The acknowledgement of an acquired record by a member of a share group, by Kafka's numbers."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


@dataclass(frozen=True, slots=True, eq=False)
class Acknowledgements(Table):
    """One row per range of offsets, from `begin` to before `end`, that a member of a share group acknowledged."""

    group: Column
    member: Column
    session: Column
    partition: Column
    begin: Column
    end: Column
    type: Column
    """An AckType."""
    invoked_ns: Column
    ended_ns: Column
    outcome: Column


@dataclass(frozen=True, slots=True, eq=False)
class ShareStarts(Table):
    """One row per start offset of a share group in a partition, as a client received it."""

    group: Column
    partition: Column
    start: Column
    at_ns: Column


@dataclass(frozen=True, slots=True, eq=False)
class DeadLetterPlaces(Table):
    """One row per record of the dead-letter topic of a share group at the end, with the place of the dead record."""

    group: Column
    partition: Column
    offset: Column


@dataclass(frozen=True, slots=True, eq=False)
class CommittedReaders(Table):
    """One row per consumer that reads with the isolation level read_committed."""

    consumer: Column


@dataclass(frozen=True, slots=True, eq=False)
class Watermarks(Table):
    """One row per high watermark or log start offset that a client received, from Fetch or ListOffsets.

    UNKNOWN stands for each value that was not in the answer.
    """

    client: Column
    partition: Column
    high_watermark: Column
    log_start: Column
    at_ns: Column
    invoked_ns: Column
    """The time at which the request was sent."""
    leader_epoch: Column
    """The epoch of the leader that answered; BY_FOLLOWER for another replica."""
    last_stable: Column
    read_end: Column
    """The end of the last batch in the same answer."""
    leaders_end: Column
    """The largest high watermark that any leader had had by then, as observed outside the brokers."""


@dataclass(frozen=True, slots=True, eq=False)
class Elections(Table):
    """One row per leader epoch of a partition, as observed in the metadata. The epoch began after `after_ns`."""

    partition: Column
    leader_epoch: Column
    after_ns: Column


@dataclass(frozen=True, slots=True, eq=False)
class Lookups(Table):
    """One row per ListOffsets request for the first record at or after a time in milliseconds.

    The answer is UNKNOWN where there is no such record.
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
    """One row per OffsetForLeaderEpoch request to a leader."""

    client: Column
    partition: Column
    invoked_ns: Column
    at_ns: Column
    leader_epoch: Column
    """The epoch of the leader that answered."""
    wanted: Column
    epoch: Column
    """The epoch in the answer: the largest epoch that is not above `wanted`."""
    end: Column


@dataclass(frozen=True, slots=True, eq=False)
class Batches(Table):
    """One row per batch that a consumer received."""

    partition: Column
    base: Column
    end: Column
    leader_epoch: Column
    at_ns: Column


@dataclass(frozen=True, slots=True, eq=False)
class LogDeletions(Table):
    """One row per permission to delete the oldest records of a partition.

    All of `before`, `age_ms` and `keep_records` but one are UNKNOWN.
    """

    partition: Column
    before: Column
    """DeleteRecords: every record below this offset is deleted."""
    age_ms: Column
    """Retention by time: records with a timestamp older than this, by the shared clock, may be deleted."""
    keep_records: Column
    """Retention by size: at least this many of the newest records stay."""
    invoked_ns: Column
    ended_ns: Column
    outcome: Column


@dataclass(frozen=True, slots=True, eq=False)
class Faults(Table):
    """One row per fault, in the order in which the faults struck."""

    kind: Column
    """The number of the fault's kind in `checks.unavailable`."""
    since_ns: Column
    until_ns: Column
    """The time at which the fault was undone."""
    is_alone: Column
    """Whether the cluster was healthy when the fault struck."""


@dataclass(frozen=True, slots=True, eq=False)
class Logs(Table):
    """One row per in-sync replica that was read from disk at the end."""

    broker: Column
    partition: Column
    log_start: Column
    high_watermark: Column


@dataclass(frozen=True, slots=True, eq=False)
class ReplicaRecords(Table):
    """One row per record of those replicas. A control record has a value below 0 that stands for its content."""

    broker: Column
    partition: Column
    offset: Column
    value: Column


class NotAHistory(ValueError):
    """The file does not hold a history of this version. The message is a sentence for the user."""


@dataclass(frozen=True, slots=True, eq=False)
class History:
    """All observations of one run. Partitions are numbered over all topics; clients and brokers are small integers."""

    sends: Sends
    polls: Polls
    assignments: ConsumerAssignments
    commits: Commits
    sessions: ProducerSessions
    transactions: Transactions
    transaction_offsets: TransactionOffsets
    offset_reads: OffsetReads
    member_epochs: MemberEpochs
    ownerships: Ownerships
    share_groups: ShareGroupLimits
    acquisitions: Acquisitions
    acknowledgements: Acknowledgements
    share_starts: ShareStarts
    dead_letters: DeadLetterPlaces
    committed_readers: CommittedReaders
    watermarks: Watermarks
    elections: Elections
    lookups: Lookups
    epoch_ends: EpochEnds
    batches: Batches
    deletions: LogDeletions
    faults: Faults
    logs: Logs
    replicas: ReplicaRecords

    def save(self, file: BinaryIO) -> None:
        """Write the history as numpy's .npz: one array per column, named table.column."""
        columns = {
            f"{table.name}.{column.name}": getattr(getattr(self, table.name), column.name)
            for table in fields(self)
            for column in fields(getattr(self, table.name))
        }
        np.savez(file, **columns)

    @classmethod
    def load(cls, file: BinaryIO) -> "History":
        """Read a file that `save` wrote. Raises NotAHistory."""
        try:
            with np.load(file, allow_pickle=False) as columns:
                return cls(**{table.name: _loaded(table, columns) for table in fields(cls)})
        except (AttributeError, EOFError, KeyError, TypeError, ValueError, zipfile.BadZipFile) as error:
            raise NotAHistory(f"This is not a history of this version: {error}") from error


def _loaded(table: Field[Any], columns: Mapping[str, Column]) -> Any:
    form: Any = table.type
    return form(*(columns[f"{table.name}.{column.name}"] for column in fields(form)))
