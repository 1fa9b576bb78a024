"""The page of scaling measurements and its charts, from one saved result: docs/growth.md is one."""

from typing import Any

from cordwood.bench.charts import number
from cordwood.bench.growth.curves import Area
from cordwood.bench.growth.report import charts, flatness, sentences

PICTURES = "pictures/performance"
HEAD = """# Growth

<!-- Made by `python docs/generate` from docs/results/growth.jsonl, which `make growth RECORD=…` writes. -->

What a broker costs as there is more of something. Costs are processor time of the broker's process; what consumers
wait for, and starts and failovers, are times on a clock. """ + flatness()
NONE = f"""{HEAD}

No run is recorded: `make growth RECORD=docs/results/growth.jsonl` writes one, at a commit.
"""


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
