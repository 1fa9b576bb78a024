"""`python -m cordwood.bench.hosts`: brokers on hosts in network namespaces, without load, and two brokers beside one.

Each host is a namespace. Its brokers have its name as their rack, and the first brokers of three hosts are the voters.
"""

import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from cordwood.bench.generator import GO, Generator, load_generator
from cordwood.bench.growth.place import idle_percent
from cordwood.bench.lines import GeneratorMode, LoadLine
from cordwood.bench.machine import description, largest_resident_mb
from cordwood.chaos.live.cluster import LocalCluster
from cordwood.chaos.live.network import NamespaceNetwork, NetworkUnavailable, enter
from cordwood.chaos.live.process import free_port
from cordwood.chaos.program import run_program
from cordwood.chaos.results import begun
from cordwood.cluster.cli.exits import Failure

HOME = Path(__file__).resolve().parent.parent.parent / "build" / "bench"
HOSTS = 3
COUNTS = (3, 6, 9, 16)
"""Brokers on all hosts together."""
IDLE_S = 15.0
SETTLE_S = 5.0
ROUNDS = 3
GAIN = 1.3
"""The gain that a second process must have where the load leaves a core."""

TOPIC = "hosts"
LINES = (
    LoadLine("16 connections, one record in flight", GeneratorMode.ONE_IN_FLIGHT, TOPIC, connections=16, seconds=5),
    LoadLine(
        "200 connections, one encoded request in flight", GeneratorMode.REPLAYED, TOPIC, connections=200, seconds=5
    ),
    LoadLine("1 producer, 100 B", GeneratorMode.PRODUCE, TOPIC, 4_000_000),
    LoadLine("1 producer, 1 KB", GeneratorMode.PRODUCE, TOPIC, 600_000, record_bytes=1000),
)


@dataclass(frozen=True, slots=True)
class Cost:
    """What each of `processes` brokers costs without load."""

    processes: int
    sockets: int
    packets_per_s: float
    idle_percent: float
    resident_mb: float


@dataclass(frozen=True, slots=True)
class Gain:
    """The rate of one broker and of two, in records a second, as the median of rounds in turn."""

    line: str
    one: float
    two: float

    @property
    def ratio(self) -> float:
        """How many times the rate of one broker two have."""
        return self.two / self.one


def main(
    seconds: Annotated[float, typer.Option(min=1, help="How long each number of brokers is watched.")] = IDLE_S,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of one broker and two in turn.")] = ROUNDS,
    recorded: Annotated[Path | None, typer.Option("--record", metavar="FILE", help="Write a result file.")] = None,
) -> None:
    """Measure, and print tables. Exits with 1 where two brokers gain too little on every line."""
    record = begun(recorded, "hosts", {"machine": description()})
    try:
        enter()
    except NetworkUnavailable as reason:
        raise Failure(f"cannot measure: {reason}.") from None
    console = Console()
    # SIGTERM becomes SystemExit, which passes through the blocks that stop the brokers.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    HOME.mkdir(parents=True, exist_ok=True)
    network = NamespaceNetwork(range(1, max(COUNTS) + 1))
    with tempfile.TemporaryDirectory(prefix="hosts-", dir=HOME) as directory:
        gains = _gains(Path(directory), rounds, console)
        costs = _costs(Path(directory), network, seconds, console)
    if record is not None:
        for cost in costs:
            record.add({"of": "cost", **asdict(cost)})
        for gain in gains:
            record.add({"of": "gain", **asdict(gain)})
        record.end()
    if max(gain.ratio for gain in gains) < GAIN:
        console.print(f"Two brokers have less than {GAIN} times the rate of one.")
        raise typer.Exit(1)


def _costs(directory: Path, network: NamespaceNetwork, seconds: float, console: Console) -> "list[Cost]":
    """Start more and more brokers on the hosts, and watch each number of them without load."""
    found = []
    for count in COUNTS:
        ids = range(1, count + 1)
        racks = {id_: f"host-{(id_ - 1) % HOSTS + 1}" for id_ in ids}
        with LocalCluster(
            directory / f"cost-{count}",
            count,
            voters=HOSTS,
            hosts={id_: network.address(id_) for id_ in ids},
            inside={id_: (*network.inside(id_), "env", f"CORDWOOD_BROKER_RACK={racks[id_]}") for id_ in ids},
        ) as cluster:
            pids = [broker.pid for broker in cluster.brokers.values()]
            time.sleep(SETTLE_S)
            before = sum(map(_packets, pids))
            idle = idle_percent(pids, seconds)
            cost = Cost(
                count,
                round(statistics.mean(map(_sockets, pids))),
                round((sum(map(_packets, pids)) - before) / count / seconds, 1),
                round(idle, 2),
                round(largest_resident_mb(pids), 1),
            )
        found.append(cost)
        console.print(
            f"{count:>2} brokers: each {cost.sockets} sockets, sends {cost.packets_per_s} packets/s,"
            f" takes {cost.idle_percent}% of a core and {cost.resident_mb} MB"
        )
    return found


def _gains(directory: Path, rounds: int, console: Console) -> "list[Gain]":
    """Measure each line on one broker and on two, in turn."""
    generator = load_generator(HOME, console.print)
    lines = [line for line in LINES if line.mode is not GeneratorMode.REPLAYED or generator.name == GO]
    rates: dict[tuple[str, int], list[float]] = {}
    for number in range(rounds):
        for brokers in (1, 2) if number % 2 == 0 else (2, 1):
            for name, rate in _rates(directory / f"gain-{number}-{brokers}", brokers, generator, lines):
                rates.setdefault((name, brokers), []).append(rate)
    found = []
    for line in lines:
        one, two = (statistics.median(rates[line.name, brokers]) for brokers in (1, 2))
        found.append(Gain(line.name, round(one), round(two)))
        ratio = found[-1].ratio
        console.print(f"{line.name}: {one:,.0f} records/s on one broker, {two:,.0f} on two: {ratio:.2f} times")
    return found


def _rates(directory: Path, brokers: int, generator: Generator, lines: Sequence[LoadLine]) -> "list[tuple[str, float]]":
    settings = {"default.replication.factor": "1", "min.insync.replicas": "1"}
    if brokers > 1:
        settings["controller.quorum.voters"] = f"1@127.0.0.1:{free_port()}"
    with LocalCluster(directory, brokers, voters=1, settings=settings) as cluster:
        pids: Sequence[int] = [broker.pid for broker in cluster.brokers.values()]
        generator.create_topic(cluster.bootstrap, TOPIC, 6, 1)
        found = []
        for line in lines:
            generator.run(line.scaled(0.1), cluster.bootstrap, pids)
            outcome = generator.run(line, cluster.bootstrap, pids)
            found.append((line.name, outcome.records / outcome.seconds))
    return found


def _sockets(pid: int) -> int:
    descriptors = Path(f"/proc/{pid}/fd")
    return sum(os.readlink(descriptors / name).startswith("socket:") for name in os.listdir(descriptors))


def _packets(pid: int) -> int:
    """Return the packets that the process's namespace has sent to others."""
    for line in Path(f"/proc/{pid}/net/dev").read_text().splitlines():
        name, _, numbers = line.partition(":")
        if name.strip() == "eth0":
            return int(numbers.split()[9])
    return 0


if __name__ == "__main__":
    run_program(main)
