"""Pages of results: each is made from a file of docs/results/ that a run wrote, and from nothing else."""

import json
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

from cordwood.bench import page as performance_page
from cordwood.bench.growth import report as growth_report
from cordwood.bench.growth.curves import Area
from cordwood.bench.measured import MeasuredRun
from cordwood.chaos import recorded
from cordwood.chaos.mutants import report as mutants_report
from cordwood.chaos.results import InvalidResultFile, Result, read

MUTANTS, PERFORMANCE, GROWTH = "mutants.jsonl", "performance.jsonl", "growth.jsonl"
UNSEALED_SHA256 = "e7c0daa294d6ef569e6ec69bf8cb1bd3d947a223adb0fa77846bf0a8de060ce4"
"""Of the one result that was measured before results had a commit and a seal."""


def mutants(docs: Path) -> dict[str, str]:
    """docs/mutants.md."""
    return {"mutants.md": mutants_report.page(_result(docs, MUTANTS))}


def performance(docs: Path) -> dict[str, str]:
    """docs/performance.md and its charts. Raises Broken."""
    result = _result(docs, PERFORMANCE)
    if result is not None:
        measured = MeasuredRun.of(result.rows[0])
        measured.about["commit"] = result.commit
        return performance_page.files(measured)
    unsealed = (docs / performance_page.UNSEALED).read_bytes()
    if sha256(unsealed).hexdigest() != UNSEALED_SHA256:
        raise InvalidResultFile(f"{performance_page.UNSEALED} was changed after the run that wrote it")
    return performance_page.files(MeasuredRun.of(json.loads(unsealed)))


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
