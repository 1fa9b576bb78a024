"""Lines of the load generator that are measured in turn on the same brokers, and the ratios between them."""

import os
import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.request import urlopen

from cordwood.bench.generator import Generator
from cordwood.bench.lines import LoadLine
from cordwood.bench.systems import Running

LIMIT_S = 60.0
GROUP_COMMITS = re.compile(r"^cordwood_flush_duration_seconds_count(?:\{[^}]*\})? (\S+)$", re.MULTILINE)


@dataclass(slots=True)
class Side:
    """One line, with a value of each figure for each round."""

    name: str
    megabytes_per_second: list[float] = field(default_factory=list)
    broker_ms_per_megabyte: list[float] = field(default_factory=list)
    """Processor time of the brokers."""
    group_commits_per_megabyte: list[float] = field(default_factory=list)
    """Of all brokers, by their metrics; empty for brokers without metrics."""
    part_ms: list[float] = field(default_factory=list)
    """The median time of a transaction, or of what stands for it."""

    def sentence(self) -> str:
        commits = self.group_commits_per_megabyte
        return (
            f"{self.name}: {statistics.median(self.megabytes_per_second):.1f} MB/s, broker"
            f" {statistics.median(self.broker_ms_per_megabyte):.2f} ms/MB"
            + (f", {statistics.median(commits):.2f} group commits/MB" if commits else "")
            + (f", {statistics.median(self.part_ms):.2f} ms each" if any(self.part_ms) else "")
        )


@dataclass(slots=True)
class Interleaved:
    """Sides that were measured in turn, in another order each round."""

    system: str
    brokers: int
    sides: list[Side]
    load: list[float] = field(default_factory=list)
    """The machine's load average over a minute, after each round."""

    def ratios(self, of: str, to: str) -> list[float]:
        """Return the throughput of one side as a share of another's, round by round."""
        return self._ratios({side.name: side.megabytes_per_second for side in self.sides}, of, to)

    def costs(self, of: str, to: str) -> list[float]:
        """Return the brokers' processor time for a MB of one side, as a multiple of another's, round by round."""
        return self._ratios({side.name: side.broker_ms_per_megabyte for side in self.sides}, of, to)

    @staticmethod
    def _ratios(by_name: Mapping[str, Sequence[float]], of: str, to: str) -> list[float]:
        return [round(one / other, 3) for one, other in zip(by_name[of], by_name[to], strict=True)]


def interleave(
    name: str,
    running: Running,
    generator: Generator,
    lines: Mapping[str, LoadLine],
    rounds: int,
    say: Callable[[str], None],
    http: Sequence[str] = (),
) -> Interleaved:
    """Run each line in each round. `http` are the addresses of the brokers' metrics. Raises LoadFailed.

    Each line also runs once uncounted, so that none of them warms the brokers for the others.
    """
    found = Interleaved(name, len(running.pids), [Side(side) for side in lines])
    for line in lines.values():
        generator.run(line.scaled(0.2), running.bootstrap, running.pids)
    for number in range(rounds):
        order = [*found.sides[number % len(lines) :], *found.sides[: number % len(lines)]]
        for side in order:
            line, before = lines[side.name], group_commits(http)
            outcome = generator.run(line, running.bootstrap, running.pids)
            megabytes = outcome.records * line.record_bytes * (line.transaction_records or 1) / 1e6
            side.megabytes_per_second.append(round(megabytes / outcome.seconds, 2))
            side.broker_ms_per_megabyte.append(round(1e3 * outcome.broker_cpu_s / megabytes, 3))
            side.part_ms.append(outcome.ack_ms.get("p50", 0.0))
            if http:
                side.group_commits_per_megabyte.append(round((group_commits(http) - before) / megabytes, 3))
        found.load.append(round(os.getloadavg()[0], 2))
        rates = ", ".join(f"{side.megabytes_per_second[-1]:.1f}" for side in found.sides)
        say(f"round {number + 1} of {rounds}: {rates} MB/s")
    return found


def group_commits(http: Sequence[str]) -> float:
    """Return the number of group commits of these brokers so far. Raises OSError."""
    total = 0.0
    for address in http:
        with urlopen(f"http://{address}/metrics", timeout=LIMIT_S) as answer:
            total += sum(map(float, GROUP_COMMITS.findall(answer.read().decode())))
    return total
