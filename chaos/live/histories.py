"""Conversion of client logs and the replicas on disk into a history for the checkers."""

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from confluent_kafka import KafkaError

from cordwood.chaos.checks.anomaly import Anomaly
from cordwood.chaos.checks.unavailable import NO_BOUND, NS_PER_S
from cordwood.chaos.history import SEQUENCE_BITS, UNKNOWN, Outcome, value_of
from cordwood.chaos.history_builder import HistoryBuilder
from cordwood.chaos.live.client_rows import NONE, PollKind, RowArray, SendKind, TransactionKind
from cordwood.chaos.live.decisions import Asked, Client, DecisionReader, MarkerOnDisk
from cordwood.chaos.live.replica_logs import TOPICS, batches_in
from cordwood.chaos.produce_errors import ProduceGuarantee, guarantee_of
from cordwood.chaos.transfers import ReadEntry, TransferEntry
from cordwood.chaos.workload import decode as value_in
from cordwood.storage.records import decode

Place = tuple[int, int]
"""A partition and an offset."""

GROUP, CONSUMER_GROUP = 0, 1000
"""The numbers of the groups of the classic protocol and of the consumer protocol (KIP-848)."""
LAST_GENERATION = 1 << 30
OFFSET_BITS = 48

NEVER_REPORTED = {
    KafkaError._BAD_MSG: "served-damage",
    KafkaError._AUTO_OFFSET_RESET: "watermark-regress",
    KafkaError._LOG_TRUNCATION: "watermark-regress",
    KafkaError.OFFSET_OUT_OF_RANGE: "watermark-regress",
}
"""Errors that a reader of committed records must never get, and the anomaly that each one shows."""


def add_sends(
    history: HistoryBuilder, producers: Sequence[RowArray], transactions: Mapping[Client, int] = MappingProxyType({})
) -> None:
    """Add the producers' sends and acknowledgements. A producer's number is its index.

    `transactions` are those that `add_transactions` has added.
    """
    for number, rows in enumerate(producers):
        sends: dict[int, int] = {}
        for kind, sequence, partition, offset, error, _invoked_ns, at_ns, content, transaction in rows.tolist():
            if kind == SendKind.INVOKED:
                within = transactions.get((number, transaction), UNKNOWN)
                sends[sequence] = history.invoke(
                    number, sequence, partition, at_ns, content=content, transaction=within
                )
            elif kind == SendKind.ACKNOWLEDGED:
                history.ok(sends[sequence], offset if offset >= 0 else NONE, at_ns)
            elif guarantee_of(error) is ProduceGuarantee.NEVER:
                history.fail(sends[sequence], at_ns)
            else:
                # librdkafka reports the answer to its last request only, not the answers to its earlier tries.
                history.info(sends[sequence], at_ns)


def add_transactions(history: HistoryBuilder, clients: Mapping[int, RowArray], orders_from: int) -> dict[Client, int]:
    """Add the sessions and transactions of clients, by producer number. Return the transactions in the history.

    `orders_from` is the number of the partition after the last one with records: each client's orders are the offsets
    of a partition of their own from there on, and a group of their own.
    """
    added: dict[Client, int] = {}
    ending: set[int] = set()
    for place, (number, rows) in enumerate(clients.items()):
        group, session, current = GROUP + 1 + place, UNKNOWN, UNKNOWN
        for kind, transaction, first, second, at_ns in rows.tolist():
            if kind == TransactionKind.INITIALIZING:
                session = history.session(place, first, at_ns)
            elif kind == TransactionKind.INITIALIZED:
                history.session_began(session, at_ns, first, second)
            elif kind == TransactionKind.OFFSET_READ:
                history.read_offset(group, orders_from + place, first, second, at_ns)
            elif kind == TransactionKind.BEGUN:
                current = added[number, transaction] = history.begin_transaction(session, at_ns)
            elif kind == TransactionKind.OFFSET_SENT:
                history.send_offset(current, group, orders_from + place, first, second)
            elif kind == TransactionKind.ENDED:
                history.transaction_ended(current, at_ns, Outcome(first))
            elif current not in ending:
                ending.add(current)
                history.end_transaction(current, at_ns, is_commit=kind == TransactionKind.COMMITTING)
    return added


def asked_of(clients: Mapping[int, RowArray]) -> dict[Client, Asked]:
    """Return the state of each client's transactions. The first EndTxn counts."""
    known: dict[Client, Asked] = {}
    for number, rows in clients.items():
        for kind, transaction, first, _second, _at_ns in rows.tolist():
            before = known.get((number, transaction), Asked(None, Outcome.INFO))
            if kind in (TransactionKind.COMMITTING, TransactionKind.ABORTING) and before.is_commit is None:
                known[number, transaction] = before._replace(is_commit=kind == TransactionKind.COMMITTING)
            elif kind == TransactionKind.ENDED:
                known[number, transaction] = before._replace(outcome=Outcome(first))
    return known


