"""The systems that are measured: how each is started on a free port, told apart and stopped."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

START_S = 60.0
STOP_S = 30.0
# ApiVersions, version 0, correlation id 1, no client id: 10 bytes behind their length.
API_VERSIONS_REQUEST = bytes.fromhex("0000000a 0012 0000 00000001 ffff")


class CannotRun(Exception):
    """A system that this machine has no means for; the message is a sentence that says what is missing."""


@dataclass(slots=True)
class Running:
    """A system that answers requests."""

    bootstrap: str
    process: subprocess.Popen[bytes]
    start_to_ready_s: float
    directory: Path

    @property
    def pids(self) -> list[int]:
        return [self.process.pid]

    def stop(self) -> None:
        """End it, first kindly, and delete its data."""
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(STOP_S)
        shutil.rmtree(self.directory, ignore_errors=True)


class System(ABC):
    """A broker that can be started with an empty data directory."""

    name: str

    @abstractmethod
    def version(self) -> str:
        """What it calls itself."""

    @abstractmethod
    def prepare(self) -> None:
        """Fetch what it needs. Raises CannotRun."""

    @abstractmethod
    def command(self, directory: Path, port: int) -> list[str]:
        """Write its configuration into the directory and return what starts it."""

    def start(self, directory: Path) -> Running:
        """Start it and wait until it answers its first request. Raises CannotRun with the end of its log."""
        directory.mkdir(parents=True)
        port = free_port()
        command = self.command(directory, port)
        log_path = directory / "output.log"
        begin = time.perf_counter()
        with log_path.open("wb") as log:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=directory, env=_environment()
            )
        while not answers(port):
            if process.poll() is not None or time.perf_counter() - begin > START_S:
                process.kill()
                tail = log_path.read_text(errors="replace")[-2000:]
                raise CannotRun(f"{self.name} did not come up:\n{tail}")
            time.sleep(0.005)
        return Running(f"127.0.0.1:{port}", process, time.perf_counter() - begin, directory)


class Cordwood(System):
    """`cordwood serve` of this very tree, with the group commit that is its default."""

    name = "cordwood"

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        self._settings = dict(settings or {})

    def version(self) -> str:
        from cordwood import __version__

        return str(__version__)

    def prepare(self) -> None:
        """Nothing: it runs from this interpreter."""

    def command(self, directory: Path, port: int) -> list[str]:
        settings = {
            "listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "log.dirs": str(directory / "data"),
            "num.partitions": "6",
            **self._settings,
        }
        options = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        return [sys.executable, "-m", "cordwood.cluster.cli", "serve", *options]


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def answers(port: int) -> bool:
    """Whether a broker there answers ApiVersions, which any system does as soon as it serves."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=2) as connection:
        connection.sendall(API_VERSIONS_REQUEST)
        return len(connection.recv(8)) == 8
    return False


def _environment() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if not key.startswith("CORDWOOD_")}
