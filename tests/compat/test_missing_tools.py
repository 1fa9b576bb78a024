"""A foreign suite whose tool is missing is skipped with the reason, and fails where CORDWOOD_REQUIRE names the tool."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

RUN = Path(__file__).resolve().parent / "run.py"


@pytest.mark.parametrize(("words", "outcome", "exit_code"), [("", "skipped", 0), ("go", "FAILED", 1)])
def test_a_suite_without_its_tool(tmp_path: Path, words: str, outcome: str, exit_code: int) -> None:
    environment = {**os.environ, "PATH": str(tmp_path), "CORDWOOD_REQUIRE": words}
    done = subprocess.run(
        [sys.executable, RUN, "franz_go"], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert (f"{outcome}: there is no Go here" in done.stdout, done.returncode) == (True, exit_code), done.stderr
