"""The `cordwood` command as a user runs it, as a process or, faster, in this process, with its outcome."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from typing import Any

from typer.testing import CliRunner

from cordwood.cluster.cli.app import app

FINISH_S = 90.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """A command's exit code and output."""

    exit_code: int
    stdout: bytes
    stderr: str

    @property
    def text(self) -> str:
        """Standard output as text."""
        return self.stdout.decode()

    @property
    def lines(self) -> list[bytes]:
        """Standard output in lines, without line ends."""
        return self.stdout.splitlines()

    @property
    def json(self) -> Any:
        """Standard output as one JSON document."""
        return json.loads(self.stdout)


def cordwood(*words: str, bootstrap: str | None = None, stdin: bytes = b"", **environ: str) -> Outcome:
    """Run one command to its end. Raises AssertionError if it prints a traceback."""
    process = start_cordwood(*words, bootstrap=bootstrap, **environ)
    try:
        stdout, stderr = process.communicate(stdin, FINISH_S)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    outcome = Outcome(process.returncode, stdout, stderr.decode())
    assert "Traceback" not in outcome.stderr, outcome.stderr
    return outcome


def in_process(*words: str, bootstrap: str | None = None) -> Outcome:
    """Run one command in this process; for commands without input, in tests that do not concern the process itself."""
    environ = {key: None for key in os.environ if key.startswith("CORDWOOD_")}
    ended = CliRunner().invoke(app, words, env={**environ, "CORDWOOD_BOOTSTRAP_SERVERS": bootstrap})
    if ended.exception is not None and not isinstance(ended.exception, SystemExit):
        raise ended.exception
    return Outcome(ended.exit_code, ended.stdout_bytes, ended.stderr)


def start_cordwood(*words: str, bootstrap: str | None = None, **environ: str) -> "subprocess.Popen[bytes]":
    """Start one command with pipes for its three streams, in a directory where none of our modules is importable."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("CORDWOOD_")}
    variables = {**inherited, **environ}
    if bootstrap is not None:
        variables["CORDWOOD_BOOTSTRAP_SERVERS"] = bootstrap
    return subprocess.Popen(
        [sys.executable, "-m", "cordwood.cluster.cli", *words],
        # A shell that starts the tests in the background makes them ignore SIGINT, and child processes inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=variables,
        cwd=tempfile.gettempdir(),
    )
