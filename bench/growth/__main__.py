"""`make growth`: scaling of costs with partitions, connections, consumers, record size, log size and brokers."""

import signal
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from confluent_kafka import KafkaException
from rich.console import Console

from cordwood.bench import machine
from cordwood.bench.growth import (
    brokers,
    connections,
    consumers,
    five_brokers,
    log_size,
    partitions,
    record_size,
    report,
)
from cordwood.bench.growth.curves import Area
from cordwood.bench.growth.failover import NotLedAgain
from cordwood.bench.growth.place import BenchPlace, NotServed
from cordwood.bench.growth.wire import RequestFailed
from cordwood.chaos.live.brokers import NotInTime
from cordwood.chaos.live.process import BrokerEnded, StillRuns
from cordwood.chaos.program import run_program
from cordwood.chaos.results import ResultFile

ROOT = Path(__file__).resolve().parent.parent.parent
HOME, RESULTS = ROOT / "build" / "bench", ROOT / "bench" / "results"


class What(StrEnum):
    """The quantities that grow."""

    PARTITIONS = "partitions"
    CONNECTIONS = "connections"
    CONSUMERS = "consumers"
    RECORD_SIZE = "record-size"
    LOG_SIZE = "log-size"
    BROKERS = "brokers"
    FIVE_BROKERS = "five-brokers"


AREAS: dict[What, Callable[[BenchPlace], Area]] = {
    What.PARTITIONS: partitions.measure,
    What.CONNECTIONS: connections.measure,
    What.CONSUMERS: consumers.measure,
    What.RECORD_SIZE: record_size.measure,
    What.LOG_SIZE: log_size.measure,
    What.BROKERS: brokers.measure,
    What.FIVE_BROKERS: five_brokers.measure,
}


def main(
    only: Annotated[list[What] | None, typer.Option(help="Only this; may be repeated.")] = None,
    scale: Annotated[float, typer.Option(min=0.001, help="The share of the work to do, for a quick trial.")] = 1.0,
    data: Annotated[
        Path | None,
        typer.Option(exists=True, file_okay=False, help="The directory for the brokers' data during the run."),
    ] = None,
    recorded: Annotated[
        Path | None,
        typer.Option("--record", metavar="FILE", help="Write a result file, or continue one of the same commit."),
    ] = None,
) -> None:
    """Measure, print tables, and save the same as JSON. Exits with 1 where a promise is not kept, at full scale."""
    console, progress = Console(), Console(stderr=True, style="dim")
    # SIGTERM becomes SystemExit, which passes through the blocks that stop the brokers.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    HOME.mkdir(parents=True, exist_ok=True)
    areas: list[Area] = []
    try:
        record = None if recorded is None else ResultFile(recorded, "growth", _about(scale))
        measured = set() if record is None else {row["name"].replace(" ", "-") for row in record.rows}
        with tempfile.TemporaryDirectory(prefix="growth-", dir=data or HOME) as directory:
            place = BenchPlace(Path(directory), scale, progress.print)
            for what in only or list(What):
                if what.value in measured:
                    continue
                progress.print(what.value)
                areas.append(AREAS[what](place))
                report.show(console, areas[-1:])
                if record is not None:
                    record.add(asdict(areas[-1]))
        if record is not None and len(record.rows) == len(What):
            record.end()
    except (
        BrokerEnded,
        StillRuns,
        NotInTime,
        NotLedAgain,
        NotServed,
        RequestFailed,
        KafkaException,
        OSError,
    ) as error:
        progress.print(str(error), style="not dim red", highlight=False)
        raise typer.Exit(1) from None
    path = report.save(RESULTS, areas, _about(scale))
    console.print(f"Saved as {path.relative_to(ROOT)}.")
    if scale >= 1 and not all(promise.is_kept for area in areas for promise in area.promises):
        raise typer.Exit(1)


def _about(scale: float) -> dict[str, Any]:
    return {"machine": machine.description(), "scale": scale}


if __name__ == "__main__":
    run_program(main)
