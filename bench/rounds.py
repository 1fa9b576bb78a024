"""Rounds of the benchmark: all systems in turn, with fresh brokers each, and the leader killed in failover lines."""

import os
import signal
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka.admin import AdminClient

from cordwood.bench import second_opinion
from cordwood.bench.generator import Generator, LoadFailed
from cordwood.bench.lines import PARTITIONS, TOPICS, WARM_UP, Figure, GeneratorMode, LineOutcome, LoadLine, figures
from cordwood.bench.machine import forget_files, largest_resident_mb, warm_memory
from cordwood.bench.systems import Running, System

KILL_AFTER_S = 2.0
PARTITION = 0
"""The partition that the generator writes to."""


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
    lines: Sequence[LoadLine],
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

    A line that fails on one system fails its round: no figure of that round counts for any system, and `on_failure`
    gets a sentence. Lines for Java need its libs. Each round begins with another system, so that none is always the
    first or the last.
    """
    results: Results = {}
    for number in range(rounds):
        before_round()
        found: list[tuple[System, Figure]] = []
        for turn in range(len(systems)):
            system = systems[(number + turn) % len(systems)]
            warmed = warm_memory(warm_gib)
            say(f"round {number + 1} of {rounds}: {system.name}" + (f", {warmed} GiB of memory warm" if warmed else ""))
            one = _Round(system, directory / f"{number}-{turn}", generator, java_libs, say)
            try:
                found += [(system, figure) for figure in one.measure(lines)]
            except LoadFailed as failure:
                if on_failure is None:
                    raise
                on_failure(f"Round {number + 1} failed ({system.name}, brokers: {system.brokers}): {failure}")
                break
        else:
            _add(results, found)
    return {name: _in_order(of, systems) for name, of in results.items()}


def _add(results: Results, found: Sequence[tuple[System, Figure]]) -> None:
    for system, figure in found:
        new = Samples(figure.unit, figure.more_is_better, uses=figure.uses)
        results.setdefault(figure.name, {}).setdefault(system.name, new).values.append(figure.value)


def _in_order(samples: dict[str, Samples], systems: Sequence[System]) -> dict[str, Samples]:
    return {system.name: samples[system.name] for system in systems if system.name in samples}


@dataclass(frozen=True, slots=True)
class _Round:
    """One system in one round, with its load generators."""

    system: System
    directory: Path
    generator: Generator
    java_libs: Path | None
    say: Callable[[str], None]

    def measure(self, lines: Sequence[LoadLine]) -> Iterator[Figure]:
        """Yield the figures of all lines. A line with its own session timeout gets its own brokers."""
        with self.system.running(self.directory) as running:
            yield from self._measure_on(running, [line for line in lines if not line.session_ms])
        for line in lines:
            if line.session_ms:
                with self.system.with_sessions(line.session_ms).running(self.directory) as running:
                    self.generator.create_topic(running.bootstrap, line.topic, PARTITIONS, self.system.brokers)
                    yield from self._figures(line, running)

    def _measure_on(self, running: Running, lines: Sequence[LoadLine]) -> Iterator[Figure]:
        yield Figure("start to ready", running.start_to_ready_s, "s", False)
        yield Figure("memory at rest", largest_resident_mb(running.pids), "MB", False)
        for topic in TOPICS:
            self.generator.create_topic(running.bootstrap, topic, PARTITIONS, self.system.brokers)
        last = [line for line in lines if line.mode is GeneratorMode.FAILOVER]
        for line in lines:
            if line not in last:
                yield from self._figures(line, running)
        yield Figure("memory after the load", largest_resident_mb(running.pids), "MB", False)
        for line in last:
            yield from self._figures(line, running)

    def _figures(self, line: LoadLine, running: Running) -> Iterator[Figure]:
        self.say(f"  {line.name}")
        if line.name == WARM_UP.name:
            self._carry_out(line, running)
            return
        if warm_up := line.warm_up():
            self._carry_out(warm_up, running)
        if line.is_cold and not forget_files(running.directory):
            self.say(f"  {line.name}: left out, as this system has no command to put a file out of its page cache")
            return
        yield from figures(line, self._carry_out(line, running), self.system.brokers)

    def _carry_out(self, line: LoadLine, running: Running) -> LineOutcome:
        match line.mode:
            case GeneratorMode.FAILOVER:
                return run_failover(line, running, self.generator)
            case GeneratorMode.JAVA:
                assert self.java_libs is not None, "lines for Java are left out where there is none"
                return second_opinion.run(line, running.bootstrap, running.pids, self.java_libs)
            case _:
                return self.generator.run(line, running.bootstrap, running.pids)


def run_failover(line: LoadLine, running: Running, generator: Generator) -> LineOutcome:
    """Kill the leader's process during the load.

    Raises LoadFailed where a record was never acknowledged, or the load ended before the leader was killed.
    """
    with ThreadPoolExecutor(1) as beside:
        killed = beside.submit(_kill_leader, line.topic, running)
        outcome = generator.run(line, running.bootstrap, running.pids)
        is_too_late = not killed.done()
        killed.result()
    if is_too_late:
        raise LoadFailed(f"{line.name}: the load ended before the leader was killed.")
    return outcome


def _kill_leader(topic: str, running: Running) -> None:
    admin = AdminClient({"bootstrap.servers": running.bootstrap})
    time.sleep(KILL_AFTER_S)
    leader = admin.list_topics(topic, 10).topics[topic].partitions[PARTITION].leader
    os.kill(running.pids[leader - 1], signal.SIGKILL)
