"""The `cordwood` command as a user runs it, as a process or, faster, in this process, with its outcome."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile, gettempdir
from typing import Any

from forked_brokers import fork_server, may_fork
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
    variables = environment(bootstrap, environ)
    outcome = (forked if may_fork(variables) else in_new_process)(words, stdin, variables)
    assert "Traceback" not in outcome.stderr, outcome.stderr
    return outcome


def forked(words: Sequence[str], stdin: bytes, environ: Mapping[str, str]) -> Outcome:
    """Run a command in a forked process, which is cheaper than a new one."""
    with TemporaryFile() as given, TemporaryFile() as output, TemporaryFile() as errors:
        given.write(stdin)
        given.seek(0)
        process = fork_server().fork(words, (given, output, errors), environ, Path(gettempdir()))
        try:
            exit_code = process.wait(FINISH_S)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            raise
        output.seek(0)
        errors.seek(0)
        return Outcome(exit_code, output.read(), errors.read().decode())


def in_new_process(words: Sequence[str], stdin: bytes, environ: Mapping[str, str]) -> Outcome:
    """Run a command with an interpreter of its own."""
    process = popen(words, environ)
    try:
        stdout, stderr = process.communicate(stdin, FINISH_S)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    return Outcome(process.returncode, stdout, stderr.decode())


def in_process(*words: str, bootstrap: str | None = None) -> Outcome:
    """Run one command in this process; for commands without input, in tests that do not concern the process itself."""
    environ = {key: None for key in os.environ if key.startswith("CORDWOOD_")}
    ended = CliRunner().invoke(app, words, env={**environ, "CORDWOOD_BOOTSTRAP_SERVERS": bootstrap})
    if ended.exception is not None and not isinstance(ended.exception, SystemExit):
        raise ended.exception
    return Outcome(ended.exit_code, ended.stdout_bytes, ended.stderr)


def start_cordwood(*words: str, bootstrap: str | None = None, **environ: str) -> "subprocess.Popen[bytes]":
    """Start one command with pipes for its three streams."""
    return popen(words, environment(bootstrap, environ))


def environment(bootstrap: str | None, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a command: without this process's settings of Cordwood."""
    variables = {key: value for key, value in os.environ.items() if not key.startswith("CORDWOOD_")} | environ
    return variables if bootstrap is None else {**variables, "CORDWOOD_BOOTSTRAP_SERVERS": bootstrap}


def popen(words: Sequence[str], environ: Mapping[str, str]) -> "subprocess.Popen[bytes]":
    """Start one command in a directory where none of our modules is importable."""
    return subprocess.Popen(
        [sys.executable, "-m", "cordwood.cluster.cli", *words],
        # A shell that starts the tests in the background makes them ignore SIGINT, and child processes inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environ,
        cwd=gettempdir(),
    )
