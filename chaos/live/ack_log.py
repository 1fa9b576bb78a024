"""Log of acknowledged sends, and its check against the records read back: each once, in order, at its offset."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

NO_RESPONSE = -1
"""In place of an offset: the acknowledgement of a duplicate batch whose offset the broker no longer had."""


class SentRecord(NamedTuple):
    """A record's identity: its producer, its partition, and its index among that producer's records there."""

    producer: int
    partition: int
    number: int

    def encode(self) -> bytes:
        return b"%d/%d/%d" % self

    @classmethod
    def decode(cls, value: bytes) -> "SentRecord":
        return cls(*map(int, value.split(b"/")))


@dataclass(frozen=True, slots=True)
class BrokenPromise:
    """One broken promise. Names are those of Jepsen's Kafka workload."""

    name: str
    what: str


@dataclass(slots=True)
class AckLog:
    """Sends, acknowledgements and failures as clients saw them."""

    acknowledged: dict[SentRecord, int] = field(default_factory=dict)
    """The acknowledged offset of each record; UNSAID where the acknowledgement had none."""
    failed: dict[SentRecord, str] = field(default_factory=dict)
    """The reason of each failed send. Its record may or may not be in the log."""
    _numbers: Counter[tuple[int, int]] = field(default_factory=Counter)

    def next(self, producer: int, partition: int) -> SentRecord:
        """Return the identity of this producer's next record in this partition."""
        number = self._numbers[producer, partition]
        self._numbers[producer, partition] += 1
        return SentRecord(producer, partition, number)

    def acknowledge(self, sent: SentRecord, offset: int) -> None:
        self.acknowledged[sent] = offset

    def fail(self, sent: SentRecord, reason: str) -> None:
        self.failed[sent] = reason

    def compare(self, found: dict[int, list[tuple[int, SentRecord]]]) -> list[BrokenPromise]:
        """Return the anomalies. `found` has each partition's records in the order of a read from start to end."""
        anomalies: list[BrokenPromise] = []
        for partition, records in sorted(found.items()):
            anomalies += _misplaced(partition, records, self.acknowledged)
            anomalies += _disordered(partition, records)
        there = {sent for records in found.values() for _, sent in records}
        anomalies += (
            BrokenPromise("lost-write", f"{sent} was acknowledged at offset {offset}, and is not there")
            for sent, offset in sorted(self.acknowledged.items())
            if sent not in there
        )
        anomalies += (BrokenPromise("failed-send", f"{sent}: {reason}") for sent, reason in sorted(self.failed.items()))
        return anomalies


def _misplaced(
    partition: int, records: list[tuple[int, SentRecord]], promised: dict[SentRecord, int]
) -> Iterator[BrokenPromise]:
    places: dict[SentRecord, int] = {}
    for offset, sent in records:
        if sent.partition != partition:
            yield BrokenPromise("inconsistent-offsets", f"{sent} is in partition {partition}")
        if sent in places:
            yield BrokenPromise("duplicate", f"{sent} is at offset {places[sent]} and at {offset}")
        elif promised.get(sent, offset) not in (offset, NO_RESPONSE):
            yield BrokenPromise(
                "inconsistent-offsets", f"{sent} was said to be at {promised[sent]}, and is at {offset}"
            )
        places.setdefault(sent, offset)


def _disordered(partition: int, records: list[tuple[int, SentRecord]]) -> Iterator[BrokenPromise]:
    """Yield gaps and steps back among an idempotent producer's records, acknowledged or not."""
    due: Counter[int] = Counter()
    for offset, sent in records:
        if sent.number > due[sent.producer]:
            missing = f"{due[sent.producer]} to {sent.number}"
            yield BrokenPromise(
                "gap", f"offset {offset} of partition {partition}: {sent} where numbers {missing} are due"
            )
        elif sent.number < due[sent.producer]:
            yield BrokenPromise("nonmonotonic-send", f"offset {offset} of partition {partition}: {sent} comes too late")
        due[sent.producer] = max(due[sent.producer], sent.number + 1)
