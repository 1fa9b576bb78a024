"""The systems one after the other, round after round, each fresh: what it takes to compare them fairly."""

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cordwood.bench.generator import Generator
from cordwood.bench.lines import PARTITIONS, TOPICS, WARM_UP, Figure, Line, figures
from cordwood.bench.machine import largest_resident_mb, warm_memory
from cordwood.bench.systems import Running, System


@dataclass(slots=True)
class Samples:
    """One figure of one system over the rounds."""

    unit: str
    more_is_better: bool
    values: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.values)


Results = dict[str, dict[str, Samples]]
"""Figure by name, then samples by system."""


def run_rounds(
    systems: Sequence[System],
    lines: Sequence[Line],
    generator: Generator,
    rounds: int,
    directory: Path,
    warm_gib: int | None,
    say: Callable[[str], None],
) -> Results:
    """Measure every line on every system, `rounds` times. Raises CannotRun and LoadFailed."""
    results: Results = {}
    for number in range(1, rounds + 1):
        for system in systems:
            warmed = warm_memory(warm_gib)
            say(f"round {number} of {rounds}: {system.name}" + (f", {warmed} GiB of memory warm" if warmed else ""))
            with system.running(directory / f"{number}-{systems.index(system)}") as running:
                for figure in _measure(running, system.brokers, lines, generator, say):
                    samples = results.setdefault(figure.name, {})
                    samples.setdefault(system.name, Samples(figure.unit, figure.more_is_better)).values.append(
                        figure.value
                    )
    return results


def _measure(
    running: Running, replicas: int, lines: Sequence[Line], generator: Generator, say: Callable[[str], None]
) -> Iterator[Figure]:
    yield Figure("start to ready", running.start_to_ready_s, "s", False)
    yield Figure("memory at rest", largest_resident_mb(running.pids), "MB", False)
    for topic in TOPICS:
        generator.create_topic(running.bootstrap, topic, PARTITIONS, replicas)
    for line in lines:
        say(f"  {line.name}")
        outcome = generator.run(line, running.bootstrap, running.pids)
        if line.name != WARM_UP.name:
            yield from figures(line, outcome)
    yield Figure("memory after the load", largest_resident_mb(running.pids), "MB", False)
