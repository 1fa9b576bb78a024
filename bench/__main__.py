"""`make bench`: throughput and latency of Cordwood, alone or beside Apache Kafka in the same run."""

import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from cordwood.bench import limits, machine, report
from cordwood.bench.certificates import BenchCertificates
from cordwood.bench.generator import Generator, LoadFailed, load_generator
from cordwood.bench.kafka import Kafka
from cordwood.bench.lines import WARM_UP_SHARE, GeneratorMode, LoadLine, chosen, fitting
from cordwood.bench.measured import MeasuredCluster, MeasuredRun
from cordwood.bench.rounds import run_rounds
from cordwood.bench.systems import CannotRun, Cordwood, System
from cordwood.chaos.program import run_program
from cordwood.chaos.results import begun, ended

ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / "build" / "bench"
RESULTS = ROOT / "bench" / "results"
BROKERS = (1, 3, 5)
# In a file, rich would assume a terminal of 80 columns.
COLUMNS = 150
LIMITS_S_MIN = 0.3
WITHOUT_TLS = {GeneratorMode.JAVA, GeneratorMode.FAILOVER}
# Overhead of batch headers, indexes, and preallocated space.
BYTES_PER_VALUE_BYTE = 1.3


Compare = Annotated[
    bool, typer.Option(help="Measure Apache Kafka too, with and without fsync, and Cordwood without fsync.")
]
ReplicationFactor = Annotated[
    list[int] | None,
    typer.Option(
        help="1, 3 or 5: the number of brokers and of replicas. May be repeated; the default is 1 and then 3."
    ),
]
Rounds = Annotated[int, typer.Option(min=1, help="Number of rounds, each with new brokers.")]
Baseline = Annotated[Path | None, typer.Option(exists=True, help="Measure the brokers of this checkout too.")]
Line = Annotated[list[str] | None, typer.Option(help="Run only the lines whose name contains this; may be repeated.")]
SystemOption = Annotated[
    list[str] | None,
    typer.Option(help="Run only the systems with exactly this name: cordwood, kafka …; may be repeated."),
]
Scale = Annotated[float, typer.Option(min=0.001, help="The share of the work to do, for a quick trial.")]
Data = Annotated[
    Path | None,
    typer.Option(exists=True, file_okay=False, help="The directory for the brokers' data during the run."),
]
WarmGib = Annotated[
    int | None, typer.Option(help="Memory to touch before each system; the default is all free memory.")
]
Settings = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="For Cordwood.")]
Tls = Annotated[bool, typer.Option("--tls", help="Clients and brokers use TLS; without the lines that kill a leader.")]
Recorded = Annotated[
    Path | None, typer.Option("--record", metavar="FILE", help="Also write a result file, at a commit.")
]


def main(
    compare: Compare = False,
    replication_factor: ReplicationFactor = None,
    rounds: Rounds = 1,
    baseline: Baseline = None,
    line: Line = None,
    system: SystemOption = None,
    scale: Scale = 1.0,
    data: Data = None,
    warm_gib: WarmGib = None,
    settings: Settings = None,
    tls: Tls = False,
    recorded: Recorded = None,
) -> None:
    """Run the lines of bench/lines.py and print tables; bench/results/ gets the same as JSON."""
    console = Console(width=None if sys.stdout.isatty() else COLUMNS)
    progress = Console(stderr=True, style="dim")
    # SIGTERM becomes SystemExit, which passes through the blocks that stop the brokers.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        record = begun(recorded, "performance", {"rounds": rounds, "scale": scale})
        lines = [each.scaled(scale) for each in chosen(line or [])]
        has_kafka = compare and _has_kafka(progress)
        counts = _broker_counts(replication_factor or [1, 3])
        sets = [_systems(count, settings or [], compare, has_kafka, baseline, system or []) for count in counts]
        generator = load_generator(HOME, progress.print)
        HOME.mkdir(parents=True, exist_ok=True)
        with (
            machine.memory_kept() as is_kept,
            tempfile.TemporaryDirectory(prefix="data-", dir=data or HOME) as place,
        ):
            if tls:
                certificates = BenchCertificates.make(Path(place) / "certificates")
                lines = [each for each in lines if each.mode not in WITHOUT_TLS]
                generator = replace(generator, ca=certificates.ca)
                for system_ in chain.from_iterable(sets):
                    system_.certificates = certificates
            measured = MeasuredRun(_about(Path(place), generator, scale, rounds, sets, is_kept, is_encrypted=tls))
            bench = _Bench(generator, rounds, Path(place), warm_gib, scale, progress.print)
            for systems in sets:
                measured.parts.append(bench.measure(systems, lines, measured.limits))
            if not all(part.results for part in measured.parts):
                raise LoadFailed("\n".join(["No round succeeded, so there is nothing to report.", *bench.failures]))
            measured.about["notes"] += bench.failures
    except (CannotRun, LoadFailed, ValueError) as error:
        progress.print(str(error), style="not dim red", highlight=False)
        raise typer.Exit(1) from None
    report.show(console, measured)
    console.print(f"Saved as {measured.save(RESULTS).relative_to(ROOT)}.", highlight=False)
    if bench.failures:
        raise typer.Exit(1)
    ended(record, measured.document())


