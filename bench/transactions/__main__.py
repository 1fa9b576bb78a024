"""`python -m cordwood.bench.transactions`: what transactions cost, as ratios of sides that are measured in turn."""

import json
import signal
import statistics
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from cordwood.bench import machine
from cordwood.bench.generator import IN_PYTHON, Generator, LoadFailed, load_generator
from cordwood.bench.systems import CannotRun, System
from cordwood.bench.transactions import open_ids, throughput
from cordwood.bench.transactions.ratios import Interleaved

HOME = Path(__file__).resolve().parents[2] / "build" / "bench"

Brokers = Annotated[int, typer.Option(min=1, help="1 or 3.")]
Rounds = Annotated[int, typer.Option(min=1, help="Rounds on the same brokers, each in another order.")]
Compare = Annotated[bool, typer.Option(help="Measure Apache Kafka too, on brokers of its own.")]
Librdkafka = Annotated[bool, typer.Option("--librdkafka", help="Use librdkafka and version 1, not franz-go and 2.")]

app = typer.Typer(add_completion=False, no_args_is_help=True)


@app.command()
def produce(
    brokers: Brokers = 3,
    producers: Annotated[int, typer.Option(min=1)] = 1,
    seconds: Annotated[float, typer.Option(min=0.2, help="The duration of each side in each round.")] = 5.0,
    rounds: Rounds = 5,
    compare: Compare = False,
    librdkafka: Librdkafka = False,
) -> None:
    """Compare producers that commit after each MB with those that wait for acknowledgements there, and with neither."""
    pairs = [(throughput.IN_TRANSACTIONS, throughput.FLUSHED), (throughput.IN_TRANSACTIONS, throughput.PIPELINED)]
    measure = partial(throughput.produce, producers=producers, seconds=seconds, rounds=rounds, say=_say)
    _compare(measure, pairs, brokers, is_comparing=compare, is_librdkafka=librdkafka)


@app.command()
def consume(
    brokers: Brokers = 3,
    megabytes: Annotated[int, typer.Option(min=1, help="Of each topic.")] = 500,
    rounds: Rounds = 9,
    compare: Compare = False,
    librdkafka: Librdkafka = False,
) -> None:
    """Compare read_committed consumers with read_uncommitted ones, and with those of a topic without transactions."""
    pairs = [(throughput.COMMITTED, throughput.UNCOMMITTED), (throughput.COMMITTED, throughput.PLAIN)]
    measure = partial(throughput.consume, megabytes=megabytes, rounds=rounds, say=_say)
    _compare(measure, pairs, brokers, is_comparing=compare, is_librdkafka=librdkafka)


@app.command()
def ids(
    brokers: Brokers = 3,
    count: Annotated[int, typer.Option("--ids", min=100, help="Open transactional ids.")] = 100_000,
) -> None:
    """Measure memory for each open transactional id, and a coordinator's failover. Exits with 1 if a goal is missed."""
    _end_by_exit()
    with _failures():
        (system,) = throughput.systems(brokers, HOME, is_comparing=False)
        found = open_ids.measure(system, count, _say)
    _say(found.sentence())
    missed = found.missed()
    results = {"machine": machine.description(), "measured": asdict(found), "missed": missed}
    sys.stdout.write(f"{json.dumps(results, indent=1)}\n")
    raise typer.Exit(1 if missed else 0)


def _end_by_exit() -> None:
    # SIGTERM becomes SystemExit, which passes through the blocks that stop the brokers.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


def _compare(
    measure: Callable[[System, Generator], Interleaved],
    pairs: Iterable[tuple[str, str]],
    brokers: int,
    *,
    is_comparing: bool,
    is_librdkafka: bool,
) -> None:
    """Measure each system, and report."""
    _end_by_exit()
    generator = IN_PYTHON if is_librdkafka else load_generator(HOME, _say)
    with _failures():
        systems = throughput.systems(brokers, HOME, is_comparing=is_comparing)
        found = [measure(system, generator) for system in systems]
    _report(found, pairs, generator)


@contextmanager
def _failures() -> Iterator[None]:
    """Print the reason of a failure, and exit."""
    try:
        yield
    except (CannotRun, LoadFailed, OSError) as error:
        _say(str(error))
        raise typer.Exit(1) from None


def _report(found: Iterable[Interleaved], pairs: Iterable[tuple[str, str]], generator: Generator) -> None:
    """Print a sentence for each side and each ratio, and all figures as JSON."""
    ratios: dict[str, dict[str, list[float]]] = {}
    for measured in found:
        for side in measured.sides:
            _say(f"{measured.system}, {measured.brokers} brokers, {side.sentence()}")
        ratios[measured.system] = {}
        for of, to in pairs:
            for figure, values in (
                ("throughput", measured.ratios(of, to)),
                ("broker CPU", measured.costs(of, to)),
            ):
                ratios[measured.system][f"{figure}, {of} / {to}"] = values
                spread = f"{min(values):.3f} to {max(values):.3f}"
                _say(f"{measured.system}: {figure}, {of} / {to}: {statistics.median(values):.3f} ({spread})")
    results = {
        "machine": machine.description(),
        "client": generator.name,
        "measured": [asdict(measured) for measured in found],
        "ratios": ratios,
    }
    sys.stdout.write(f"{json.dumps(results, indent=1)}\n")


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


if __name__ == "__main__":
    app()
