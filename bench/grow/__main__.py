"""`python -m cordwood.bench.grow`: 3 → 5 → 3 brokers under load, by the commands of the documentation."""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cordwood.bench.grow.load import RoundRobinLoad, anomalies, ends, fill
from cordwood.bench.machine import memory_kept, warm_memory
from cordwood.chaos.live.process import free_port, wait_for

TOPIC = "grow"
GB = 10**9
WARM_UP_S, BASELINE_S = 40.0, 60.0
STOP_S = 60.0
DELETE_DELAY_S = 75.0
LATENCY_MAX, EVEN_MAX, MINUTES_MAX = 2.0, 0.10, 0.30


@dataclass(slots=True)
class GrowResult:
    """The figures of a run, and the goals that it missed."""

    figures: dict[str, Any] = field(default_factory=dict)
    missed: list[str] = field(default_factory=list)

    def note(self, name: str, value: Any, goal: str = "", *, is_met: bool = True) -> None:
        """Record a figure and print it."""
        self.figures[name] = value
        if not is_met:
            self.missed.append(f"{name}: {value} (goal: {goal})")
        _say(f"{name:44} {value}{'' if is_met else f'   MISSED: {goal}'}")


class CommandCluster:
    """A cluster of `cordwood up`, used by its commands only."""

    def __init__(self, place: Path) -> None:
        self.place, self.port, self.http_port = place, free_port(), free_port()
        self.servers = f"127.0.0.1:{self.port}"

    def run(self, *words: str) -> str:
        """Run a command. Raises CalledProcessError, after its output was printed."""
        environ = {**os.environ, "CORDWOOD_BOOTSTRAP_SERVERS": self.servers}
        done = subprocess.run(
            [sys.executable, "-m", "cordwood.cluster.cli", *words],
            env=environ,
            cwd=self.place,
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        if done.returncode:
            sys.stderr.write(done.stdout)
            done.check_returncode()
        return done.stdout

    def up(self, brokers: int) -> None:
        ports = ("-p", str(self.port), "--http-port", str(self.http_port))
        self.run("up", "--brokers", str(brokers), "-d", "cluster", "--detach", *ports)

    def brokers(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.run("broker", "list", "--json"))
        return found

    def stop(self, broker_id: int) -> None:
        """Stop a broker, and wait until the others know."""
        self.run("down", "-d", "cluster", "--broker", str(broker_id))

        def is_down() -> bool:
            try:
                return any(row["id"] == broker_id and row["state"] == "down" for row in self.brokers())
            except subprocess.CalledProcessError:
                # A client may still ask the broker that has just ended.
                return False

        assert wait_for(is_down, STOP_S), f"broker {broker_id} is not down after {STOP_S:.0f} s"

    def down(self) -> None:
        self.run("down", "-d", "cluster")


def main() -> None:
    """Run the scenario, print its figures, and exit with 1 if a goal is missed."""
    options = _options()
    place = Path(tempfile.mkdtemp(prefix="cordwood-grow-", dir=options.directory))
    cluster, result = CommandCluster(place), GrowResult()
    try:
        with memory_kept():
            warm_memory()
            _story(cluster, result, options)
    finally:
        try:
            cluster.down()
        finally:
            shutil.rmtree(place, ignore_errors=True)
    if options.json is not None:
        options.json.write_text(json.dumps({"figures": result.figures, "missed": result.missed}, indent=1) + "\n")
    sys.exit(1 if result.missed else 0)


def _story(cluster: CommandCluster, result: GrowResult, options: argparse.Namespace) -> None:
    cluster.up(3)
    cluster.run("topic", "create", TOPIC, "-p", str(options.partitions), "-r", "3")
    fill(cluster.servers, TOPIC, options.partitions, int(options.gigabytes * GB))
    begins = ends(cluster.servers, TOPIC, options.partitions)
    load = RoundRobinLoad(cluster.servers, TOPIC, options.partitions, options.records_per_second)
    load.start()
    # Half a minute after their start brokers import the rest of their modules, and the fill is followed by checkpoints.
    # The first records wait for connections, a producer id and the first append of each partition: some 400 ms.
    time.sleep(WARM_UP_S)
    began_s = time.monotonic()
    time.sleep(BASELINE_S)
    ended_s = time.monotonic()
    baseline_ms = load.percentile_ms(began_s, ended_s, 99)
    result.note("produce p99 with three brokers, ms", round(baseline_ms, 1))
    typical_ms = load.typical_percentile_ms(began_s, ended_s, 99)
    result.note("with three brokers: in the median ten seconds", round(typical_ms, 1))
    cluster.up(5)
    _moved(cluster, result, load, options, "growth", baseline_ms, ("balance",))
    _check_even(cluster, result, {1, 2, 3, 4, 5}, "growth")
    # Removed logs are kept for file.delete.delay.ms, and a replica that returns begins with its old one.
    time.sleep(DELETE_DELAY_S)
    _moved(cluster, result, load, options, "shrinking", baseline_ms, ("broker", "drain", "4", "5"))
    for broker_id in (4, 5):
        cluster.stop(broker_id)
    cluster.run("broker", "remove", "4", "5")
    _check_even(cluster, result, {1, 2, 3}, "shrinking")
    load.stop()
    produced = sum(map(len, load.acknowledged.values()))
    result.note("records acknowledged meanwhile", produced)
    result.note("errors of the producer", len(load.errors), "0", is_met=not load.errors)
    wrong = anomalies(cluster.servers, load, begins)
    result.note("anomalies", len(wrong), "0", is_met=not wrong)
    for sentence in [*load.errors[:5], *wrong[:5]]:
        _say(f"  {sentence}")


def _moved(
    cluster: CommandCluster,
    result: GrowResult,
    load: RoundRobinLoad,
    options: argparse.Namespace,
    what: str,
    baseline_ms: float,
    words: tuple[str, ...],
) -> None:
    """Run a command that plans and makes moves, and compare it with its plan."""
    throttle = ("--throttle", options.throttle)
    plan = json.loads(cluster.run(*words, *throttle, "--json"))
    result.note(f"{what}: bytes to copy", plan["bytes"])
    began_s = time.monotonic()
    cluster.run(*words, *throttle, "--execute")
    ended_s = time.monotonic()
    minutes, expected = (ended_s - began_s) / 60, plan["expected_minutes"]
    off = abs(minutes - expected) / expected
    result.note(f"{what}: minutes expected", expected)
    result.note(f"{what}: minutes", round(minutes, 2), f"within {MINUTES_MAX:.0%}", is_met=off <= MINUTES_MAX)
    p99_ms = load.percentile_ms(began_s, ended_s, 99)
    is_met = p99_ms <= LATENCY_MAX * baseline_ms
    result.note(f"{what}: produce p99 meanwhile, ms", round(p99_ms, 1), f"{LATENCY_MAX}x of before", is_met=is_met)
    result.note(f"{what}: in the median ten seconds", round(load.typical_percentile_ms(began_s, ended_s, 99), 1))


def _check_even(cluster: CommandCluster, result: GrowResult, expected: set[int], what: str) -> None:
    brokers = cluster.brokers()
    result.note(f"brokers after {what}", len(brokers), str(len(expected)), is_met=len(brokers) == len(expected))
    for key in ("leaders", "bytes"):
        values = [row[key] for row in brokers]
        mean = sum(values) / len(values)
        off = max(abs(value - mean) for value in values) / mean
        result.note(f"{key} from even after {what}", round(off, 3), f"{EVEN_MAX:.0%}", is_met=off <= EVEN_MAX)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m cordwood.bench.grow", description=__doc__)
    parser.add_argument("--partitions", type=int, default=300)
    parser.add_argument("--gigabytes", type=float, default=5.0, help="data before the growth, each replicated thrice")
    parser.add_argument("--records-per-second", type=int, default=300, help="the load, of 1 kB each")
    parser.add_argument("--throttle", default="20MB", help="of each broker, for the moves")
    parser.add_argument("--directory", type=Path, default=None, help="where the brokers' files are")
    parser.add_argument("--json", type=Path, default=None, help="a file for the figures")
    return parser.parse_args()


if __name__ == "__main__":
    main()
