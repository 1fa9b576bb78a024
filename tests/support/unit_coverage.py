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
FIRST_WORKER = "gw0"
LEFT_OUT = (
    *("tests/docs/*", "tests/test_*.py"),
    *("*/test_any_*.py", "*/test_repetition.py"),
    *("*/test_repairs.py", "*/test_mirror_repair.py", "*/test_flipped_bits.py"),
    *("*/test_large_*.py", "*/test_admission.py", "*/test_portions.py", "*/test_lazy_arrays.py", "*/test_gaps.py"),
    *("*/test_persistent_map.py", "*/raft/test_voters.py", "*/raft/test_lacking_resources.py"),
    *("*/test_*_against_a_list.py", "*/test_*_against_a_model.py"),
)
"""Tests of pages and of the test run, and those whose many cases, items or simulated minutes a tracer slows tenfold.

Shorter tests go through the same code.
"""
LEFT_OUT_FUNCTIONS = frozenset(
    {
        # A crash at each step, damage at each byte.
        "test_a_crash_at_any_step_leaves_the_old_copy_or_the_new_one",
        "test_a_crash_at_any_step_leaves_the_old_segments_or_the_new_one",
        "test_a_crash_at_any_step_loses_nothing_and_brings_nothing_back",
        "test_what_removes_segments_may_die_at_any_step_and_leaves_no_damage",
        "test_every_flipped_bit_is_found_in_its_file",
        "test_responses_may_be_cut_at_every_byte",
        # Many random cases.
        "test_bytes_and_leaders_are_even_afterwards",
        "test_a_balance_breaks_no_hard_goal",
        "test_a_drain_breaks_no_hard_goal",
        "test_a_drain_leaves_nothing_or_says_what",
        "test_it_decides_as_the_model_does_after_every_change",
        "test_the_chain_is_the_manifest",
        "test_commits_that_a_list_lacks_are_found",
        # Thousands of items.
        "test_ten_thousand_partitions_take_few_steps",
        "test_the_number_of_acls_does_not_slow_a_decision",
        "test_a_bystander_of_a_batch_that_takes_long_waits_for_one_step",
        "test_what_a_client_sends_stays_in_order",
        "test_a_search_unpacks_no_more_than_it_needs",
    }
)
"""The functions of other files for which the same holds."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare `--measure-units`."""
    parser.getgroup("general").addoption("--measure-units", action="store_true", help="run the units under coverage.py")


def pytest_configure(config: pytest.Config) -> None:
    """Begin to measure if requested, in a process that runs tests: before it imports our modules."""
    worker: Mapping[str, str] | None = getattr(config, "workerinput", None)
    if config.getoption("measure_units") and (worker is not None or not config.getoption("numprocesses", None)):
        name = worker["workerid"] if worker is not None else "alone"
        coverage = Coverage(data_file=DATA, data_suffix=name, config_file=str(CONFIG))
        config.pluginmanager.register(UnitCoverage(coverage, measures_imports=name in ("alone", FIRST_WORKER)))


class UnitCoverage:
    """Measures the unit tests that this process runs, and with `measures_imports` the imports of all test files.

    All workers import the same.
    """

    def __init__(self, coverage: Coverage, *, measures_imports: bool) -> None:
        DATA.parent.mkdir(exist_ok=True)
        self._coverage = coverage
        self._measures_imports = measures_imports
        if measures_imports:
            self._coverage.start()

    def pytest_collection_finish(self) -> None:
        """Stop after the imports of the test files."""
        if self._measures_imports:
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
    return is_unit(item) and not is_left_out(item.path, getattr(item, "originalname", item.name))


def is_left_out(path: Path, function: str) -> bool:
    """Return whether a test is one of `LEFT_OUT_FUNCTIONS`, or its file one of `LEFT_OUT`."""
    return function in LEFT_OUT_FUNCTIONS or any(path.relative_to(ROOT).match(name) for name in LEFT_OUT)


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