@dataclass(frozen=True, slots=True)
class _Bench:
    """The settings that all parts of a run share."""

    generator: Generator
    rounds: int
    place: Path
    warm_gib: int | None
    scale: float
    say: Callable[[str], None]
    failures: list[str] = field(default_factory=list)

    def measure(
        self, systems: Sequence[System], lines: Sequence[LoadLine], found: limits.MachineLimits
    ) -> MeasuredCluster:
        """Measure systems with the same number of brokers. Add the limits of the machine to `found`."""
        brokers = systems[0].brokers
        libs = next((system.tools for system in systems if isinstance(system, Kafka)), None)
        fit = fitting(lines, brokers, has_java=libs is not None)
        _check_room(self.place, brokers, fit)
        seconds_each = min(limits.SECONDS_EACH, max(LIMITS_S_MIN, limits.SECONDS_EACH * self.scale))
        self.say(f"{brokers} broker{'s' if brokers > 1 else ''}: {'; '.join(system.name for system in systems)}")
        results = run_rounds(
            systems,
            fit,
            self.generator,
            self.rounds,
            self.place,
            self.warm_gib,
            self.say,
            java_libs=libs,
            before_round=lambda: found.measure(self.place, seconds_each),
            on_failure=self.failures.append,
        )
        return MeasuredCluster(brokers, results)


def _broker_counts(replication_factors: Sequence[int]) -> Sequence[int]:
    """Return so many brokers for each replication factor. Raises ValueError."""
    if not set(replication_factors) <= set(BROKERS):
        raise ValueError("The replication factor is 1, 3 or 5, the numbers of brokers that can form a quorum.")
    return replication_factors


def _systems(
    brokers: int,
    overrides: Sequence[str],
    is_comparing: bool,
    has_kafka: bool,
    baseline: Path | None,
    names: Sequence[str],
) -> list[System]:
    """Return the systems to measure. Raises ValueError where a name is not among them."""
    settings = dict(each.split("=", 1) for each in overrides)
    systems: list[System] = [Cordwood(brokers, settings)]
    if baseline is not None:
        systems.append(Cordwood(brokers, settings, baseline=baseline))
        systems[-1].prepare()
    if is_comparing:
        systems.append(Cordwood(brokers, settings, flush_policy="os"))
    if has_kafka:
        systems += [Kafka(HOME, brokers), Kafka(HOME, brokers, is_flushing=True)]
    if unknown := set(names) - {system.name for system in systems}:
        raise ValueError(f"No system is called {' or '.join(unknown)}: {'; '.join(each.name for each in systems)}.")
    return [system for system in systems if system.name in names or not names]


def _has_kafka(progress: Console) -> bool:
    """Fetch Kafka, and return whether it can run. Otherwise print why, so that Cordwood is measured alone."""
    try:
        Kafka(HOME).prepare()
    except CannotRun as reason:
        progress.print(str(reason))
        return False
    return True


def _check_room(place: Path, brokers: int, lines: Sequence[LoadLine]) -> None:
    """Raise CannotRun where the disk has too little space for what one system writes."""
    needed = BYTES_PER_VALUE_BYTE * (1 + WARM_UP_SHARE) * brokers * sum(line.written_gigabytes for line in lines)
    free = shutil.disk_usage(place).free / 1e9
    if free < needed:
        raise CannotRun(
            f"With {brokers} broker(s) this needs {needed:.1f} GB of disk space, and {place.parent} has {free:.1f} GB. "
            "Another place: --data DIRECTORY. Less work: --scale 0.1."
        )


def _about(
    place: Path,
    generator: Generator,
    scale: float,
    rounds: int,
    sets: Sequence[Sequence[System]],
    is_kept: bool,
    *,
    is_encrypted: bool,
) -> dict[str, Any]:
    kept = "Meanwhile this machine, a virtual one, gave no free memory back to its host, so that memory stayed warm."
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine.description(),
        "disk": limits.place(place),
        "generator": generator.name,
        "scale": scale,
        "rounds": rounds,
        "warm_up_share": WARM_UP_SHARE,
        "versions": {system.name: system.version() for systems in sets for system in systems},
        "notes": [*([kept] if is_kept else []), *(["Clients and brokers used TLS."] if is_encrypted else [])],
    }


if __name__ == "__main__":
    run_program(main)
