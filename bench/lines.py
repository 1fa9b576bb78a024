"""The lines of the benchmark as data: each line's load, and the figures that follow from it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from cordwood.bench.limits import DISK_READ, DISK_WRITE, FLUSH_P50, FLUSH_P99, FLUSHES, LOOPBACK


class GeneratorMode(Enum):
    """A mode of the load generator, by its name on the generator's command line."""

    PRODUCE = "produce"
    CONSUME = "consume"
    BOTH = "produce-and-consume"
    LATENCY = "latency"
    ONE_AT_A_TIME = "one-at-a-time"
    ONE_IN_FLIGHT = "one-in-flight"
    REPLAYED = "replayed"
    """The same with one request, encoded once: no client costs less. Only the Go program has it."""
    TRANSACTIONS = "transactions"
    FLUSHED = "flushed"
    """As many records as in a transaction, without one: the producer waits for their acknowledgements."""
    PIPELINED = "pipelined"
    """The same without a wait."""
    FAILOVER = "failover"
    SHARE = "share"
    SHARE_KILL = "share-kill"
    JAVA = "ProducerPerformance"
    """Kafka's own producer and its own measurement, in place of our generator."""


@dataclass(frozen=True, slots=True)
class LoadLine:
    """One load. `records` is the sum over the producers; `seconds` counts where a mode runs for a time."""

    name: str
    mode: GeneratorMode
    topic: str
    records: int = 0
    record_bytes: int = 100
    acks: str = "all"
    producers: int = 1
    consumers: int = 1
    connections: int = 1
    rate: int = 0
    seconds: float = 0
    needs: tuple[str, ...] = ()
    """Lines that must run first, because they write the records that this line reads."""
    is_cold: bool = False
    """Whether the log files are dropped from the page cache first."""
    is_replicated: bool = False
    """Whether the line needs replicas to be of interest."""
    transaction_records: int = 0
    """Records of each transaction, and of what the modes without one count instead; 0 without transactions."""
    is_read_committed: bool = False
    """Whether consumers read only what is committed."""
    session_ms: int = 0
    """Broker session timeout in ms, the same for every system, on brokers started for this line. 0: each system's own.
    """

    @property
    def gigabytes(self) -> float:
        """Gigabytes of values, without the protocol's own bytes."""
        return self.records * self.record_bytes / 1e9

    @property
    def written_gigabytes(self) -> float:
        """Gigabytes of values that one replica writes."""
        return self.gigabytes if self.mode in (GeneratorMode.PRODUCE, GeneratorMode.BOTH, GeneratorMode.JAVA) else 0.0

    def scaled(self, factor: float) -> "LoadLine":
        """Return the same line with less work, to test that everything runs; its figures mean little."""
        least = SECONDS_MIN.get(self.mode, 1.0) + 1.5 * self.session_ms / 1000
        seconds = max(least, self.seconds * factor) if self.seconds else 0
        return replace(self, records=int(self.records * factor), seconds=seconds)

    def warm_up(self) -> "LoadLine | None":
        """Return the uncounted load that warms every system on this line's path; None where it would spoil the line."""
        return None if self.mode is GeneratorMode.FAILOVER else self.scaled(WARM_UP_SHARE)

    def arguments(self, bootstrap: str) -> list[str]:
        """Return the load generator's command line."""
        return [
            self.mode.value,
            *("--bootstrap", bootstrap),
            *("--topic", self.topic),
            *("--records", str(self.records)),
            *("--record-bytes", str(self.record_bytes)),
            *("--acks", self.acks),
            *("--producers", str(self.producers)),
            *("--consumers", str(self.consumers)),
            *("--connections", str(self.connections)),
            *("--rate", str(self.rate)),
            *("--seconds", str(self.seconds)),
            *("--transaction-records", str(self.transaction_records)),
            *(("--read-committed",) if self.is_read_committed else ()),
        ]


