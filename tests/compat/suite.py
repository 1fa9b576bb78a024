"""A foreign test suite: what it needs, and its outcomes by test id against given brokers."""

import contextlib
import os
import signal
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import ClassVar

from brokers import Brokers, running
from requirements import Requirement
from suite_verdict import Outcomes, allowed_failures

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
CACHE = ROOT / "build" / "compat"
"""Downloads, and the output of the last run of each suite."""


class Unmet(Exception):
    """A tool that the suite needs and this machine lacks; the message is a sentence about it."""

    def __init__(self, requirement: Requirement, reason: str) -> None:
        super().__init__(reason)
        self.requirement = requirement


class Suite(ABC):
    """A suite of another project. `name` is a word of the command line."""

    name: str
    version: str
    settings: ClassVar[Mapping[str, str]] = {}
    """The brokers' settings, as RunningBroker takes them."""
    counts: Sequence[int] = (1, 3)
    """Numbers of brokers that the suite runs against."""

    def brokers(self, count: int) -> AbstractContextManager[Brokers]:
        """Return running brokers."""
        return running(count, self.settings)

    @abstractmethod
    def prepare(self) -> None:
        """Fetch into CACHE what the suite needs and is not there yet. Raises Unmet."""

    @abstractmethod
    def run(self, brokers: Brokers, place: Path, output: Path, words: Sequence[str]) -> Outcomes:
        """Run the suite. `place` is for files of this run, `output` the file for its output.

        `words` are further arguments of the suite's own test runner; a suite without one ignores them.
        """

    def allowed(self) -> dict[str, str]:
        """Return reasons by test id, for tests that may fail."""
        path = HERE / f"{self.name}_allowed_failures.txt"
        return allowed_failures(path.read_text()) if path.exists() else {}


def run_command(
    command: Sequence[str | Path],
    output: Path,
    limit_s: float,
    *,
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> int | None:
    """Run a command with its output appended to a file. Return its exit code, or None if it exceeds the limit.

    The command and all its children are killed at the limit.
    """
    with output.open("ab") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=cwd,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
        )
        try:
            return process.wait(limit_s)
        except subprocess.TimeoutExpired:
            return None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
