"""Report of scaling measurements: tables, curves that are not flat, promises, JSON, and the page docs/growth.md."""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from cordwood.bench.charts import lines, number
from cordwood.bench.growth.curves import FLAT, Area, Curve

PICTURES = "pictures/performance"
HEAD = (
    """# Growth

<!-- Made by `python docs/generate` from docs/results/growth.jsonl, which `make growth RECORD=…` writes. -->

The cost of a broker as partitions, connections, consumers, records, logs or brokers grow. Costs are processor time of
the broker's process; waits of consumers, starts and failovers are elapsed times. A curve is
"""
    + f"flat if it grows by no more than {FLAT} times from the first point to the last."
)
NONE = f"""{HEAD}

No run is recorded: `make growth RECORD=docs/results/growth.jsonl` writes one, at a commit.
"""


def show(console: Console, areas: Sequence[Area]) -> None:
    for area in areas:
        table = Table(title=f"Growing: {area.x_label}")
        xs = _xs(area)
        for heading in ("", "unit", *map(number, xs), "last / first"):
            table.add_column(heading, justify="left" if heading in ("", "unit") else "right")
        for curve in area.curves:
            table.add_row(*_cells(curve, xs), f"{curve.growth:.1f}")
        console.print(table)
        for sentence in sentences(area):
            console.print(f"- {sentence}", highlight=False)


def sentences(area: Area) -> Iterator[str]:
    """Yield sentences on the curves that are not flat, the promises, and the notes."""
    yield from (grown(area, curve) for curve in area.curves if not curve.is_flat)
    for promise in area.promises:
        verdict = "kept" if promise.is_kept else "NOT KEPT"
        measured = f"{number(promise.value)} {promise.unit}"
        yield f"{promise.what}: {measured}, at most {number(promise.limit)} {promise.unit}: {verdict}."
    yield from area.notes


def grown(area: Area, curve: Curve) -> str:
    """Return a sentence on a curve that is not flat."""
    (first, low), (last, high) = curve.points[0], curve.points[-1]
    what = f"{curve.name}: {number(low)} {curve.unit} at {number(first)}, {number(high)} at {number(last)}"
    return f"Not flat: {what} ({area.x_label}). {curve.why}".rstrip()


def charts(area: Area) -> dict[str, str]:
    """Return SVG by file name: the curves that share a unit share a chart."""
    drawn = {}
    for index, unit in enumerate(area.units):
        series = {curve.name: curve.points for curve in area.curves if curve.unit == unit}
        name = f"growth-{area.name.replace(' ', '-')}-{index + 1}.svg"
        drawn[name] = lines(f"{', '.join(series)}", unit, series, x_label=area.x_label)
    return drawn


def save(directory: Path, areas: Sequence[Area], about: Mapping[str, object]) -> Path:
    """Write the JSON file, named by the time, and return its path."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"growth-{time.strftime('%Y%m%d-%H%M%S')}.json"
    stored = {**about, "areas": [asdict(area) for area in areas]}
    path.write_text(json.dumps(stored, indent=1, ensure_ascii=False) + "\n")
    return path


def files(about: dict[str, Any], areas: list[Area]) -> dict[str, str]:
    """Return the page and its charts, by path below docs/."""
    drawn = {f"{PICTURES}/{name}": text for area in areas for name, text in charts(area).items()}
    return {"growth.md": page(about, areas), **drawn}


def page(about: dict[str, Any], areas: list[Area]) -> str:
    """Return the page as Markdown."""
    machine = about["machine"]
    when = f"Commit {about['commit']}, {about['at'][:10]}: measured" if "commit" in about else "Measured"
    parts = [
        HEAD,
        f"{when} by `make growth` on {machine['cores']} cores ({machine['processor']}), {machine['system']}, Python"
        f" {machine['python']}, with brokers and clients on the same machine."
        + (f" Only {about['scale']:g} of the work was done." if about["scale"] != 1 else ""),
    ]
    for area in areas:
        parts.append(f"## {area.name[0].upper()}{area.name[1:]}")
        parts += [f"![{area.x_label}]({PICTURES}/{name})" for name in charts(area)]
        parts.append(_markdown_table(area))
        parts.append("\n".join(f"- {sentence}" for sentence in sentences(area)))
    return "\n\n".join(part for part in parts if part) + "\n"


def _markdown_table(area: Area) -> str:
    xs = _xs(area)
    rows = [["", "unit", *map(number, xs)], ["---", "---", *["---:"] * len(xs)]]
    rows += [_cells(curve, xs) for curve in area.curves]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _xs(area: Area) -> list[float]:
    return sorted({x for curve in area.curves for x, _ in curve.points})


def _cells(curve: Curve, xs: Sequence[float]) -> list[str]:
    values = dict(curve.points)
    return [curve.name, curve.unit, *(number(values[x]) if x in values else "" for x in xs)]
