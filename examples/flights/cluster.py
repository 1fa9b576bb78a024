"""A local cluster of three brokers, started with `cordwood up` and stopped with `cordwood down`."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

BROKERS = 3
PORT_END = 1 << 16


class Cluster:
    """A local cluster with its data below `directory`: a context manager that stops the running brokers."""

    def __init__(self, directory: Path, brokers: int = BROKERS) -> None:
        self.directory = directory
        self.brokers = brokers

    @property
    def bootstrap(self) -> str:
        """The bootstrap servers: host:port of every broker, running or not."""
        return ",".join(broker["kafka"] for broker in self._written().values())

    def kill(self, broker_id: int) -> None:
        """Kill a broker with SIGKILL: without a flush and without a controlled shutdown."""
        os.kill(self._written()[broker_id]["pid"], signal.SIGKILL)

    def __enter__(self) -> "Cluster":
        self.directory.mkdir(exist_ok=True)
        ports = ["--port", str(free_ports(self.brokers)), "--http-port", str(free_ports(self.brokers))]
        self._cordwood("up", "--brokers", str(self.brokers), "--detach", *ports)
        return self

    def __exit__(self, *_error: object) -> None:
        self._cordwood("down")

    def _cordwood(self, command: str, *options: str) -> None:
        """Run one command. Raises SystemExit with its error message if it fails."""
        words = [command, "--data-dir", str(self.directory), *options]
        done = subprocess.run(
            [sys.executable, "-m", "cordwood.cluster.cli", *words],
            cwd=self.directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        if done.returncode:
            raise SystemExit(done.stderr.strip() or f"cordwood {command} ended with exit code {done.returncode}")

    def _written(self) -> dict[int, dict[str, Any]]:
        """Return the brokers in the file that `cordwood up` has written, by broker id."""
        written = json.loads((self.directory / "cluster.json").read_text())
        return {broker["id"]: broker for broker in written["brokers"]}


def free_ports(count: int) -> int:
    """Return the first of `count` consecutive free ports."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            first: int = probe.getsockname()[1]
        if first + count <= PORT_END and all(map(_is_free, range(first, first + count))):
            return first


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
