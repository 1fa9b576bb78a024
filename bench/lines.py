"""The lines of the benchmark as data: what load each puts on a system, and which figures follow from it."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum


class Mode(Enum):
    """A mode of the load generator, by its name on the generator's command line."""

    PRODUCE = "produce"
    CONSUME = "consume"
    LATENCY = "latency"
    ONE_IN_FLIGHT = "one-in-flight"


@dataclass(frozen=True, slots=True)
class Line:
    """One load. `records` are in all, over the producers; `seconds` counts where a mode runs for a time."""

    name: str
    mode: Mode
    topic: str
    records: int = 0
    record_bytes: int = 100
    acks: str = "all"
    producers: int = 1
    connections: int = 1
    rate: int = 0
    seconds: float = 0
    needs: tuple[str, ...] = ()
    """Lines that must have run before, because they write what this one reads."""

    @property
    def gigabytes(self) -> float:
        """Of values, without the protocol's own bytes."""
        return self.records * self.record_bytes / 1e9

    def scaled(self, factor: float) -> "Line":
        """The same line with less work, to see that everything runs; its figures mean little."""
        return Line(
            self.name,
            self.mode,
            self.topic,
            int(self.records * factor),
            self.record_bytes,
            self.acks,
            self.producers,
            self.connections,
            self.rate,
            max(1.0, self.seconds * factor) if self.seconds else 0,
            self.needs,
        )

    def arguments(self, bootstrap: str) -> list[str]:
        """The load generator's command line."""
        return [
            self.mode.value,
            *("--bootstrap", bootstrap),
            *("--topic", self.topic),
            *("--records", str(self.records)),
            *("--record-bytes", str(self.record_bytes)),
            *("--acks", self.acks),
            *("--producers", str(self.producers)),
            *("--connections", str(self.connections)),
            *("--rate", str(self.rate)),
            *("--seconds", str(self.seconds)),
        ]


SMALL, LARGE, SLOW = "bench-100b", "bench-1kb", "bench-latency"
TOPICS = (SMALL, LARGE, SLOW)
PARTITIONS = 6

WARM_UP = Line("warm-up", Mode.PRODUCE, SMALL, 3_000_000)
LINES = (
    WARM_UP,
    Line("1 producer, 100 B", Mode.PRODUCE, SMALL, 8_000_000),
    Line("1 producer, 100 B, acks=1", Mode.PRODUCE, SMALL, 8_000_000, acks="1"),
    Line("3 producers, 100 B", Mode.PRODUCE, SMALL, 9_000_000, producers=3),
    Line("1 producer, 1 KB", Mode.PRODUCE, LARGE, 1_000_000, record_bytes=1000),
    Line("1 consumer, 100 B", Mode.CONSUME, SMALL, 10_000_000, needs=("1 producer, 100 B",)),
    Line("1 consumer, 1 KB", Mode.CONSUME, LARGE, 1_000_000, record_bytes=1000, needs=("1 producer, 1 KB",)),
    Line("latency at 1,000/s", Mode.LATENCY, SLOW, rate=1000, seconds=10),
    Line("16 connections, 1 in flight", Mode.ONE_IN_FLIGHT, SLOW, connections=16, seconds=8),
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the generator counted, and the CPU seconds of the broker's processes meanwhile."""

    records: int
    failed: int
    seconds: float
    ack_ms: dict[str, float]
    end_to_end_ms: dict[str, float]
    broker_cpu_s: float


@dataclass(frozen=True, slots=True)
class Figure:
    """One row of the report."""

    name: str
    value: float
    unit: str
    more_is_better: bool


def figures(line: Line, outcome: Outcome) -> Iterator[Figure]:
    """The rows that follow from one line."""
    per_second = outcome.records / outcome.seconds
    match line.mode:
        case Mode.PRODUCE | Mode.CONSUME if line.record_bytes >= 1000:
            yield Figure(line.name, per_second * line.record_bytes / 1e6, "MB/s", True)
        case Mode.PRODUCE | Mode.CONSUME:
            yield Figure(line.name, per_second / 1e6, "M records/s", True)
        case Mode.LATENCY:
            for what, waits in (("ack", outcome.ack_ms), ("end to end", outcome.end_to_end_ms)):
                for share in ("p50", "p99"):
                    yield Figure(f"{line.name}, {what} {share}", waits[share], "ms", False)
        case Mode.ONE_IN_FLIGHT:
            yield Figure(line.name, per_second, "records/s", True)
    if line.gigabytes and line.producers == 1 and line.acks == "all":
        yield Figure(f"broker CPU, {line.name}", outcome.broker_cpu_s / line.gigabytes, "s/GB", False)


def chosen(words: list[str]) -> tuple[Line, ...]:
    """The lines whose names contain one of the words, with the lines they need; all where no word is given.

    Raises ValueError with a sentence where a word fits no line.
    """
    if not words:
        return LINES
    for word in words:
        if not any(word in line.name for line in LINES):
            raise ValueError(f"No line has “{word}” in its name. The lines: {'; '.join(line.name for line in LINES)}.")
    wanted = {line.name for line in LINES if any(word in line.name for word in words)}
    wanted |= {need for line in LINES if line.name in wanted for need in line.needs}
    return tuple(line for line in LINES if line is WARM_UP or line.name in wanted)
