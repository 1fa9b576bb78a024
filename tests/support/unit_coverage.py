"""Branch coverage of the unit tests: a table by package, HTML pages in build/coverage, and the floor of pyproject.toml.

`python tests/support/unit_coverage.py [arguments of pytest]` runs the tests of `make test-fast`, without `LEFT_OUT`.
The exit code is 1 if the coverage is below the floor. The floor is not checked after a failed test: that test covers
less than it should, and `make test` decides whether it is flaky.
"""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coverage import Coverage

ROOT = Path(__file__).resolve().parent.parent.parent
REPORT = ROOT / "build" / "coverage" / "coverage.json"
LEFT_OUT = (
    *("tests/docs", "tests/test_*.py"),
    *("*/test_any_*.py", "*/test_log_against_a_list.py", "*/test_repetition.py"),
    *("*/test_repairs.py", "*/test_mirror_repair.py", "*/test_flipped_bits.py"),
)
"""Tests of pages and of the test run, and tests of hundreds of random cases or flipped bits, which a tracer slows."""
PYTEST = (
    *(sys.executable, "-m", "pytest", "--fast", "--quiet", "--cov", "--cov-report=", "--cov-fail-under=0"),
    *(f"--ignore-glob={ROOT}/{name}" for name in LEFT_OUT),
)
TESTS_FAILED = 1
"""pytest's exit code. All larger ones mean that the tests did not run."""


@dataclass(frozen=True, slots=True)
class Figure:
    """Covered and existing lines and branches."""

    covered_lines: int = 0
    lines: int = 0
    covered_branches: int = 0
    branches: int = 0

    def __add__(self, other: "Figure") -> "Figure":
        return Figure(
            self.covered_lines + other.covered_lines,
            self.lines + other.lines,
            self.covered_branches + other.covered_branches,
            self.branches + other.branches,
        )

    @property
    def percent(self) -> float:
        """Lines and branches together, as coverage.py counts them."""
        return percentage(self.covered_lines + self.covered_branches, self.lines + self.branches)


def percentage(part: int, whole: int) -> float:
    """Return `part` in percent of `whole`. Nothing is covered completely."""
    return 100.0 * part / whole if whole else 100.0


def by_package(report: Mapping[str, Any]) -> dict[str, Figure]:
    """Return the figures of the top-level folders in coverage.py's JSON report."""
    figures: dict[str, Figure] = {}
    for name, file in sorted(report["files"].items()):
        summary = file["summary"]
        figure = Figure(
            summary["covered_lines"], summary["num_statements"], summary["covered_branches"], summary["num_branches"]
        )
        package = Path(name).parts[0]
        figures[package] = figures.get(package, Figure()) + figure
    return figures


def table(figures: Mapping[str, Figure]) -> Iterator[str]:
    """Yield the lines of the table."""
    yield f"{'package':<12}{'lines':>8}{'covered':>9}{'branches':>10}{'covered':>9}{'both':>8}"
    for name, figure in [*figures.items(), ("all", sum(figures.values(), Figure()))]:
        lines = percentage(figure.covered_lines, figure.lines)
        branches = percentage(figure.covered_branches, figure.branches)
        yield f"{name:<12}{figure.lines:>8}{lines:>8.1f}%{figure.branches:>10}{branches:>8.1f}%{figure.percent:>7.1f}%"


def verdict(percent: float, floor: float, *, is_complete: bool) -> str | None:
    """Return what is wrong, None if nothing is. `is_complete` is False after a failed test."""
    if not is_complete or percent >= floor:
        return None
    return f"The units cover {percent:.1f} %, less than the floor of {floor:g} % (fail_under in pyproject.toml)."


def main(arguments: Sequence[str]) -> int:
    """Run the units, write the reports and check the floor. Return the exit code."""
    code = subprocess.run([*PYTEST, *arguments], cwd=ROOT).returncode
    if code > TESTS_FAILED or code < 0:
        return code
    measured = Coverage(config_file=str(ROOT / "pyproject.toml"))
    measured.load()
    measured.html_report()
    measured.json_report(outfile=str(REPORT))
    figures = by_package(json.loads(REPORT.read_text()))
    lines = [*table(figures), f"Pages: {REPORT.with_name('index.html').relative_to(ROOT)}"]
    if code:
        lines.append("A test failed, so the floor is not checked.")
    sys.stdout.write("\n".join(lines) + "\n")
    floor = measured.get_option("report:fail_under")
    assert isinstance(floor, int | float)
    if wrong := verdict(sum(figures.values(), Figure()).percent, floor, is_complete=code == 0):
        sys.stderr.write(wrong + "\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
