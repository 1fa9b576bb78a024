"""docs/growth.md and its charts, from saved results: `python -m cordwood.bench.growth.page RESULT.json…`.

Of several results the later ones replace the areas that they have measured again.
"""

from pathlib import Path
from typing import Annotated, Any

import typer

from cordwood.bench.charts import number
from cordwood.bench.growth.curves import Area
from cordwood.bench.growth.report import charts, flatness, load, sentences

DOCS = Path(__file__).resolve().parent.parent.parent / "docs"
PICTURES = "pictures/performance"


def main(
    results: Annotated[list[Path], typer.Argument(exists=True, dir_okay=False, help="From bench/results.")],
    docs: Annotated[Path, typer.Option(file_okay=False, help="Where to write the page and its pictures.")] = DOCS,
) -> None:
    """Write the page of what was measured."""
    areas: dict[str, Area] = {}
    about: dict[str, Any] = {}
    for result in results:
        about, measured = load(result)
        areas.update((area.name, area) for area in measured)
    pictures = docs / PICTURES
    pictures.mkdir(parents=True, exist_ok=True)
    for area in areas.values():
        for name, drawn in charts(area).items():
            (pictures / name).write_text(drawn)
    (docs / "growth.md").write_text(page(about, list(areas.values())))


def page(about: dict[str, Any], areas: list[Area]) -> str:
    """The page as Markdown."""
    machine = about["machine"]
    parts = [
        "# Growth",
        "What a broker costs as there is more of something. Costs are processor time of the broker's process; what"
        " consumers wait for, and starts and failovers, are times on a clock. " + flatness(),
        f"Measured by `make growth` on {machine['cores']} cores ({machine['processor']}), {machine['system']}, Python"
        f" {machine['python']}, with brokers and clients on the same machine."
        + (f" Only {about['scale']:g} of the work was done." if about["scale"] != 1 else ""),
    ]
    for area in areas:
        parts.append(f"## {area.name[0].upper()}{area.name[1:]}")
        parts += [f"![{area.x_label}]({PICTURES}/{name})" for name in charts(area)]
        parts.append(_table(area))
        parts.append("\n".join(f"- {sentence}" for sentence in sentences(area)))
    return "\n\n".join(part for part in parts if part) + "\n"


def _table(area: Area) -> str:
    xs = sorted({x for curve in area.curves for x, _ in curve.points})
    rows = [["", "unit", *map(number, xs)], ["---", "---", *["---:"] * len(xs)]]
    for curve in area.curves:
        values = dict(curve.points)
        rows.append([curve.name, curve.unit, *(number(values[x]) if x in values else "" for x in xs)])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


if __name__ == "__main__":
    typer.run(main)
