"""What came of a run: a table for people, a JSON file for programs."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from cordwood.bench.disk_limit import DiskLimit
from cordwood.bench.rounds import Results, Samples

OURS = "cordwood"


def ratio(ours: Samples, theirs: Samples) -> float:
    """How many times better the median of ours is: above 1 we win, whether more or less is better."""
    more, less = (ours.median, theirs.median) if ours.more_is_better else (theirs.median, ours.median)
    return more / less if less else float("inf")


def show(console: Console, results: Results, limits: Sequence[DiskLimit], brokers: int, generator: str) -> None:
    """Print the table, and under it what the disk allows. Every topic had a replica on each of the brokers."""
    systems = list(dict.fromkeys(system for samples in results.values() for system in samples))
    others = [system for system in systems if system != OURS]
    size = "one broker" if brokers == 1 else f"{brokers} brokers, replication factor {brokers}"
    table = Table(title=f"{size}, acks=all unless it says otherwise; load from {generator}")
    table.add_column("")
    table.add_column("unit")
    for system in systems:
        table.add_column(system, justify="right")
    for system in others:
        table.add_column(f"vs {system}", justify="right")
    for name, samples in results.items():
        unit = next(iter(samples.values())).unit
        cells = [_cell(samples[system]) if system in samples else "-" for system in systems]
        ratios = [
            f"{ratio(samples[OURS], samples[system]):.2f}" if {OURS, system} <= samples.keys() else "-"
            for system in others
        ]
        table.add_row(name, unit, *cells, *ratios)
    console.print(table)
    if others:
        console.print("Medians (least to most of the rounds). Beside “vs”, more than 1 is better in every row.")
    if brokers > 1:
        console.print("CPU is that of all brokers together, memory that of the broker that has most.")
    for limit in limits:
        console.print(
            f"The disk alone: {limit.append_bytes // 1024:,} KiB append and fdatasync, {limit.appends_per_s:,.0f}/s, "
            f"{limit.mb_per_s:,.0f} MB/s, median {limit.median_ms:.2f} ms."
        )


def _cell(samples: Samples) -> str:
    if len(samples.values) == 1:
        return _number(samples.median)
    return f"{_number(samples.median)} ({_number(min(samples.values))} to {_number(max(samples.values))})"


def _number(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.2f}" if value >= 1 else f"{value:.3f}"


def save(directory: Path, results: Results, limits: Sequence[DiskLimit], about: dict[str, Any]) -> Path:
    """Write everything that was measured into a file named by the time, and return its path."""
    now = datetime.now(UTC)
    document = {
        "at": now.isoformat(timespec="seconds"),
        **about,
        "disk": [
            {"append_bytes": limit.append_bytes, "appends_per_s": limit.appends_per_s, "median_ms": limit.median_ms}
            for limit in limits
        ],
        "figures": [
            {
                "name": name,
                "unit": next(iter(samples.values())).unit,
                "more_is_better": next(iter(samples.values())).more_is_better,
                "values": {system: sample.values for system, sample in samples.items()},
                "ratio": {
                    system: ratio(samples[OURS], sample)
                    for system, sample in samples.items()
                    if system != OURS and OURS in samples
                },
            }
            for name, samples in results.items()
        ],
    }
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{now:%Y%m%d-%H%M%S}.json"
    path.write_text(json.dumps(document, indent=2) + "\n")
    return path