SMALL, LARGE, SLOW, TRANSACTIONAL = "bench-100b", "bench-1kb", "bench-latency", "bench-transactions"
TOPICS = (SMALL, LARGE, SLOW, TRANSACTIONAL)
PARTITIONS = 6
# The beginning, the records, the decision and the markers: each must be on disk before the next.
FLUSHES_PER_TRANSACTION = 4
# A leader must be killed, and its session expire, before the last record is sent.
SECONDS_MIN = {GeneratorMode.FAILOVER: 4.0}
WARM_UP_SHARE = 0.1
# Kafka's default broker.session.timeout.ms, and Cordwood's.
LONG_SESSION_MS, SHORT_SESSION_MS = 9_000, 2_000

WARM_UP = LoadLine("warm-up", GeneratorMode.PRODUCE, SMALL, 3_000_000)
LINES = (
    WARM_UP,
    LoadLine("1 producer, 100 B", GeneratorMode.PRODUCE, SMALL, 8_000_000),
    LoadLine("1 producer, 100 B, acks=1", GeneratorMode.PRODUCE, SMALL, 8_000_000, acks="1"),
    LoadLine("3 producers, 100 B", GeneratorMode.PRODUCE, SMALL, 9_000_000, producers=3),
    LoadLine("1 producer, 1 KB", GeneratorMode.PRODUCE, LARGE, 1_000_000, record_bytes=1000),
    LoadLine("1 consumer, 100 B", GeneratorMode.CONSUME, SMALL, 10_000_000, needs=("1 producer, 100 B",)),
    LoadLine("3 consumers, 100 B", GeneratorMode.CONSUME, SMALL, 10_000_000, consumers=3, needs=("1 producer, 100 B",)),
    LoadLine(
        "1 consumer, 1 KB", GeneratorMode.CONSUME, LARGE, 1_000_000, record_bytes=1000, needs=("1 producer, 1 KB",)
    ),
    LoadLine(
        "3 producers, 100 B, acks=1", GeneratorMode.PRODUCE, SMALL, 6_000_000, producers=3, acks="1", is_replicated=True
    ),
    LoadLine("producer and consumer, 100 B, acks=1", GeneratorMode.BOTH, SMALL, 4_000_000, acks="1"),
    LoadLine(
        "cold read, 1 KB",
        GeneratorMode.CONSUME,
        LARGE,
        1_000_000,
        record_bytes=1000,
        needs=("1 producer, 1 KB",),
        is_cold=True,
    ),
    LoadLine("latency at 1,000/s", GeneratorMode.LATENCY, SLOW, rate=1000, seconds=10),
    LoadLine("one at a time", GeneratorMode.ONE_AT_A_TIME, SLOW, seconds=5),
    LoadLine("16 connections, 1 in flight", GeneratorMode.ONE_IN_FLIGHT, SLOW, connections=16, seconds=8),
    LoadLine("transactions of 100 records", GeneratorMode.TRANSACTIONS, SLOW, seconds=8, transaction_records=100),
    LoadLine("3 producers, 1 KB", GeneratorMode.PRODUCE, LARGE, 600_000, record_bytes=1000, producers=3),
    LoadLine(
        "3 producers, 1 KB, transactions of 1 MB",
        GeneratorMode.PRODUCE,
        TRANSACTIONAL,
        600_000,
        record_bytes=1000,
        producers=3,
        transaction_records=1000,
    ),
    LoadLine(
        "1 consumer, read_committed, 1 KB",
        GeneratorMode.CONSUME,
        TRANSACTIONAL,
        600_000,
        record_bytes=1000,
        needs=("3 producers, 1 KB, transactions of 1 MB",),
        is_read_committed=True,
    ),
    LoadLine("ProducerPerformance, 100 B", GeneratorMode.JAVA, SMALL, 3_000_000),
    LoadLine("leader killed", GeneratorMode.FAILOVER, SLOW, rate=1000, seconds=6, is_replicated=True),
    *(
        LoadLine(
            f"leader killed, sessions of {session_ms // 1000} s",
            GeneratorMode.FAILOVER,
            SLOW,
            rate=1000,
            seconds=4 + 2 * session_ms / 1000,
            is_replicated=True,
            session_ms=session_ms,
        )
        for session_ms in (SHORT_SESSION_MS, LONG_SESSION_MS)
    ),
)


