"""Test results as JSON lines, a pytest plugin. Each is written on arrival, so that a crashed run keeps its results.

With `--results FILE` each line of FILE is a `Line`. If a test has not ended `HANG_GRACE_S` after its timeout, because
it ignores the signal of pytest-timeout, its process is ended: all stacks go to `FILE.hangs`, and xdist reports a
crashed worker.
"""

import faulthandler
import json
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Literal, TextIO, TypedDict

import pytest

HANG_GRACE_S = 60.0
TIMEOUT_S_DEFAULT = 120.0


class Line(TypedDict, total=False):
    """The collected tests, or one report; `at` is "setup", "call", "teardown", "collect", or "???" for a crash."""

    tests: list[str]
    test: str
    at: str
    outcome: Literal["passed", "failed", "skipped"]
    text: str
    seconds: float


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare `--results` and `--only`."""
    group = parser.getgroup("results")
    group.addoption("--results", metavar="FILE", help="append the results to FILE, lines of JSON")
    group.addoption("--only", metavar="FILE", help="run only the tests whose ids FILE has, a list in JSON")


def pytest_configure(config: pytest.Config) -> None:
    """Register the plugins that the options select."""
    name = config.getoption("results")
    if name is None:
        return
    timeout_s = float(config.getoption("timeout") or config.getini("timeout") or TIMEOUT_S_DEFAULT)
    config.pluginmanager.register(HangGuard(Path(f"{name}.hangs"), timeout_s))
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(ResultsLog(Path(name)))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep only the tests that `--only` names. Ids are compared as text, since not all of them can be arguments."""
    name = config.getoption("only")
    if name is None:
        return
    wanted = set(json.loads(Path(name).read_text()))
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in wanted])
    items[:] = [item for item in items if item.nodeid in wanted]


class ResultsLog:
    """The results file, written in the process that receives the reports of all workers."""

    def __init__(self, path: Path) -> None:
        self._file: TextIO = path.open("a", buffering=1)
        self._has_collected = False

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Write the ids that this process collected."""
        self._write_collected([item.nodeid for item in session.items])

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        """Write the ids that the first worker collected; all workers collect the same."""
        self._write_collected(list(ids))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Write a collection error."""
        if report.failed:
            self._write({"test": report.nodeid, "at": "collect", "outcome": "failed", "text": report.longreprtext})

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Write the outcome of one phase of a test."""
        line: Line = {"test": report.nodeid, "at": report.when or "", "outcome": report.outcome}
        line["seconds"] = report.duration
        if report.skipped and isinstance(report.longrepr, tuple):
            line["text"] = report.longrepr[2].removeprefix("Skipped: ")
        elif report.failed:
            sections = [f"{title}:\n{text}" for title, text in report.sections]
            line["text"] = "\n".join([report.longreprtext, *sections])
        self._write(line)

    def _write_collected(self, ids: list[str]) -> None:
        if ids and not self._has_collected:
            self._has_collected = True
            self._write({"tests": ids})

    def _write(self, line: Line) -> None:
        self._file.write(json.dumps(line) + "\n")


class HangGuard:
    """A watchdog that ends the process of a test that runs past its timeout."""

    def __init__(self, path: Path, default_timeout_s: float) -> None:
        self._file: TextIO = path.open("a")
        self._default_timeout_s = default_timeout_s

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Watch one test, its fixtures included."""
        mark = item.get_closest_marker("timeout")
        timeout_s = float(mark.args[0]) if mark and mark.args else self._default_timeout_s
        faulthandler.dump_traceback_later(timeout_s + HANG_GRACE_S, file=self._file, exit=True)
        try:
            return (yield)
        finally:
            faulthandler.cancel_dump_traceback_later()
