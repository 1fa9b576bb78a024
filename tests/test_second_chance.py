"""A test that fails beside others and passes alone is reported as flaky; every other failure fails the build."""

import json
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from second_chance import SECOND_CHANCES_MAX, Results

SUPPORT = Path(__file__).resolve().parent / "support"
SUITE = """
import os, pathlib, signal, subprocess, time
import pytest

def first_time(name):
    path = pathlib.Path(name)
    is_first = not path.exists()
    path.touch()
    return is_first

def test_good():
    pass

@pytest.mark.parametrize("word", ["a/b::c [d] "])
def test_late(word):
    if first_time("late"):
        print("a line before it")
        raise TimeoutError("the others were too loud")
"""
CRASH = """
def test_crash():
    if first_time("crash"):
        left = subprocess.Popen(["sleep", "1000"], start_new_session=True)
        pathlib.Path("left").write_text(str(left.pid))
        os._exit(9)
"""
HANG = """
@pytest.mark.timeout(0.2)
def test_hang():
    if first_time("hang"):
        signal.signal(signal.SIGALRM, signal.SIG_IGN)
        time.sleep(60)
"""
BROKEN = """
@pytest.fixture
def a_place_that_is_never_left():
    yield
    raise OSError("stuck")

def test_broken(a_place_that_is_never_left):
    pass
"""


def run(root: Path, suite: str, *arguments: str, folder: str = ".") -> "subprocess.CompletedProcess[str]":
    (root / "pytest.ini").write_text(f"[pytest]\npythonpath = {SUPPORT}\ntestpaths = {folder}\n")
    (root / folder / "conftest.py").write_text(
        "import results_log\nresults_log.HANG_GRACE_S = 0.5\npytest_plugins = ['results_log', 'longest_first']\n"
    )
    (root / folder / "test_suite.py").write_text(suite)
    plugins = ["-p", "xdist", "-p", "pytest_timeout", "-p", "no:cacheprovider"]
    command = [sys.executable, SUPPORT / "second_chance.py", *plugins, *arguments]
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, timeout=100, check=False)


def has_ended(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_what_passes_alone_is_flaky_and_fails_no_build(tmp_path: Path) -> None:
    done = run(tmp_path, SUITE + CRASH + HANG, "-n", "2", "--dist", "loadfile")
    assert done.returncode == 0, done.stdout + done.stderr
    flaky = (tmp_path / "build" / "flaky.txt").read_text()
    assert flaky in done.stdout
    assert "FLAKY test_suite.py::test_late[a/b::c [d] ]:" in flaky
    assert "the others were too loud" in flaky
    assert "a line before it" in flaky
    assert "FLAKY test_suite.py::test_crash:" in flaky
    assert "FLAKY test_suite.py::test_hang:" in flaky
    assert "in test_hang" in done.stdout, "the stacks of a hung test are missing"
    second = (tmp_path / "build" / "results-second.jsonl").read_text()
    assert "test_good" not in second
    assert has_ended(int((tmp_path / "left").read_text())), "what a crashed worker left beside the second chance"


def test_the_suites_own_layout_is_found_in_both_runs(tmp_path: Path) -> None:
    """conftest.py below the root declares the options; pytest reads it early only through `testpaths`."""
    (tmp_path / "tests").mkdir()
    done = run(tmp_path, SUITE, folder="tests")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "FLAKY tests/test_suite.py::test_late[a/b::c [d] ]:" in done.stdout


def test_what_fails_twice_fails_the_build(tmp_path: Path) -> None:
    done = run(tmp_path, SUITE + BROKEN)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "FAILED TWICE test_suite.py::test_broken" in done.stdout
    assert "FLAKY test_suite.py::test_late" in done.stdout


def test_many_failures_get_no_second_chance(tmp_path: Path) -> None:
    one_more = f"@pytest.mark.parametrize('n', range({SECOND_CHANCES_MAX}))\ndef test_one(n):\n    assert not n + 1\n"
    done = run(tmp_path, SUITE + one_more)
    assert done.returncode == 1
    assert not (tmp_path / "build" / "results-second.jsonl").exists()


def test_an_error_at_collection_gets_no_second_chance(tmp_path: Path) -> None:
    done = run(tmp_path, "import nothing_of_this_name\n")
    assert done.returncode != 0
    assert not (tmp_path / "build" / "results-second.jsonl").exists()


def test_skips_are_counted_by_reason(tmp_path: Path) -> None:
    skipped = (
        "\n@pytest.mark.parametrize('n', range(2))\ndef test_skipped(n):\n    raise pytest.skip.Exception('no kcat')\n"
    )
    done = run(tmp_path, "import pytest\n" + skipped)
    assert done.returncode == 0
    assert "2 tests of 2 skipped.\n  2 of them: no kcat\n" in done.stdout


def report(test: str, at: str, outcome: str = "passed") -> str:
    return json.dumps({"test": test, "at": at, "outcome": outcome}) + "\n"


@pytest.mark.parametrize(
    ("lines", "suspects"),
    [
        ([], ["a", "b"]),
        ([report("a", "call"), report("a", "teardown"), report("b", "setup")], ["b"]),
        ([report("a", "teardown"), report("b", "call", "failed"), report("b", "teardown")], ["b"]),
        ([report("a", "teardown"), report("b", "teardown"), report("a", "???", "failed")], ["a"]),
        ([report("a", "teardown"), report("b", "teardown")[:-9]], ["b"]),
        ([report("a", "setup", "skipped"), report("a", "teardown"), report("b", "teardown")], []),
    ],
)
def test_a_test_without_a_good_end_is_a_suspect(lines: list[str], suspects: list[str]) -> None:
    results = Results.read([json.dumps({"tests": ["a", "b"]}) + "\n", *lines])
    assert results.suspects() == suspects


def test_a_skip_is_no_pass_at_the_second_time() -> None:
    results = Results.read([report("a", "setup", "skipped"), report("a", "teardown")])
    assert not results.passed("a")
