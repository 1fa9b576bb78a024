"""The load generator: a Go program where Go can build it, otherwise the same lines from Python."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cordwood.bench.lines import LineOutcome, LoadLine
from cordwood.bench.machine import cpu_seconds
from cordwood.cluster.cli.exits import Failure

LIMIT_S = 300.0
GO = "franz-go"
LAST_WORDS_S = 20.0
"""The generator ends so long before its limit, with the reason."""
BUILD_S = 600.0
SOURCES = Path(__file__).resolve().parent / "load"


class LoadFailed(Failure):
    """A line failed in the generator; the message is the generator's output."""


@dataclass(frozen=True, slots=True)
class Generator:
    """A command that takes the arguments of lines.LoadLine, and its name in the results."""

    name: str
    command: tuple[str, ...]
    ca: Path | None = None
    """The certificate that it trusts, if it is to use TLS."""
    limit_s: float = LIMIT_S
    """The longest time of a line."""

    def create_topic(self, bootstrap: str, topic: str, partitions: int, replicas: int) -> None:
        """Create a topic, and wait until every partition has a leader and all replicas in sync. Raises LoadFailed."""
        size = ["--partitions", str(partitions), "--replication", str(replicas)]
        self._run(["topic", "--bootstrap", bootstrap, "--topic", topic, *size])

    def run(self, line: LoadLine, bootstrap: str, pids: Sequence[int]) -> LineOutcome:
        """Run one line on a system whose processes are `pids`. Raises LoadFailed, also where a record failed."""
        cpu_before = cpu_seconds(pids)
        answer = self._run(line.arguments(bootstrap))
        outcome = LineOutcome(
            records=answer["records"],
            failed=answer["failed"],
            seconds=answer["seconds"],
            ack_ms=answer.get("ack_ms") or {},
            end_to_end_ms=answer.get("end_to_end_ms") or {},
            broker_cpu_s=cpu_seconds(pids) - cpu_before,
            longest_gap_s=answer.get("longest_gap_s") or 0.0,
        )
        if outcome.failed:
            raise LoadFailed(f"{line.name}: {outcome.failed:,} records were not acknowledged.")
        return outcome

    def _run(self, arguments: list[str]) -> dict[str, Any]:
        security = [] if self.ca is None else ["--ca", str(self.ca)]
        # The Go program has its own limit, for LIMIT_S.
        is_longer = self.name == GO and self.limit_s > LIMIT_S
        limit = ["--limit-seconds", str(self.limit_s - LAST_WORDS_S)] if is_longer else []
        try:
            done = subprocess.run(
                [*self.command, *arguments, *security, *limit],
                capture_output=True,
                text=True,
                timeout=self.limit_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise LoadFailed(f"{arguments[0]}: no end after {self.limit_s:.0f} s.") from None
        if done.returncode != 0:
            raise LoadFailed(f"{arguments[0]}: {done.stderr.strip()[-1000:]}")
        answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return answer


IN_PYTHON = Generator("librdkafka from Python", (sys.executable, "-m", "cordwood.bench.load_in_python"))


def load_generator(home: Path, say: Callable[[str], None]) -> Generator:
    """Build the Go program into `home` and return it; otherwise the Python one, with a sentence about it to `say`."""
    program = home / "load"
    if shutil.which("go") is None:
        say("No Go on this machine: the load comes from Python, which measures itself above 0.5 M records/s.")
        return IN_PYTHON
    home.mkdir(parents=True, exist_ok=True)
    build = subprocess.run(
        ["go", "build", "-o", str(program), "."],
        cwd=SOURCES,
        capture_output=True,
        text=True,
        timeout=BUILD_S,
        check=False,
    )
    if build.returncode != 0:
        say(f"Go could not build bench/load, so the load comes from Python: {build.stderr.strip()[-500:]}")
        return IN_PYTHON
    return Generator(GO, (str(program),))
