"""A pytest plugin for a foreign suite: writes each test's outcome to the file that COMPAT_OUTCOMES names."""

import json
import os
from pathlib import Path

import pytest

WORST_FIRST = ("failed", "skipped", "passed")
_outcomes: dict[str, str] = {}


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Record the worst outcome of a test's setup, call and teardown."""
    known = _outcomes.get(report.nodeid, "passed")
    _outcomes[report.nodeid] = min(known, report.outcome, key=WORST_FIRST.index)


def pytest_sessionfinish() -> None:
    lines = [json.dumps({"test": test, "outcome": outcome}) + "\n" for test, outcome in _outcomes.items()]
    Path(os.environ["COMPAT_OUTCOMES"]).write_text("".join(lines))
