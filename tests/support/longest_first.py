"""Distribution of tests over workers, a pytest plugin for `--dist loadfile`: the longest units first.

The tests of a file stay together because of its fixtures. All files with the Spark session stay together too, because a
second session costs a gigabyte of memory. `--record-durations` writes the duration of each file.
"""

import json
from collections import Counter
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from statistics import mean

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling, Scheduling
from xdist.workermanage import WorkerController

DURATIONS = Path(__file__).with_name("durations.json")
"""Seconds by file."""

SPARK = "tests/spark/"
WITHOUT_A_SESSION = "tests/spark/client/"


class LongestFirst(LoadFileScheduling):
    """xdist's distribution by file, with our units. The workers have sorted the tests already."""

    def __init__(self, config: pytest.Config, log: Producer | None = None) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False

    def remove_node(self, node: WorkerController) -> str | None:
        """Take the work from a worker that ended. Return the test during which it crashed, which is not run again."""
        workload = self.assigned_work[node]
        pending = [(unit, test) for unit, tests in workload.items() for test, is_done in tests.items() if not is_done]
        if pending:
            unit, crashed = pending[0]
            workload[unit][crashed] = True
        super().remove_node(node)
        return pending[0][1] if pending else None

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)


class DurationRecorder:
    """Sums of the durations of a run by file."""

    def __init__(self) -> None:
        self._seconds: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add one phase of a test."""
        self._seconds[file_of(report.nodeid)] += report.duration  # type: ignore[assignment]

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the durations of the files that ran, keep those of the others, and drop files that no longer exist."""
        known = {**durations(), **{name: round(seconds, 1) for name, seconds in self._seconds.items()}}
        there = {name: known[name] for name in sorted(known) if (session.config.rootpath / name).exists()}
        DURATIONS.write_text(json.dumps(there, indent=1) + "\n")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare `--record-durations`."""
    parser.getgroup("xdist").addoption(
        "--record-durations", action="store_true", help=f"write the seconds of each file into {DURATIONS.name}"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the recorder if requested, in the process that receives all reports."""
    if config.getoption("record_durations") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(DurationRecorder())


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling | None:
    """Replace xdist's own `loadfile`."""
    return LongestFirst(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Sort the tests of a worker by the length of their unit, stable within a unit."""
    if not hasattr(config, "workerinput"):
        return
    lengths = unit_lengths({file_of(item.nodeid) for item in items}, durations())
    items.sort(key=lambda item: (-lengths[unit_of(item.nodeid)], unit_of(item.nodeid)))


def unit_lengths(files: set[str], known: Mapping[str, float]) -> Counter[str]:
    """Return seconds by unit. An unknown file counts as average."""
    average = mean(known.values()) if known else 1.0
    lengths: Counter[str] = Counter()
    for name in sorted(files):
        lengths[unit_of(name)] += known.get(name, average)  # type: ignore[assignment]
    return lengths


def unit_of(nodeid: str) -> str:
    """Return the unit of a test: its file, or Spark."""
    name = file_of(nodeid)
    return SPARK if name.startswith(SPARK) and not name.startswith(WITHOUT_A_SESSION) else name


def file_of(nodeid: str) -> str:
    """Return the file of a test."""
    return nodeid.partition("::")[0]


@cache
def durations() -> Mapping[str, float]:
    """Return the seconds by file of the last recorded runs, as they are when this is first called."""
    known: dict[str, float] = json.loads(DURATIONS.read_text()) if DURATIONS.exists() else {}
    return known
