"""`make profile LINE="16 connections" REPLICAS=3`: CPU profiles of brokers under a line, by stage and as flames."""

import re
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from cordwood.bench.generator import Generator, LoadFailed, load_generator
from cordwood.bench.lines import PARTITIONS, TOPICS, LoadLine, chosen, figures
from cordwood.bench.profile.flame import draw, tree
from cordwood.bench.profile.recorder import ProfilerUnavailable, Recorder, recorder
from cordwood.bench.profile.stages import IDLE, ORDER, shares, stacks_of
from cordwood.bench.systems import CannotRun, Cordwood, Running

ROOT = Path(__file__).resolve().parents[2]
HOME = ROOT / "build" / "bench"
OUTPUT = ROOT / "build" / "profile"


def main(
    line: Annotated[str, typer.Option(help="The line with this name, else every line with this in its name.")],
    replication_factor: Annotated[int, typer.Option(help="1, 3 or 5 brokers, with a replica on each.")] = 1,
    rate: Annotated[int, typer.Option(min=1, help="Samples a second. Each one stops the broker for a moment.")] = 100,
    native: Annotated[bool, typer.Option(help="Frames of C too; without, reading from sockets counts as idle.")] = True,
    scale: Annotated[float, typer.Option(min=0.001, help="Do this part of the work, or more than all of it.")] = 1.0,
    settings: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="For the brokers.")] = None,
) -> None:
    """Run a line of bench/lines.py with py-spy on each broker; build/profile/ gets flame graphs and folded stacks."""
    console, progress = Console(), Console(stderr=True, style="dim")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        spy = recorder(rate, is_native=native)
        lines = [each.scaled(scale) for each in chosen([line])]
        wanted = names_meant(line, [each.name for each in lines])
        system = Cordwood(replication_factor, dict(each.split("=", 1) for each in settings or []))
        generator = load_generator(HOME, progress.print)
        HOME.mkdir(parents=True, exist_ok=True)
        OUTPUT.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="data-", dir=HOME) as place, system.running(Path(place) / "1") as up:
            for topic in TOPICS:
                generator.create_topic(up.bootstrap, topic, PARTITIONS, replication_factor)
            for each in needed(lines, wanted):
                progress.print(f"{each.name}{', watched' if each.name in wanted else ''}")
                if each.name in wanted:
                    _watch(each, up, generator, spy, console)
                else:
                    generator.run(each, up.bootstrap, up.pids)
    except (CannotRun, ProfilerUnavailable, LoadFailed, ValueError) as error:
        progress.print(str(error), style="not dim red", highlight=False)
        raise typer.Exit(1) from None


def names_meant(word: str, names: Sequence[str]) -> frozenset[str]:
    """Return the line with that name; otherwise all lines that have it in their name."""
    return frozenset({word} if word in names else {name for name in names if word in name})


def needed(lines: Sequence[LoadLine], wanted: frozenset[str]) -> list[LoadLine]:
    """Return the wanted lines, the warm-up, which is the first of all, and the lines they need."""
    needs = {need for line in lines if line.name in wanted for need in line.needs}
    return [line for line in lines if line is lines[0] or line.name in wanted | needs]


def _watch(line: LoadLine, up: Running, generator: Generator, spy: Recorder, console: Console) -> None:
    stem = re.sub(r"[^a-z0-9]+", "-", line.name.lower()).strip("-")
    brokers = [f"broker {number}" for number in range(1, len(up.pids) + 1)]
    outputs = [OUTPUT / f"{stem}-rf{len(brokers)}-{name.replace(' ', '-')}.folded" for name in brokers]
    for output in outputs:
        output.unlink(missing_ok=True)
    with spy.recording(up.pids, outputs):
        outcome = generator.run(line, up.bootstrap, up.pids)
    columns: list[dict[str, float]] = []
    for name, output in zip(brokers, outputs, strict=True):
        stacks = list(stacks_of(output.read_text().splitlines()))
        columns.append(shares(stacks))
        title = f"{line.name}: {name} of {len(brokers)}, without what only waits"
        output.with_suffix(".svg").write_text(draw(tree(stacks), title))
    console.print(_table(f"{line.name}: shares of the samples (of those that are not idle)", brokers, columns))
    for figure in figures(line, outcome):
        console.print(f"{figure.name}, while watched: {figure.value:,.2f} {figure.unit}", highlight=False)
    microseconds = outcome.broker_cpu_s / max(outcome.records, 1) * 1e6
    console.print(f"CPU of all brokers, while watched: {microseconds:,.2f} µs a record", highlight=False)
    console.print(f"Flame graphs and folded stacks: {OUTPUT.relative_to(ROOT)}/{stem}-rf{len(brokers)}-*")


def _table(title: str, brokers: Sequence[str], columns: Sequence[dict[str, float]]) -> Table:
    table = Table(title=title)
    table.add_column("")
    for broker in brokers:
        table.add_column(broker, justify="right")
    for stage in ORDER:
        if any(stage in column for column in columns):
            table.add_row(stage, *(_cell(stage, column) for column in columns))
    return table


def _cell(stage: str, column: dict[str, float]) -> str:
    share, busy = column.get(stage, 0.0), 1 - column.get(IDLE, 0.0)
    return f"{share:.1%}" + (f" ({share / busy:4.0%})" if stage != IDLE and busy else "       ")


if __name__ == "__main__":
    typer.run(main)
