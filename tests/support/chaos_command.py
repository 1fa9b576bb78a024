"""`cordwood chaos run` in a process of its own."""

import subprocess
import sys
from pathlib import Path

RUN_S = 110


def chaos_run(place: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    """Run the command in `place`. Fail if it prints a traceback."""
    command = [sys.executable, "-m", "cordwood.chaos.cli", "run", *words]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=RUN_S, cwd=place, check=False)
    assert "Traceback" not in ended.stderr, ended.stderr
    return ended