def transactions_by_value(producers: Mapping[int, RowArray]) -> dict[int, Client]:
    """Return the transaction of each value that a transactional client sent, by producer number."""
    return {
        value_of(number, sequence): (number, transaction)
        for number, rows in producers.items()
        for sequence, transaction in rows[rows["kind"] == SendKind.INVOKED][["sequence", "transaction"]].tolist()
    }


def entries_of(rows: RowArray) -> Iterator[ReadEntry]:
    """Yield the entries of transfers that a consumer got, in its order."""
    for _kind, account, balance, value, batch, _at_ns, amount in rows[rows["kind"] == PollKind.TRANSFER].tolist():
        entry = TransferEntry(value & ((1 << SEQUENCE_BITS) - 1), account, amount, balance)
        yield ReadEntry(value >> SEQUENCE_BITS, batch, entry)


def add_polls(history: HistoryBuilder, consumers: Sequence[RowArray], left_out: Set[Place], first: int = 0) -> None:
    """Add the consumers' polls, assignments and watermarks. A consumer's number is its index after `first`."""
    for consumer, rows in enumerate(consumers, first):
        for kind, partition, offset, value, batch, at_ns, content in rows.tolist():
            if kind == PollKind.POLLED and (partition, offset) not in left_out:
                history.poll(consumer, partition, offset, value, at_ns, batch, content)
            elif kind == PollKind.ASSIGNED:
                history.assign(consumer, partition, at_ns)
            elif kind == PollKind.WATERMARK:
                history.watermark(consumer, partition, offset, value, at_ns)


def add_commits(history: HistoryBuilder, members: Sequence[RowArray], group: int = GROUP) -> None:
    """Add the offset commits of the members of one group.

    A client does not report its generation. But a member that is assigned a partition has it in a later generation than
    all members that were assigned it before, or its commits are refused. So the order of the assignments serves as the
    generation.
    """
    begun = sorted(
        (at_ns, member, assignment)
        for member, rows in enumerate(members)
        for kind, _partition, _offset, _value, assignment, at_ns, _content in rows.tolist()
        if kind == PollKind.ASSIGNED
    )
    generations = {(member, assignment): rank for rank, (_, member, assignment) in enumerate(begun)}
    for member, rows in enumerate(members):
        for kind, partition, offset, _value, assignment, _at_ns, _content in rows.tolist():
            if kind in (PollKind.COMMITTED, PollKind.COMMIT_UNSURE):
                outcome = Outcome.OK if kind == PollKind.COMMITTED else Outcome.INFO
                history.commit(group, generations[member, assignment], partition, offset, outcome)


def add_ownerships(history: HistoryBuilder, members: Sequence[RowArray], first: int, group: int = GROUP) -> None:
    """Add the times in which partitions were members', from the assignment to the request to give them back.

    A member that the group has forgotten may have lost its partitions at any time. A member's number is its index after
    `first`.
    """
    for member, rows in enumerate(members, first):
        since: dict[int, int] = {}
        for kind, partition, _offset, _value, _assignment, at_ns, _content in rows.tolist():
            if kind == PollKind.ASSIGNED:
                since[partition] = at_ns
            elif kind == PollKind.LOST:
                since.pop(partition, None)
            elif kind == PollKind.REVOKED and partition in since:
                history.owned(group, member, partition, UNKNOWN, (since.pop(partition), at_ns))


def add_faults(history: HistoryBuilder, spans: Sequence[tuple[float, float]]) -> None:
    """Add the faults of a run: when each began and was undone, in seconds of the monotonic clock."""
    for since_s, until_s in spans:
        history.fault(NO_BOUND, int(since_s * NS_PER_S), int(until_s * NS_PER_S), is_alone=False)


def add_final_commits(history: HistoryBuilder, committed: Mapping[int, int], group: int = GROUP) -> None:
    """Add the group's committed offsets, by partition, as read after all of its members have left."""
    for partition, offset in committed.items():
        history.read_commit(group, LAST_GENERATION, partition, offset)


def polled_count(rows: RowArray) -> int:
    """Return how many records a consumer polled."""
    return int((rows["kind"] == PollKind.POLLED).sum())


def error_count(rows: RowArray) -> int:
    """Return how many errors a consumer got."""
    return int((rows["kind"] == PollKind.REPORTED_ERROR).sum())


def unread(of: Sequence[RowArray], by: Sequence[RowArray]) -> int:
    """Return how many records some consumers polled that none of the others did."""
    polled, polled_by_others = (
        rows["partition"] << OFFSET_BITS | rows["offset"]
        for consumers in (of, by)
        for whole in [np.concatenate(consumers)]
        for rows in [whole[whole["kind"] == PollKind.POLLED]]
    )
    return len(np.setdiff1d(polled, polled_by_others))


class RawRecord(NamedTuple):
    """A record on disk."""

    offset: int
    value: int
    producer: tuple[int, int]
    """Its idempotent producer's id and epoch."""


class RawReplica(NamedTuple):
    """A replica on disk, from the start of its oldest segment to the end of its last batch."""

    log_start: int
    log_end: int
    records: Sequence[RawRecord]
    decisions: Sequence[MarkerOnDisk] = ()
    """Of the transactions that wrote to the partition."""

    def content(self, start: int, end: int) -> list[tuple[int, int]]:
        """Return offset and value of every record from `start` to before `end`."""
        return [(record.offset, record.value) for record in self.records if start <= record.offset < end]


