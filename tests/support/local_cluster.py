"""A cluster of processes that `cordwood up` runs."""

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

from broker_fixture import wait_until
from command import Outcome, cordwood, start_cordwood

from cordwood.cluster.cli.local.processes import why_not_free

FIRST_PORT, PORTS_APART, PORT_STEP = 20_000, 100, 400
"""Ports below the system's range for outgoing connections, far enough apart for tests that run in parallel."""

ENDED_S = 30.0


class LocalCluster:
    """`cordwood up` and `cordwood down` on one directory and on ports of its own."""

    def __init__(self, directory: Path, brokers: int) -> None:
        self.directory = directory
        self.count = brokers
        self.port = free_ports(brokers)
        self._following: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        """The address host:port of every broker."""
        return ",".join(f"127.0.0.1:{self.port + at}" for at in range(self.count))

    @property
    def brokers(self) -> list[dict[str, Any]]:
        """The brokers as `cluster.json` lists them."""
        rows: list[dict[str, Any]] = json.loads((self.directory / "cluster.json").read_text())["brokers"]
        return rows

    def broker(self, broker_id: int) -> dict[str, Any]:
        """Return one broker's entry of `cluster.json`."""
        [row] = [row for row in self.brokers if row["id"] == broker_id]
        return row

    def config(self, broker_id: int = 1) -> Path:
        """Return the path of a broker's configuration file."""
        return self.directory / f"broker-{broker_id}" / "server.toml"

    def try_up(self, *words: str, **environ: str) -> Outcome:
        """Run `cordwood up --detach` on the directory with more arguments. Return its outcome, whatever it is."""
        return cordwood("up", "--detach", "--data-dir", str(self.directory), *words, **environ)

    def up(self, *words: str, **environ: str) -> Outcome:
        """Start the brokers that do not run, and wait until the cluster is usable."""
        outcome = self.try_up(*self._size(), *words, **environ)
        assert outcome.exit_code == 0, outcome.stderr
        return outcome

    def follow(self) -> "subprocess.Popen[bytes]":
        """Start `cordwood up` without --detach. Return once it has printed the bootstrap servers."""
        self._following = start_cordwood("up", "--data-dir", str(self.directory), *self._size())
        assert self._following.stdout is not None
        assert self._following.stdout.readline().decode().strip() == self.bootstrap
        return self._following

    def down(self) -> Outcome:
        """Stop all brokers."""
        return cordwood("down", "--data-dir", str(self.directory))

    def kill(self, broker_id: int = 1) -> None:
        """Send SIGKILL to one broker; return once its process is gone."""
        os.kill(self.broker(broker_id)["pid"], signal.SIGKILL)
        wait_until(lambda: not self.is_running(broker_id), ENDED_S, f"the end of broker {broker_id}")

    def is_running(self, broker_id: int = 1) -> bool:
        """Return whether a broker's process runs. A zombie does not count."""
        try:
            state = Path(f"/proc/{self.broker(broker_id)['pid']}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return False
        return state != "Z"

    def end(self) -> None:
        """Kill everything in any state; for the end of a test.

        `down` would wait until other brokers lead what the last ones do.
        """
        for row in self.brokers if (self.directory / "cluster.json").exists() else ():
            if self._is_ours(row["id"]):
                self.kill(row["id"])
        if self._following is not None:
            self._following.communicate(timeout=ENDED_S)

    def _is_ours(self, broker_id: int) -> bool:
        """Return whether the broker's process runs, and is not another one with the same number."""
        try:
            words = Path(f"/proc/{self.broker(broker_id)['pid']}/cmdline").read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError):
            return False
        return str(self.config(broker_id)).encode() in words

    def _size(self) -> list[str]:
        return ["--brokers", str(self.count), "--port", str(self.port), "--http-port", str(self.port + PORTS_APART)]


def free_ports(count: int) -> int:
    """Return the first of `count` free ports in a row whose HTTP ports, PORTS_APART above, are free too."""
    # Parallel workers search from different ports.
    worker = os.environ.get("PYTEST_XDIST_WORKER", f"gw{os.getpid()}").removeprefix("gw")
    begin = FIRST_PORT + int(worker) % 20 * PORT_STEP
    for port in range(begin, begin + 20 * PORT_STEP, 2 * count):
        ports = [port + at + apart for at in range(count) for apart in (0, PORTS_APART)]
        if all(why_not_free(f"127.0.0.1:{each}") is None for each in ports):
            return port
    raise AssertionError(f"there are no {count} free ports in a row")
