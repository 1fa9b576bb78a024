"""A cluster that `cordwood up` runs, told what to do in verbs."""

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
"""Below the ports that the system gives to others, and far enough apart for tests that run beside each other."""

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
        """host:port of every broker."""
        return ",".join(f"127.0.0.1:{self.port + at}" for at in range(self.count))

    @property
    def brokers(self) -> list[dict[str, Any]]:
        """What `cluster.json` says."""
        rows: list[dict[str, Any]] = json.loads((self.directory / "cluster.json").read_text())["brokers"]
        return rows

    def broker(self, broker_id: int) -> dict[str, Any]:
        """What `cluster.json` says of one broker."""
        [row] = [row for row in self.brokers if row["id"] == broker_id]
        return row

    def config(self, broker_id: int = 1) -> Path:
        """A broker's configuration file."""
        return self.directory / f"broker-{broker_id}" / "server.toml"

    def try_up(self, *words: str, **environ: str) -> Outcome:
        """`cordwood up --detach` on the directory with more words, whatever comes of it."""
        return cordwood("up", "--detach", "--data-dir", str(self.directory), *words, **environ)

    def up(self, *words: str, **environ: str) -> Outcome:
        """Start what does not run, and wait until it can be used."""
        outcome = self.try_up(*self._size(), *words, **environ)
        assert outcome.exit_code == 0, outcome.stderr
        return outcome

    def follow(self) -> "subprocess.Popen[bytes]":
        """`cordwood up` without --detach, once it has printed the bootstrap servers."""
        self._following = start_cordwood("up", "--data-dir", str(self.directory), *self._size())
        assert self._following.stdout is not None
        assert self._following.stdout.readline().decode().strip() == self.bootstrap
        return self._following

    def down(self) -> Outcome:
        """Stop all brokers."""
        return cordwood("down", "--data-dir", str(self.directory))

    def kill(self, broker_id: int = 1) -> None:
        """SIGKILL to one broker; returns when it is gone."""
        os.kill(self.broker(broker_id)["pid"], signal.SIGKILL)
        wait_until(lambda: not self.is_running(broker_id), ENDED_S, f"the end of broker {broker_id}")

    def is_running(self, broker_id: int = 1) -> bool:
        """Whether a broker's process is there. One that has ended and was not waited for is not."""
        try:
            state = Path(f"/proc/{self.broker(broker_id)['pid']}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return False
        return state != "Z"

    def end(self) -> None:
        """Stop everything, in whatever state it is; for the end of a test."""
        if (self.directory / "cluster.json").exists():
            self.down()
        if self._following is not None:
            self._following.communicate(timeout=ENDED_S)

    def _size(self) -> list[str]:
        return ["--brokers", str(self.count), "--port", str(self.port), "--http-port", str(self.port + PORTS_APART)]


def free_ports(count: int) -> int:
    """The first of so many ports in a row that nobody listens on now, with as many above for HTTP."""
    # Workers that look at the same time begin apart.
    worker = os.environ.get("PYTEST_XDIST_WORKER", f"gw{os.getpid()}").removeprefix("gw")
    begin = FIRST_PORT + int(worker) % 20 * PORT_STEP
    for port in range(begin, begin + 20 * PORT_STEP, 2 * count):
        ports = [port + at + apart for at in range(count) for apart in (0, PORTS_APART)]
        if all(why_not_free(f"127.0.0.1:{each}") is None for each in ports):
            return port
    raise AssertionError(f"there are no {count} free ports in a row")