RawReplicas = Mapping[tuple[int, int], RawReplica]
"""By broker and partition."""


def replicas_on(data: Mapping[int, Path], topic_id: str) -> RawReplicas:
    """Return each broker's replica of each partition of a topic."""
    return {
        (broker, int(directory.name)): _replica_in(directory)
        for broker, path in data.items()
        for directory in sorted((path / TOPICS / topic_id).glob("*"))
    }


def with_archived(
    replicas: RawReplicas, topic_id: str, archived: Callable[[str, int, int], Sequence[RawRecord]]
) -> RawReplicas:
    """Return the replicas with the records before their first segments, which only the archive has."""
    return {
        (broker, partition): replica._replace(
            log_start=0, records=[*archived(topic_id, partition, replica.log_start), *replica.records]
        )
        for (broker, partition), replica in replicas.items()
    }


def _replica_in(directory: Path) -> RawReplica:
    # The log start is the oldest segment's base offset, not the first record's offset: an earlier record may be lost.
    start = end = min((int(segment.stem) for segment in directory.glob("*.log")), default=0)
    records: list[RawRecord] = []
    decided = DecisionReader(int(directory.name))
    for header, batch in batches_in(directory):
        end, producer = header.end, (header.producer_id, header.producer_epoch)
        held = [RawRecord(record.offset, value_in(record.value), producer) for record in decode(batch)]
        records += held
        decided.take(header, batch, [record.value for record in held])
    return RawReplica(start, end, records, decided.end())


def decisions_in(replicas: RawReplicas) -> Iterator[MarkerOnDisk]:
    """Yield the decisions in one replica of each partition. The checker compares the replicas."""
    seen: set[int] = set()
    for (_, partition), replica in replicas.items():
        if partition not in seen:
            seen.add(partition)
            yield from replica.decisions


def differing(replicas: RawReplicas) -> frozenset[int]:
    """Return the partitions whose replicas differ in the range that all have. The checker names the records."""
    copies: dict[int, list[RawReplica]] = {}
    for (_, partition), replica in replicas.items():
        copies.setdefault(partition, []).append(replica)
    return frozenset(partition for partition, held in copies.items() if _differ(held))


def _differ(copies: Sequence[RawReplica]) -> bool:
    start, end = max(copy.log_start for copy in copies), min(copy.log_end for copy in copies)
    one, *others = (copy.content(start, end) for copy in copies)
    return any(other != one for other in others)


def sent_again(replicas: RawReplicas, producers: int) -> frozenset[Place]:
    """Return the places of records that the client itself sent again under another producer id or epoch.

    An idempotent producer that has lost track of its sequences begins a new epoch, and librdkafka then sends again the
    records without an answer. The broker finds duplicates within one epoch only (rule 9), so these are no anomaly; the
    last copy counts. Producers from number `producers` on are transactional: they send nothing again.
    """
    copies: dict[tuple[int, int], dict[tuple[int, int], int]] = {}
    earlier: set[Place] = set()
    for (_, partition), replica in replicas.items():
        for record in replica.records:
            if not 0 <= record.value >> SEQUENCE_BITS < producers:
                continue
            known = copies.setdefault((partition, record.value), {})
            earlier.update((partition, offset) for who, offset in known.items() if who != record.producer)
            known.setdefault(record.producer, record.offset)
    last = {(partition, max(known.values())) for (partition, _), known in copies.items()}
    return frozenset(earlier - last)


def add_replicas(
    history: HistoryBuilder,
    replicas: RawReplicas,
    left_out: Set[Place],
) -> None:
    """Add every replica of the topic. The replicas were in sync, so each is committed to its end."""
    for (broker, partition), replica in replicas.items():
        start, end = replica.log_start, replica.log_end
        kept = (row for row in replica.content(start, end) if (partition, row[0]) not in left_out)
        history.replica(broker, partition, start, end, kept)


def reported_errors(consumers: Sequence[RowArray]) -> Iterator[Anomaly]:
    """Yield the errors that a reader of committed records must never get."""
    reported = [rows[rows["kind"] == PollKind.REPORTED_ERROR] for rows in consumers]
    codes, counts = np.unique(np.concatenate([rows["value"] for rows in reported]), return_counts=True)
    for code, count in zip(codes.tolist(), counts.tolist(), strict=True):
        if code in NEVER_REPORTED:
            yield Anomaly(NEVER_REPORTED[code], f"A consumer got the error: {KafkaError(code).str()}.", (), count)


def given_up(producers: Sequence[RowArray]) -> Iterator[Anomaly]:
    """Yield the sends that a producer dropped although every fault had ended long before."""
    rows = np.concatenate([rows[rows["kind"] == SendKind.GIVEN_UP] for rows in producers])
    codes, counts = np.unique(rows["error"], return_counts=True)
    for code, count in zip(codes.tolist(), counts.tolist(), strict=True):
        yield Anomaly("failed-send", f"A producer got the error: {KafkaError(code).str()}.", (), count)