@dataclass(frozen=True, slots=True)
class LineOutcome:
    """The generator's counts, and the CPU seconds of the broker's processes meanwhile."""

    records: int
    failed: int
    seconds: float
    ack_ms: dict[str, float]
    end_to_end_ms: dict[str, float]
    broker_cpu_s: float
    longest_gap_s: float = 0.0
    """The longest time between two acknowledgements, where a leader was killed."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One row of the report."""

    name: str
    value: float
    unit: str
    more_is_better: bool
    uses: Mapping[str, float] = field(default_factory=dict)
    """By limit of bench/limits.py: how much of it one unit of this figure takes, in the unit of the limit."""


def figures(line: LoadLine, outcome: LineOutcome, replicas: int = 1) -> Iterator[Figure]:
    """Yield the rows that follow from one line, on topics with this replication factor."""
    per_second = outcome.records / outcome.seconds
    match line.mode:
        case GeneratorMode.PRODUCE | GeneratorMode.CONSUME | GeneratorMode.BOTH | GeneratorMode.JAVA if (
            line.record_bytes >= 1000
        ):
            yield Figure(line.name, per_second * line.record_bytes / 1e6, "MB/s", True, _traffic(line, replicas, 1.0))
        case GeneratorMode.PRODUCE | GeneratorMode.CONSUME | GeneratorMode.BOTH | GeneratorMode.JAVA:
            uses = _traffic(line, replicas, line.record_bytes)
            yield Figure(line.name, per_second / 1e6, "M records/s", True, uses)
        case GeneratorMode.LATENCY | GeneratorMode.ONE_AT_A_TIME:
            for what, waits in (("ack", outcome.ack_ms), ("end to end", outcome.end_to_end_ms)):
                for share, flush in (("p50", FLUSH_P50), ("p99", FLUSH_P99)):
                    yield Figure(f"{line.name}, {what} {share}", waits[share], "ms", False, {flush: 1.0})
        case GeneratorMode.ONE_IN_FLIGHT:
            yield Figure(line.name, per_second, "records/s", True, {FLUSHES: 1.0})
        case GeneratorMode.TRANSACTIONS:
            yield Figure(line.name, per_second, "transactions/s", True, {FLUSHES: FLUSHES_PER_TRANSACTION})
        case GeneratorMode.FAILOVER:
            yield Figure(f"{line.name}, longest time without an ack", outcome.longest_gap_s, "s", False)
    is_plain = line.producers == line.consumers == 1 and line.acks == "all" and not line.is_cold
    if is_plain and line.mode in (GeneratorMode.PRODUCE, GeneratorMode.CONSUME):
        yield Figure(f"broker CPU, {line.name}", outcome.broker_cpu_s / line.gigabytes, "s/GB", False)


def _traffic(line: LoadLine, replicas: int, megabytes: float) -> dict[str, float]:
    """Return how much of the disk and of loopback a rate of one takes, in MB/s, if it means `megabytes` MB/s of values.

    All brokers share one disk. Writes go over loopback to the leader, and from the leader to each of the others.
    """
    if line.is_cold:
        return {DISK_READ: megabytes, LOOPBACK: megabytes}
    if line.mode is GeneratorMode.CONSUME:
        return {LOOPBACK: megabytes}
    read = megabytes if line.mode is GeneratorMode.BOTH else 0.0
    return {DISK_WRITE: megabytes * replicas, LOOPBACK: megabytes * replicas + read}


def chosen(words: list[str]) -> tuple[LoadLine, ...]:
    """Return the lines whose names contain one of the words, with the lines they need; all where no word is given.

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


def fitting(lines: Sequence[LoadLine], replicas: int, *, has_java: bool) -> list[LoadLine]:
    """Return the lines that this replication factor fits, and that can be run."""
    return [
        line
        for line in lines
        if (replicas > 1 or not line.is_replicated) and (has_java or line.mode is not GeneratorMode.JAVA)
    ]
