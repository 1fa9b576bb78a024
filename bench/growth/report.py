"""Report of scaling measurements: a table for each growing quantity, curves that are not flat, promises, and JSON."""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from cordwood.bench.charts import lines, number
from cordwood.bench.growth.curves import FLAT, Area, Curve


def show(console: Console, areas: Sequence[Area]) -> None:
    for area in areas:
        table = Table(title=f"Growing: {area.x_label}")
        xs = sorted({x for curve in area.curves for x, _ in curve.points})
        for heading in ("", "unit", *map(number, xs), "last / first"):
            table.add_column(heading, justify="left" if heading in ("", "unit") else "right")
        for curve in area.curves:
            values = dict(curve.points)
            cells = [number(values[x]) if x in values else "" for x in xs]
            table.add_row(curve.name, curve.unit, *cells, f"{curve.growth:.1f}")
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


def flatness() -> str:
    """Return the definition of a flat curve."""
    return f"Flat is what grows by no more than {FLAT} times from the first point to the last."
