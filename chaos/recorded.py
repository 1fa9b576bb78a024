"""docs/chaos-results.md: recorded runs of `cordwood chaos sim`, `cordwood chaos run`, and the programs beside them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cordwood.chaos.results import Result

SIM, RUN, ARCHIVE_KILLS, REPLACEMENTS = "chaos-sim", "chaos-run", "chaos-archive-kills", "chaos-replacements"
KINDS = {
    SIM: "cordwood chaos sim",
    RUN: "cordwood chaos run",
    ARCHIVE_KILLS: "python -m cordwood.chaos.live.archive_kills",
    REPLACEMENTS: "python -m cordwood.chaos.live.replacements",
}
HEAD = """# Recorded runs

<!-- Made by `python docs/generate` from docs/results/, where these commands write with --record. -->

Each section is one run at one commit, as its file of `docs/results/` has it. What is done in them, and what counts as
an anomaly, is in [chaos.md](chaos.md).
"""
NONE = """No run is recorded: `cordwood chaos sim --seeds 1..2000 --record docs/results/chaos-sim.jsonl` and
`cordwood chaos run --minutes 30 --record docs/results/chaos-run.jsonl` each write one, at a commit.
"""
FIGURES = {
    "seeds": "seeds",
    "simulated_seconds": "simulated seconds",
    "simulated_seconds_per_wall_second": "simulated seconds in one of ours",
    "minutes": "minutes",
    "acknowledged": "records acknowledged",
    "read": "records read",
    "compacted_acknowledged": "records acknowledged in a compacted topic",
    "restorations_killed": "restorations killed",
    "restored_files": "files restored",
    "sent_again": "sent again by clients in a new epoch",
    "longest_silence_s": "longest time without an acknowledgement, s",
    "trace_hash": "trace",
}
COUNTS = ("faults", "actions")


def page(results: Sequence[tuple[str, Result]]) -> str:
    """Return the page as Markdown, from results with their file names."""
    return "\n".join([HEAD, *(section(name, result) for name, result in results)] if results else [HEAD, NONE])


def section(name: str, result: Result) -> str:
    """Return the section of one run: parameters, findings, counts."""
    asked = ", ".join(f"{key} {value}" for key, value in result.about.items())
    title = f"## `{KINDS[result.kind]}`: {asked}\n\n[{name}](results/{name}): commit {result.commit}, {result.at[:10]}"
    title += f", {result.machine['cores']} cores, Python {result.machine['python']}."
    if not result.is_whole:
        return f"{title} The run was broken off.\n"
    return f"{title} {' '.join(map(_found, result.rows))}\n\n{''.join(map(_table, result.rows))}"


def _found(row: Mapping[str, Any]) -> str:
    kinds = ", ".join(f"{kind} {count}" for kind, count in row["kinds"].items())
    return f"Found: {kinds}." if kinds else "No anomaly."


def _table(row: Mapping[str, Any]) -> str:
    return "| | |\n|---|--:|\n" + "".join(f"| {name} | {value} |\n" for name, value in _figures(row))


def _figures(row: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for key, meaning in FIGURES.items():
        if row.get(key) is not None:
            value = row[key]
            yield meaning, value if isinstance(value, str) else f"{value:,}"
    for key in COUNTS:
        yield from ((f"{key}: {name}", f"{count:,}") for name, count in row.get(key, {}).items())
