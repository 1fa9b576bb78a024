"""The systems one after the other, round after round, each fresh: what it takes to compare them fairly."""

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cordwood.bench import failover, second_opinion
from cordwood.bench.generator import Generator, LoadFailed
from cordwood.bench.lines import PARTITIONS, TOPICS, WARM_UP, Figure, Line, Mode, Outcome, figures
from cordwood.bench.machine import forget_files, largest_resident_mb, warm_memory
from cordwood.bench.systems import Running, System


@dataclass(slots=True)
class Samples:
    """One figure of one system over the rounds."""

    unit: str
    more_is_better: bool
    values: list[float] = field(default_factory=list)
    uses: Mapping[str, float] = field(default_factory=dict)
    """As in lines.Figure."""

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
    *,
    java_libs: Path | None = None,
    before_round: Callable[[], None] = lambda: None,
    on_failure: Callable[[str], None] | None = None,
) -> Results:
    """Measure every line on every system, `rounds` times. Raises CannotRun, and LoadFailed without `on_failure`.

    That gets a sentence on each line that failed, which is left out of its round. Lines for Java need its libs. Each
    round begins with another system, so that none is always the first or the last.
    """
    results: Results = {}
    for number in range(rounds):
        before_round()
        for turn in range(len(systems)):
            system = systems[(number + turn) % len(systems)]
            warmed = warm_memory(warm_gib)
            say(f"round {number + 1} of {rounds}: {system.name}" + (f", {warmed} GiB of memory warm" if warmed else ""))
            with system.running(directory / f"{number}-{turn}") as running:
                tell = _told(f"{system.name}, brokers: {system.brokers}, round {number + 1}", on_failure)
                for figure in _Round(running, system.brokers, generator, java_libs, say, tell).measure(lines):
                    new = Samples(figure.unit, figure.more_is_better, uses=figure.uses)
                    results.setdefault(figure.name, {}).setdefault(system.name, new).values.append(figure.value)
    return {name: _in_order(of, systems) for name, of in results.items()}


def _told(where: str, on_failure: Callable[[str], None] | None) -> Callable[[LoadFailed], None]:
    def tell(failure: LoadFailed) -> None:
        if on_failure is None:
            raise failure
        on_failure(f"Failed ({where}): {failure}")

    return tell


def _in_order(samples: dict[str, Samples], systems: Sequence[System]) -> dict[str, Samples]:
    return {system.name: samples[system.name] for system in systems if system.name in samples}


@dataclass(frozen=True, slots=True)
class _Round:
    """One system in one round, and what loads it."""

    running: Running
    replicas: int
    generator: Generator
    java_libs: Path | None
    say: Callable[[str], None]
    failed: Callable[[LoadFailed], None]

    def measure(self, lines: Sequence[Line]) -> Iterator[Figure]:
        yield Figure("start to ready", self.running.start_to_ready_s, "s", False)
        yield Figure("memory at rest", largest_resident_mb(self.running.pids), "MB", False)
        for topic in TOPICS:
            self.generator.create_topic(self.running.bootstrap, topic, PARTITIONS, self.replicas)
        last = [line for line in lines if line.mode is Mode.FAILOVER]
        for line in lines:
            if line not in last:
                yield from self._figures(line)
        yield Figure("memory after the load", largest_resident_mb(self.running.pids), "MB", False)
        for line in last:
            yield from self._figures(line)

    def _figures(self, line: Line) -> Iterator[Figure]:
        if line.is_cold and not forget_files(self.running.directory):
            self.say(f"  {line.name}: left out, as this system cannot be told to put a file out of its page cache")
            return
        self.say(f"  {line.name}")
        try:
            outcome = self._carry_out(line)
        except LoadFailed as failure:
            self.failed(failure)
            return
        if line.name != WARM_UP.name:
            yield from figures(line, outcome, self.replicas)

    def _carry_out(self, line: Line) -> Outcome:
        match line.mode:
            case Mode.FAILOVER:
                return failover.run(line, self.running, self.generator)
            case Mode.JAVA:
                assert self.java_libs is not None, "lines for Java are left out where there is none"
                return second_opinion.run(line, self.running.bootstrap, self.running.pids, self.java_libs)
            case _:
                return self.generator.run(line, self.running.bootstrap, self.running.pids)
