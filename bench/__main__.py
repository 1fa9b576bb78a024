"""`make bench`: the speed of brokers that are started for it, alone or beside Apache Kafka in the same run."""

import signal
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from cordwood.bench import disk_limit, machine, report
from cordwood.bench.generator import LoadFailed, load_generator
from cordwood.bench.kafka import Kafka
from cordwood.bench.lines import chosen
from cordwood.bench.rounds import run_rounds
from cordwood.bench.systems import CannotRun, Cordwood, System

ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / "build" / "bench"
RESULTS = ROOT / "bench" / "results"
BROKERS = (1, 3, 5)


def main(
    compare: Annotated[
        bool, typer.Option(help="Measure Apache Kafka too; one broker of it also with an fsync per append.")
    ] = False,
    replication_factor: Annotated[
        int, typer.Option(help="1, 3 or 5: so many brokers, all on this machine, with a replica on each.")
    ] = 1,
    rounds: Annotated[int, typer.Option(min=1, help="How often, each time with fresh brokers.")] = 1,
    line: Annotated[list[str] | None, typer.Option(help="Only lines with this in their name; may be repeated.")] = None,
    scale: Annotated[float, typer.Option(min=0.001, help="Do this part of the work, to see that all runs.")] = 1.0,
    data: Annotated[
        Path | None, typer.Option(exists=True, file_okay=False, help="Where the brokers keep their data meanwhile.")
    ] = None,
    warm_gib: Annotated[int | None, typer.Option(help="Memory to touch before each system; else what is free.")] = None,
    settings: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="For Cordwood.")] = None,
) -> None:
    """Run the lines of bench/lines.py and print a table; bench/results/ gets the same as JSON."""
    console = Console()
    progress = Console(stderr=True, style="dim")
    # Whoever ends the benchmark ends its brokers too: SystemExit passes through the blocks that stop them.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        if replication_factor not in BROKERS:
            raise ValueError("The replication factor is 1, 3 or 5: so many brokers can elect a leader among them.")
        lines = [each.scaled(scale) for each in chosen(line or [])]
        ours = Cordwood(replication_factor, dict(each.split("=", 1) for each in settings or []))
        systems = [ours, *(_kafkas(replication_factor, progress) if compare else [])]
        generator = load_generator(HOME, progress.print)
        HOME.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="data-", dir=data or HOME) as place:
            limits = disk_limit.measure(Path(place), disk_limit.SECONDS_EACH * min(1.0, scale))
            results = run_rounds(systems, lines, generator, rounds, Path(place), warm_gib, progress.print)
    except (CannotRun, LoadFailed, ValueError) as error:
        progress.print(str(error), style="not dim red", highlight=False)
        raise typer.Exit(1) from None
    report.show(console, results, limits, replication_factor, generator.name)
    about = {
        "machine": machine.description(),
        "replication_factor": replication_factor,
        "generator": generator.name,
        "scale": scale,
        "rounds": rounds,
        "versions": {system.name: system.version() for system in systems},
    }
    console.print(f"Saved as {report.save(RESULTS, results, limits, about).relative_to(ROOT)}.")


def _kafkas(brokers: int, progress: Console) -> list[System]:
    kafkas: list[System] = [Kafka(HOME, brokers)]
    # With replicas Kafka is run without fsync by everybody: they are what it has in place of it.
    if brokers == 1:
        kafkas.append(Kafka(HOME, is_flushing=True))
    try:
        for kafka in kafkas:
            kafka.prepare()
    except CannotRun as reason:
        progress.print(str(reason))
        return []
    return kafkas


if __name__ == "__main__":
    typer.run(main)
