"""Conversion of client logs and the replicas on disk into a history for the checkers."""

from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import NamedTuple

import numpy as np
from confluent_kafka import KafkaError

from cordwood.chaos.checks.anomaly import Anomaly
from cordwood.chaos.history import Outcome
from cordwood.chaos.history_builder import HistoryBuilder
from cordwood.chaos.live.client_rows import NONE, PollKind, RowArray, SendKind
from cordwood.chaos.live.replica_logs import TOPICS, batches_in
from cordwood.chaos.produce_errors import ProduceGuarantee, guarantee_of
from cordwood.chaos.workload import decode as value_in
from cordwood.storage.records import decode

Place = tuple[int, int]
"""A partition and an offset."""

GROUP = 0
LAST_GENERATION = 1 << 30
OFFSET_BITS = 48

NEVER_REPORTED = {
    KafkaError._BAD_MSG: "served-damage",
    KafkaError._AUTO_OFFSET_RESET: "watermark-regress",
    KafkaError._LOG_TRUNCATION: "watermark-regress",
    KafkaError.OFFSET_OUT_OF_RANGE: "watermark-regress",
}
"""Errors that a reader of committed records must never get, and the anomaly that each one shows."""


def add_sends(history: HistoryBuilder, producers: Sequence[RowArray]) -> None:
    """Add the producers' sends and acknowledgements. A producer's number is its index."""
    for number, rows in enumerate(producers):
        sends: dict[int, int] = {}
        for kind, sequence, partition, offset, error, _invoked_ns, at_ns, content in rows.tolist():
            if kind == SendKind.INVOKED:
                sends[sequence] = history.invoke(number, sequence, partition, at_ns, content=content)
            elif kind == SendKind.ACKNOWLEDGED:
                history.ok(sends[sequence], offset if offset >= 0 else NONE, at_ns)
            elif guarantee_of(error) is ProduceGuarantee.NEVER:
                history.fail(sends[sequence], at_ns)
            else:
                # librdkafka reports the answer to its last request only, not the answers to its earlier tries.
                history.info(sends[sequence], at_ns)


def add_polls(history: HistoryBuilder, consumers: Sequence[RowArray], left_out: Set[Place]) -> None:
    """Add the consumers' polls, assignments and watermarks. A consumer's number is its index."""
    for consumer, rows in enumerate(consumers):
        for kind, partition, offset, value, batch, at_ns, content in rows.tolist():
            if kind == PollKind.POLLED and (partition, offset) not in left_out:
                history.poll(consumer, partition, offset, value, at_ns, batch, content)
            elif kind == PollKind.ASSIGNED:
                history.assign(consumer, partition, at_ns)
            elif kind == PollKind.WATERMARK:
                history.watermark(consumer, partition, offset, value, at_ns)


def add_commits(history: HistoryBuilder, members: Sequence[RowArray]) -> None:
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
                history.commit(GROUP, generations[member, assignment], partition, offset, outcome)


def add_final_commits(history: HistoryBuilder, committed: Mapping[int, int]) -> None:
    """Add the group's committed offsets, by partition, as read after all of its members have left."""
    for partition, offset in committed.items():
        history.read_commit(GROUP, LAST_GENERATION, partition, offset)


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


def _replica_in(directory: Path) -> RawReplica:
    # The log start is the oldest segment's base offset, not the first record's offset: an earlier record may be lost.
    start = end = min((int(segment.stem) for segment in directory.glob("*.log")), default=0)
    records: list[RawRecord] = []
    for header, batch in batches_in(directory):
        end, producer = header.end, (header.producer_id, header.producer_epoch)
        records += (RawRecord(record.offset, value_in(record.value), producer) for record in decode(batch))
    return RawReplica(start, end, records)


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


def sent_again(replicas: RawReplicas) -> frozenset[Place]:
    """Return the places of records that the client itself sent again under another producer id or epoch.

    An idempotent producer that has lost track of its sequences begins a new epoch, and librdkafka then sends again the
    records without an answer. The broker finds duplicates within one epoch only (rule 9), so these are no anomaly; the
    last copy counts.
    """
    copies: dict[tuple[int, int], dict[tuple[int, int], int]] = {}
    earlier: set[Place] = set()
    for (_, partition), replica in replicas.items():
        for record in replica.records:
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
    told = [rows[rows["kind"] == PollKind.REPORTED_ERROR] for rows in consumers]
    codes, counts = np.unique(np.concatenate([rows["value"] for rows in told]), return_counts=True)
    for code, count in zip(codes.tolist(), counts.tolist(), strict=True):
        if code in NEVER_REPORTED:
            yield Anomaly(NEVER_REPORTED[code], f"A consumer got the error: {KafkaError(code).str()}.", (), count)


def given_up(producers: Sequence[RowArray]) -> Iterator[Anomaly]:
    """Yield the sends that a producer gave up although every fault had been undone long before."""
    rows = np.concatenate([rows[rows["kind"] == SendKind.GIVEN_UP] for rows in producers])
    codes, counts = np.unique(rows["error"], return_counts=True)
    for code, count in zip(codes.tolist(), counts.tolist(), strict=True):
        yield Anomaly("failed-send", f"A producer got the error: {KafkaError(code).str()}.", (), count)
