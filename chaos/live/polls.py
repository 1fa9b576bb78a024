"""Checks of a reader's polls during faults, against each other and against the final log."""

from collections.abc import Iterable, Iterator

from confluent_kafka import KafkaError

from cordwood.chaos.live.ack_log import BrokenPromise, SentRecord
from cordwood.chaos.live.rows import PolledRecord

NEVER_REPORTED = {
    KafkaError._BAD_MSG: "served-damage",
    KafkaError._AUTO_OFFSET_RESET: "watermark-regress",
    KafkaError._LOG_TRUNCATION: "watermark-regress",
    KafkaError.OFFSET_OUT_OF_RANGE: "watermark-regress",
}
"""Errors that a reader of committed records must never get, and the anomaly that each one shows."""


def compare(reads: Iterable[PolledRecord], found: dict[int, list[tuple[int, SentRecord]]]) -> Iterator[BrokenPromise]:
    """Yield the anomalies of one reader that was never reassigned.

    `found` has each partition's records at the end. A record that was readable at an offset must still be there.
    """
    final = {(partition, offset): sent for partition, records in found.items() for offset, sent in records}
    due: dict[int, int] = {}
    for read in reads:
        if read.error:
            if read.error in NEVER_REPORTED:
                yield BrokenPromise(
                    NEVER_REPORTED[read.error], f"a consumer got the error: {KafkaError(read.error).str()}"
                )
            continue
        place = f"offset {read.offset} of partition {read.partition}"
        expected = due.get(read.partition, read.offset)
        if read.offset > expected:
            yield BrokenPromise("poll-skip", f"{place} came where {expected} was due")
        elif read.offset < expected:
            yield BrokenPromise("nonmonotonic-poll", f"{place} came where {expected} was due")
        due[read.partition] = read.offset + 1
        sent, there = (
            SentRecord(read.producer, read.named_partition, read.number),
            final.get((read.partition, read.offset)),
        )
        if there is None:
            yield BrokenPromise("lost-write", f"{sent} was read at {place}, and nothing is there now")
        elif there != sent:
            yield BrokenPromise("inconsistent-offsets", f"{sent} was read at {place}, where {there} is now")


def compare_group(
    reads: Iterable[PolledRecord], found: dict[int, list[tuple[int, SentRecord]]]
) -> Iterator[BrokenPromise]:
    """Yield the anomalies of a group that read all the time with default client settings: errors and missed records.

    A record may come again after a rebalance, because offsets are committed at an interval.
    """
    given: set[tuple[int, int]] = set()
    for read in reads:
        if read.error:
            yield BrokenPromise("client-error", f"a consumer got the error: {KafkaError(read.error).str()}")
        given.add((read.partition, read.offset))
    for partition, records in sorted(found.items()):
        missed = [offset for offset, _ in records if (partition, offset) not in given]
        if missed:
            yield BrokenPromise(
                "unseen", f"{len(missed)} of partition {partition} were never read, the first at {missed[0]}"
            )
