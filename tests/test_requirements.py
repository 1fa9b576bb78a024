"""A missing requirement skips a test, and fails it if CORDWOOD_REQUIRE names the requirement."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from requirements import Requirement, required

ROOT = Path(__file__).resolve().parents[1]
SKIPS = re.compile(r"pytest\.skip\(|mark\.skip|importorskip|mark\.xfail|pytest\.xfail\(")
CASES = """
import pytest
from requirements import Requirement, check, needs

@needs(Requirement.KCAT, False, "no kcat")
def test_marked():
    pass

def test_inside():
    check(Requirement.GO, False, "no go")

@needs(Requirement.AIO, True, "no aio")
def test_met():
    pass
"""


@pytest.mark.parametrize(
    ("words", "outcome"),
    [("", "1 passed, 2 skipped"), ("go", "1 failed, 1 passed, 1 skipped"), ("go, kcat", "1 failed, 1 passed, 1 error")],
)
def test_a_requirement_that_is_named_and_missing_fails_its_tests(tmp_path: Path, words: str, outcome: str) -> None:
    (tmp_path / "test_cases.py").write_text(CASES)
    done = run_pytest(tmp_path, words)
    assert outcome in done.stdout, done.stdout + done.stderr


def test_an_unknown_requirement_ends_the_run_with_a_sentence() -> None:
    done = run_pytest(ROOT / "tests" / "test_requirements.py", "kcatt")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "CORDWOOD_REQUIRE: 'kcatt' is not a valid Requirement; known are aio, cc, chromium" in done.stderr


def test_ci_requires_all_that_a_machine_with_root_can_have() -> None:
    (words,) = re.findall(r"CORDWOOD_REQUIRE=([\w,-]+)", (ROOT / ".ci" / "run").read_text())
    not_by_root = {Requirement.LONG_TESTS, Requirement.NETWORK}
    assert required({"CORDWOOD_REQUIRE": words}) >= frozenset(Requirement) - not_by_root


def test_no_test_skips_but_for_a_requirement() -> None:
    allowed = {ROOT / "tests" / "support" / "requirements.py", Path(__file__).resolve()}
    tests = set((ROOT / "tests").rglob("*.py")) - allowed
    assert [str(path) for path in sorted(tests) if SKIPS.search(path.read_text())] == []


def run_pytest(target: Path, words: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "pytest", "-q", "-p", "requirements", "-p", "no:cacheprovider", str(target)]
    environment = {
        **os.environ,
        "CORDWOOD_REQUIRE": words,
        "PYTHONPATH": str(ROOT / "tests" / "support"),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }
    return subprocess.run(
        command, capture_output=True, text=True, timeout=60, cwd=target.parent, env=environment, check=False
    )
