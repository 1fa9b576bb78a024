"""A broker process: start, readiness, SIGKILL, SIGTERM, SIGSTOP, and restart on the same data and port."""

import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

READY_S = 30.0
END_S = 30.0
POLL_S = 0.01
PORTS = range(20_000, 32_000)
"""Below Linux's ephemeral ports, so that no outgoing connection takes the port of a broker that is down."""


class BrokerEnded(Exception):
    """The broker's process ended by itself. The message has the end of its output."""


class StillRuns(Exception):
    """The broker's process did not end on the signal, and was killed. The message has the end of its output."""


class BrokerProcess:
    """`cordwood serve` at one address. Its output goes to a file beside its data directory.

    `inside` is put before the command, to run it in a network namespace or with limits.
    """

    def __init__(
        self,
        data: Path,
        settings: dict[str, str] | None = None,
        *,
        host: str = "127.0.0.1",
        inside: Sequence[str] = (),
        options: Sequence[str] = (),
        controller_port: int | None = None,
    ) -> None:
        """`options` are further options of `cordwood serve`. With `controller_port` the broker may become a voter."""
        self.data = data
        self.host, self.port = host, free_port()
        self._controller_port = controller_port
        self.output_path = data.with_name(f"{data.name}.broker.log")
        self._settings = settings or {}
        self._inside, self._options = inside, options
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def address(self) -> str:
        """host:port, as clients take it."""
        return f"{self.host}:{self.port}"

    @property
    def is_running(self) -> bool:
        """Whether we started the process and did not end it. It may have ended by itself."""
        return self._process is not None

    @property
    def pid(self) -> int:
        """The process id of the running broker."""
        assert self._process is not None, "the broker is not running"
        return self._process.pid

    @property
    def running_pid(self) -> int | None:
        """The process id; None while there is no process. Safe to read from another thread."""
        process = self._process
        return None if process is None else process.pid

    @property
    def has_ended(self) -> bool:
        """Whether the process ended by itself."""
        return self._process is not None and self._process.poll() is not None

    def start(self) -> float:
        """Start the process, and wait until it accepts connections. Return the seconds. Raises BrokerEnded."""
        began = time.monotonic()
        self.begin()
        self.wait()
        return time.monotonic() - began

    def begin(self) -> None:
        """Start the process without waiting for it."""
        assert self._process is None, "the broker is running already"
        # Outside any repository, so that only the installed package is found.
        with self.output_path.open("ab") as output:
            self._process = subprocess.Popen(
                self.command(), stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=self.output_path.parent
            )

    def wait(self) -> None:
        """Wait until the process accepts connections. Raises BrokerEnded."""
        if not wait_for(self._is_ready, READY_S):
            self.kill()
            raise BrokerEnded(f"no broker took connections within {READY_S:.0f} s:\n{self.last_words()}")

    def kill(self) -> None:
        """End the process with SIGKILL. Does nothing where it has ended already."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Send SIGTERM, and wait for the clean end. Raises StillRuns."""
        self._end(signal.SIGTERM)

    def pause(self) -> None:
        """Send SIGSTOP: the process is suspended, and its connections stay open."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Send SIGCONT."""
        os.kill(self.pid, signal.SIGCONT)

    def reconfigure(self, settings: Mapping[str, str | None]) -> None:
        """Change settings from the next start on. None removes one."""
        changed = {**self._settings, **settings}
        self._settings = {key: value for key, value in changed.items() if value is not None}

    def output(self) -> str:
        """Return all output, over restarts."""
        return self.output_path.read_text(errors="replace")

    def last_words(self) -> str:
        """Return the last lines of the output, and the exit code of a process that ended by itself."""
        code = None if self._process is None else self._process.poll()
        return "\n".join([*self.output().splitlines()[-20:], *([] if code is None else [f"exit code {code}"])])

    def command(self) -> list[str]:
        """Return the command that starts the broker."""
        listeners = f"PLAINTEXT://{self.address}"
        if self._controller_port is not None:
            listeners += f",CONTROLLER://{self.host}:{self._controller_port}"
        settings = {"listeners": listeners, "log.dirs": str(self.data), **self._settings}
        command = [*self._inside, sys.executable, "-m", "cordwood.cluster.cli", "serve"]
        for key, value in settings.items():
            command += ["--set", f"{key}={value}"]
        return [*command, *self._options]

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            try:
                self._process.wait(END_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
                raise StillRuns(f"{how.name} did not end the broker in {END_S:.0f} s:\n{self.last_words()}") from None
            finally:
                self._process = None

    def _is_ready(self) -> bool:
        assert self._process is not None
        code = self._process.poll()
        if code is not None:
            self._process = None
            raise BrokerEnded(f"the broker ended with {code} instead of starting:\n{self.last_words()}")
        try:
            socket.create_connection((self.host, self.port), timeout=1).close()
        except OSError:
            return False
        return True


def wait_for(condition: Callable[[], bool], seconds: float) -> bool:
    """Return whether `condition` held before `seconds` passed."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True


def run_cordwood(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run one `cordwood` command. Return its exit code and output."""
    command = [sys.executable, "-m", "cordwood.cluster.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=os.path.sep, check=False)


def free_port() -> int:
    """Return a port of 127.0.0.1 that no process listens on. Raises OSError where there is none."""
    for port in random.sample(PORTS, len(PORTS)):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise OSError("every port is taken")
