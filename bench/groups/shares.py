"""Share line: workers of one share group on one partition, and the records of a worker that is killed."""

import os
import statistics
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from cordwood.bench.generator import GO, Generator, LoadFailed, load_generator
from cordwood.bench.kafka import Kafka
from cordwood.bench.lines import GeneratorMode, LoadLine
from cordwood.bench.machine import memory_kept, warm_memory
from cordwood.bench.systems import KAFKA, OURS, CannotRun, Cordwood, Running, System

BROKERS = 3
RECORD_BYTES = 100
RECORDS = {100: 800_000, 10: 500_000, 1: 250_000}
"""Records in the log before the workers begin, by the records of each batch."""
SECONDS = 5.0
KILL_RATE = 1000
"""Records a second that are produced while a worker is killed."""
PRODUCE_S = 120.0
LOCK_S = 15.0
"""The lock duration: Kafka's least."""
SETTINGS = {
    "group.share.heartbeat.interval.ms": "5000",
    "group.share.record.lock.duration.ms": str(round(1000 * LOCK_S)),
    "group.share.partition.max.record.locks": "2000",
    "group.share.delivery.count.limit": "5",
    "share.coordinator.state.topic.num.partitions": "3",
}
"""The same for both systems, as are replication factor and min ISR of all topics."""

RATE_MIN, RATIO_MIN = 20_000.0, 1.0


@dataclass(slots=True)
class ShareFigures:
    """The share line of one system, a value for each round."""

    system: str
    version: str
    workers: int
    rates: dict[int, list[float]] = field(default_factory=dict)
    """Records that were taken and acknowledged each second, by the records of a batch."""
    broker_us: dict[int, list[float]] = field(default_factory=dict)
    """Microseconds of the brokers' processor time for each of those records."""
    redelivery_s: list[float] = field(default_factory=list)
    """From the end of the killed worker until the others had its records."""
    redelivered: list[int] = field(default_factory=list)
    """The records of the killed worker."""
    load: list[float] = field(default_factory=list)
    """The machine's load average over a minute, at the end of each round."""

    def rate(self, batch_records: int) -> float:
        return statistics.median(self.rates[batch_records])

    def sentence(self) -> str:
        rates = ", ".join(f"{self.rate(size):,.0f}" for size in self.rates)
        sizes = ", ".join(map(str, self.rates))
        return (
            f"{self.system} {self.version}: {self.workers} workers took and acknowledged {rates} records/s"
            f" ({sizes} records a batch); the {max(self.redelivered)} records of a killed worker came again within"
            f" {max(self.redelivery_s):.2f} s."
        )


def ratios(ours: ShareFigures, theirs: ShareFigures) -> dict[int, float]:
    """Return our rates as multiples of theirs, by the records of a batch."""
    return {size: round(ours.rate(size) / theirs.rate(size), 3) for size in ours.rates}


def missed(ours: ShareFigures, against: Mapping[int, float]) -> list[str]:
    """Return the goals that were missed, as sentences. `against` has the ratios to Kafka, if it was measured."""
    found = []
    for size in ours.rates:
        if ours.rate(size) < RATE_MIN:
            found.append(
                f"share: {ours.rate(size):,.0f} records/s with {size} a batch, at least {RATE_MIN:,.0f} records/s"
            )
        if size in against and against[size] < RATIO_MIN:
            found.append(f"share: {against[size]:.2f} times Kafka with {size} a batch, at least {RATIO_MIN:g} times")
    if max(ours.redelivery_s) > LOCK_S:
        found.append(f"share: redelivery after {max(ours.redelivery_s):.3g} s, at most {LOCK_S:g} s")
    return found


def measure(
    home: Path, workers: int, rounds: int, scale: float, *, is_comparing: bool, say: Callable[[str], None]
) -> dict[str, Any]:
    """Measure Cordwood, and Kafka in turn. Return figures, ratios and missed goals. Raises CannotRun, LoadFailed.

    `home` keeps the load generator and Kafka's jars.
    """
    generator = load_generator(home, say)
    if generator.name != GO:
        raise CannotRun("The share line needs Go: its load generator has no form in Python.")
    systems: list[System] = [Cordwood(BROKERS, SETTINGS)]
    if is_comparing:
        systems.append(Kafka(home, BROKERS, settings=SETTINGS))
    for system in systems:
        system.prepare()
    found = {system.name: ShareFigures(system.name, system.version(), workers) for system in systems}
    with memory_kept(), tempfile.TemporaryDirectory(prefix="cordwood-share-") as place:
        for number in range(rounds):
            # Each round begins with another system, so that none is always the first.
            for system in (*systems[number % len(systems) :], *systems[: number % len(systems)]):
                warm_memory()
                say(f"share: round {number + 1} of {rounds}: {system.name}")
                with system.running(Path(place) / "round") as running:
                    _measure(found[system.name], running, generator, scale)
    for figures in found.values():
        say(figures.sentence())
    against = ratios(found[OURS], found[KAFKA]) if is_comparing else {}
    return {
        "measured": [asdict(figures) for figures in found.values()],
        "settings": SETTINGS,
        "ratios": against,
        "missed": missed(found[OURS], against),
    }


def _measure(found: ShareFigures, running: Running, generator: Generator, scale: float) -> None:
    """Measure one round."""
    for size, records in RECORDS.items():
        line = LoadLine(
            f"{size} records a batch",
            GeneratorMode.SHARE,
            f"share-{size}",
            records=max(1, round(records * scale)),
            consumers=found.workers,
            seconds=SECONDS,
        )
        generator.create_topic(running.bootstrap, line.topic, 1, BROKERS)
        fill(running.bootstrap, line, size)
        outcome = generator.run(line, running.bootstrap, running.pids)
        found.rates.setdefault(size, []).append(round(outcome.records / outcome.seconds))
        found.broker_us.setdefault(size, []).append(round(outcome.broker_cpu_s / outcome.records * 1e6, 2))
    line = LoadLine("kill", GeneratorMode.SHARE_KILL, "share-kill", consumers=found.workers, rate=KILL_RATE)
    generator.create_topic(running.bootstrap, line.topic, 1, BROKERS)
    outcome = generator.run(line, running.bootstrap, running.pids)
    found.redelivery_s.append(round(outcome.seconds, 3))
    found.redelivered.append(outcome.records)
    found.load.append(round(os.getloadavg()[0], 2))


def fill(bootstrap: str, line: LoadLine, batch_records: int) -> None:
    """Produce the records of a line in batches of that many. Raises LoadFailed."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "log_level": 0,
            "acks": "all",
            "batch.num.messages": batch_records,
            "linger.ms": 50,
            "queue.buffering.max.messages": 100_000,
        }
    )
    value = bytes(RECORD_BYTES)
    for _ in range(line.records):
        while True:
            try:
                producer.produce(line.topic, value, partition=0)
                break
            except BufferError:
                producer.poll(0.1)
    if left := producer.flush(PRODUCE_S):
        raise LoadFailed(f"{line.name}: {left:,} records were not acknowledged within {PRODUCE_S:.0f} s.")
