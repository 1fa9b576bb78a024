"""Branch coverage of the unit tests, a pytest plugin, and its report: a table by package, HTML pages, and a floor.

With `--measure-units` the units, without `LEFT_OUT`, run under coverage.py, and the other tests run as they do without
it: one run of the suite does both. `python tests/support/unit_coverage.py [--pages]` reports what the
last run measured. The exit code is 1 if the coverage is below the floor of pyproject.toml.
"""

import json
import sys
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from coverage import Coverage
from fast import is_unit

ROOT = Path(__file__).resolve().parent.parent.parent
CONFIG = ROOT / "pyproject.toml"
DATA = ROOT / "build" / "coverage.data"
"""The data of all processes of a run. Each writes to this name with a suffix; the report combines them."""
PAGES = ROOT / "build" / "coverage"
LEFT_OUT = (
    *("tests/docs/*", "tests/test_*.py"),
    *("*/test_any_*.py", "*/test_log_against_a_list.py", "*/test_repetition.py"),
    *("*/test_repairs.py", "*/test_mirror_repair.py", "*/test_flipped_bits.py"),
    *("*/test_large_*.py", "*/test_admission.py", "*/test_portions.py", "*/test_lazy_arrays.py", "*/test_gaps.py"),
    *("*/test_persistent_map.py", "*/raft/test_voters.py", "*/raft/test_lacking_resources.py"),
)
"""Tests of pages and of the test run, and those whose many cases, items or simulated minutes a tracer slows tenfold.

Shorter tests go through the same code.
"""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare `--measure-units`."""
    parser.getgroup("general").addoption("--measure-units", action="store_true", help="run the units under coverage.py")


def pytest_configure(config: pytest.Config) -> None:
    """Begin to measure if requested, in a process that runs tests: before it imports our modules."""
    worker: Mapping[str, str] | None = getattr(config, "workerinput", None)
    if config.getoption("measure_units") and (worker is not None or not config.getoption("numprocesses", None)):
        name = worker["workerid"] if worker is not None else "alone"
        config.pluginmanager.register(UnitCoverage(Coverage(data_file=DATA, data_suffix=name, config_file=str(CONFIG))))


class UnitCoverage:
    """Measures the imports of this process, and the unit tests that it runs."""

    def __init__(self, coverage: Coverage) -> None:
        DATA.parent.mkdir(exist_ok=True)
        self._coverage = coverage
        self._coverage.start()

    def pytest_collection_finish(self) -> None:
        """Stop after the imports of the test files."""
        self._coverage.stop()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Measure one test, its fixtures included, if it is a unit."""
        if not is_measured(item):
            return (yield)
        with self._coverage.collect():
            return (yield)

    def pytest_sessionfinish(self) -> None:
        """Write the data of this process."""
        self._coverage.save()


def is_measured(item: pytest.Item) -> bool:
    """Return whether a test is a unit that a tracer does not slow too much."""
    return is_unit(item) and not is_left_out(item.path)


def is_left_out(path: Path) -> bool:
    """Return whether a test file is one of `LEFT_OUT`."""
    return any(path.relative_to(ROOT).match(name) for name in LEFT_OUT)


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


def verdict(percent: float, floor: float) -> str | None:
    """Return what is wrong, None if nothing is."""
    if percent >= floor:
        return None
    return f"The units cover {percent:.1f} %, less than the floor of {floor:g} % (fail_under in pyproject.toml)."


def main(arguments: Sequence[str]) -> int:
    """Write the reports and check the floor. Return the exit code."""
    measured = Coverage(data_file=DATA, config_file=str(CONFIG))
    measured.combine([str(DATA.parent)])
    measured.save()
    PAGES.mkdir(exist_ok=True)
    report = PAGES / "coverage.json"
    measured.json_report(outfile=str(report))
    figures = by_package(json.loads(report.read_text()))
    lines = list(table(figures))
    if "--pages" in arguments:
        measured.html_report()
        lines.append(f"Pages: {(PAGES / 'index.html').relative_to(ROOT)}")
    sys.stdout.write("\n".join(lines) + "\n")
    floor = measured.get_option("report:fail_under")
    assert isinstance(floor, int | float)
    if wrong := verdict(sum(figures.values(), Figure()).percent, floor):
        sys.stderr.write(wrong + "\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
