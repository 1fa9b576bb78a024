"""Pages of results: each is made from a file of docs/results/ that a run wrote, and from nothing else."""

from collections.abc import Iterator
from pathlib import Path

from cordwood.bench import page as performance_page
from cordwood.bench.growth import report as growth_report
from cordwood.bench.growth.curves import Area
from cordwood.bench.measured import MeasuredRun
from cordwood.chaos import recorded
from cordwood.chaos.mutants import report as mutants_report
from cordwood.chaos.results import Result, read

MUTANTS, PERFORMANCE, GROWTH = "mutants.jsonl", "performance.jsonl", "growth.jsonl"


def mutants(docs: Path) -> dict[str, str]:
    """docs/mutants.md."""
    return {"mutants.md": mutants_report.page(_result(docs, MUTANTS))}


def performance(docs: Path) -> dict[str, str]:
    """docs/performance.md and its charts."""
    result = read(docs / "results" / PERFORMANCE)
    measured = MeasuredRun.of(result.rows[0])
    measured.about["commit"] = result.commit
    return performance_page.files(measured)


def growth(docs: Path) -> dict[str, str]:
    """docs/growth.md and its charts."""
    result = _result(docs, GROWTH)
    if result is None:
        return {"growth.md": growth_report.NONE}
    about = result.about | {"commit": result.commit, "at": result.at}
    return growth_report.files(about, [Area.loaded(row) for row in result.rows])


def chaos(docs: Path) -> dict[str, str]:
    """docs/chaos-results.md, with a section for each recorded run of `cordwood chaos sim` and `cordwood chaos run`."""
    return {"chaos-results.md": recorded.page(list(_chaos_results(docs)))}


def _chaos_results(docs: Path) -> Iterator[tuple[str, Result]]:
    for path in sorted((docs / "results").glob("*.jsonl")):
        if (result := read(path)).kind in recorded.KINDS:
            yield path.name, result


def _result(docs: Path, name: str) -> Result | None:
    path = docs / "results" / name
    return read(path) if path.exists() else None
