"""A broker in a process of its own: started, waited for, killed, and started again on the same data and port."""

import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

READY_S = 30.0
END_S = 30.0
POLL_S = 0.01
PORTS = range(20_000, 32_000)
"""Below those that Linux gives to outgoing connections: none of them may sit on the port of a broker that is down."""


class BrokerEnded(Exception):
    """The broker's process ended by itself. The message has the end of what it printed."""


class StillRuns(Exception):
    """The broker's process did not end when it was told to. It has been killed. The message has what it printed."""


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
    ) -> None:
        self.data = data
        self.host, self.port = host, free_port()
        self.output_path = data.with_name(f"{data.name}.broker.log")
        self._settings = settings or {}
        self._inside = inside
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
        return f"{self.host}:{self.port}"

    @property
    def is_running(self) -> bool:
        """Whether it was started and not ended by us. It may have ended by itself."""
        return self._process is not None

    @property
    def pid(self) -> int:
        """Of the running process."""
        assert self._process is not None, "the broker is not running"
        return self._process.pid

    @property
    def running_pid(self) -> int | None:
        """Of the process; None while there is none. For those who watch from another thread."""
        process = self._process
        return None if process is None else process.pid

    @property
    def has_ended(self) -> bool:
        """Whether the process ended by itself."""
        return self._process is not None and self._process.poll() is not None

    def start(self) -> float:
        """Start, and wait until connections are taken. Returns the seconds that took. Raises BrokerEnded."""
        began = time.monotonic()
        self.begin()
        self.wait()
        return time.monotonic() - began

    def begin(self) -> None:
        """Start the process, and do not wait for it."""
        assert self._process is None, "the broker is running already"
        # Outside any repository, so that only the installed package is found.
        with self.output_path.open("ab") as output:
            self._process = subprocess.Popen(
                self._command(), stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=self.output_path.parent
            )

    def wait(self) -> None:
        """Wait until connections are taken. Raises BrokerEnded."""
        if not wait_for(self._is_ready, READY_S):
            self.kill()
            raise BrokerEnded(f"no broker took connections within {READY_S:.0f} s:\n{self.last_words()}")

    def kill(self) -> None:
        """SIGKILL: nothing of the process runs on. Does nothing where it has ended already."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """SIGTERM, and wait for the clean end. Raises StillRuns."""
        self._end(signal.SIGTERM)

    def pause(self) -> None:
        """SIGSTOP: the process stands still and its connections stay open."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        os.kill(self.pid, signal.SIGCONT)

    def output(self) -> str:
        """All that it printed, over restarts."""
        return self.output_path.read_text(errors="replace")

    def last_words(self) -> str:
        """The end of what it printed."""
        return "\n".join(self.output().splitlines()[-20:])

    def _command(self) -> list[str]:
        settings = {"listeners": f"PLAINTEXT://{self.address}", "log.dirs": str(self.data), **self._settings}
        command = [*self._inside, sys.executable, "-m", "cordwood.cluster.cli", "serve"]
        for key, value in settings.items():
            command += ["--set", f"{key}={value}"]
        return command

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


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on now. Raises OSError where there is none."""
    for port in random.sample(PORTS, len(PORTS)):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise OSError("every port is taken")
