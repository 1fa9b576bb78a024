"""A broker in a process of its own: started, waited for, killed, and started again on the same data and port."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

READY_S = 30.0
END_S = 30.0
POLL_S = 0.01


class BrokerEnded(Exception):
    """The broker's process ended by itself. The message has the end of what it printed."""


class BrokerProcess:
    """`cordwood serve` on 127.0.0.1. Its output goes to a file beside its data directory."""

    def __init__(self, data: Path, settings: dict[str, str] | None = None) -> None:
        self.data = data
        self.port = _free_port()
        self.output_path = data.with_name(f"{data.name}.broker.log")
        self._settings = settings or {}
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.kill()

    @property
    def address(self) -> str:
        """host:port, as clients want it."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> float:
        """Start, and wait until connections are taken. Returns the seconds that took. Raises BrokerEnded."""
        assert self._process is None, "the broker is running already"
        began = time.monotonic()
        # Outside any repository, so that only the installed package is found.
        with self.output_path.open("ab") as output:
            self._process = subprocess.Popen(
                self._command(), stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=self.output_path.parent
            )
        if not wait_for(self._is_ready, READY_S):
            self.kill()
            raise BrokerEnded(f"no broker took connections within {READY_S:.0f} s:\n{self._last_words()}")
        return time.monotonic() - began

    def kill(self) -> None:
        """SIGKILL: nothing of the process runs on. Does nothing where it has ended already."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """SIGTERM, and wait for the clean end."""
        self._end(signal.SIGTERM)

    def _command(self) -> list[str]:
        settings = {"listeners": f"PLAINTEXT://{self.address}", "log.dirs": str(self.data), **self._settings}
        command = [sys.executable, "-m", "cordwood.cluster.cli", "serve"]
        for key, value in settings.items():
            command += ["--set", f"{key}={value}"]
        return command

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(END_S)
            self._process = None

    def _is_ready(self) -> bool:
        assert self._process is not None
        code = self._process.poll()
        if code is not None:
            self._process = None
            raise BrokerEnded(f"the broker ended with {code} instead of starting:\n{self._last_words()}")
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        except OSError:
            return False
        return True

    def _last_words(self) -> str:
        return "\n".join(self.output_path.read_text(errors="replace").splitlines()[-20:])


def wait_for(condition: Callable[[], bool], seconds: float) -> bool:
    """Whether the condition came to hold before the time was over."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True


def run_cordwood(*arguments: str) -> subprocess.CompletedProcess[str]:
    """One `cordwood` command, its exit code and what it printed."""
    command = [sys.executable, "-m", "cordwood.cluster.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=os.path.sep, check=False)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
