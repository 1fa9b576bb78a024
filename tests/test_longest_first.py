"""Test distribution: a file's tests share a worker, the Spark session has one, and the longest files start first."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import longest_first
import pytest
from longest_first import SPARK, unit_lengths, unit_of

SUPPORT = Path(longest_first.__file__).parent
FILES = {"test_a.py": 1.0, "test_b.py": 3.0, "test_c.py": 2.0, "test_d.py": 0.5}
RAN = re.compile(r"\[(gw\d)\] .*PASSED (test_\w\.py)::test_it\[(\d)\]")


def test_a_files_tests_stay_with_one_worker_and_the_longest_file_is_first(tmp_path: Path) -> None:
    (tmp_path / "durations.json").write_text(json.dumps(FILES))
    (tmp_path / "pytest.ini").write_text(f"[pytest]\npythonpath = {SUPPORT}\n")
    (tmp_path / "conftest.py").write_text(
        "import pathlib, longest_first\n"
        "longest_first.DURATIONS = pathlib.Path(__file__).with_name('durations.json')\n"
        "pytest_plugins = ['longest_first']\n"
    )
    for name in FILES:
        (tmp_path / name).write_text(
            "import pytest\n@pytest.mark.parametrize('number', range(5))\ndef test_it(number): pass\n"
        )
    command = [sys.executable, "-m", "pytest", "-v", "-p", "xdist", "-p", "no:cacheprovider", "--record-durations"]
    done = subprocess.run(
        [*command, "--numprocesses", "2", "--dist", "loadfile"],
        cwd=tmp_path,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    ran = RAN.findall(done.stdout)
    assert sorted((name, number) for _, name, number in ran) == [(name, str(at)) for name in FILES for at in range(5)]
    workers = {name: {worker for worker, other, _ in ran if other == name} for name in FILES}
    assert all(len(its) == 1 for its in workers.values()), done.stdout
    assert workers["test_b.py"] != workers["test_c.py"], "the two longest begin, each with a worker"
    assert set(json.loads((tmp_path / "durations.json").read_text())) == set(FILES)


@pytest.mark.parametrize(
    ("nodeid", "unit"),
    [
        ("tests/storage/test_log.py::test_a[b::c]", "tests/storage/test_log.py"),
        ("tests/storage/test_log.py::TestA::test_b", "tests/storage/test_log.py"),
        ("tests/spark/test_sink.py::test_a", SPARK),
        ("tests/spark/pipelines/test_logbooks.py::test_a", SPARK),
        ("tests/spark/client/test_fetch.py::test_a", "tests/spark/client/test_fetch.py"),
    ],
)
def test_a_unit_is_a_file_or_spark(nodeid: str, unit: str) -> None:
    assert unit_of(nodeid) == unit


def test_an_unknown_file_counts_as_average() -> None:
    known = {"tests/spark/test_a.py": 7.0, "tests/spark/test_b.py": 2.0}
    assert unit_lengths({*known, "tests/test_new.py"}, known) == {SPARK: 9.0, "tests/test_new.py": 4.5}
    assert unit_lengths({"tests/test_new.py"}, {}) == {"tests/test_new.py": 1.0}
