"""A broker in a process of its own, so that it can be killed."""

import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

START_S = 30.0


class Broker:
    """`cordwood serve` on a free port, with its data below `directory`. A context manager that ends it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """host:port."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> float:
        """Start, on what data is there. Returns the seconds until it took connections."""
        settings = [f"listeners=PLAINTEXT://{self.address}", f"log.dirs={self.directory / 'data'}"]
        command = [sys.executable, "-m", "cordwood.cluster.cli", "serve"]
        began = time.monotonic()
        with (self.directory / "broker.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*command, *(word for setting in settings for word in ("--set", setting))],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.directory,
            )
        while not self._takes_connections():
            if self._process.poll() is not None or time.monotonic() - began > START_S:
                raise SystemExit(f"the broker did not start:\n{(self.directory / 'broker.log').read_text()}")
            time.sleep(0.01)
        return time.monotonic() - began

    def kill(self) -> None:
        """SIGKILL: no goodbye, nothing flushed."""
        self._end(signal.SIGKILL)

    def __enter__(self) -> "Broker":
        self.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(30)
            self._process = None

    def _takes_connections(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        except OSError:
            return False
        return True
