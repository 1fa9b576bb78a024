"""Systems under test: start, readiness and stop of each system's brokers on free ports."""

import contextlib
import copy
import os
import shutil
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from kio.schema.api_versions.v0 import ApiVersionsRequest

from cordwood.bench.certificates import BenchCertificates
from cordwood.chaos.live.process import free_port
from cordwood.client.blocking import connect
from cordwood.client.security import OPEN, ClientSecurity

OURS, KAFKA = "cordwood", "kafka"
UNFLUSHED = f"{OURS}, os"
"""Cordwood with acknowledgements that do not wait for a disk."""
BASELINE = "baseline"
"""Cordwood of another checkout, such as the last release."""
START_S = 120.0
# Brokers that all stop together wait for other leaders. Their data is deleted anyway, so they are killed then.
STOP_S = 10.0
ANSWER_S = 2.0


class CannotRun(Exception):
    """A system that this machine cannot run; the message is a sentence that says what is missing."""


@dataclass(frozen=True, slots=True)
class SystemBroker:
    """One broker of a system: number (from 1), ports and directory."""

    broker_id: int
    client_port: int
    voter_port: int
    directory: Path

    @property
    def address(self) -> str:
        """host:port, as clients take it."""
        return f"127.0.0.1:{self.client_port}"

    @property
    def voter(self) -> str:
        """The form of `controller.quorum.voters`."""
        return f"{self.broker_id}@127.0.0.1:{self.voter_port}"

    @property
    def output_path(self) -> Path:
        """The file with the broker's output."""
        return self.directory / "output.log"


@dataclass(frozen=True, slots=True)
class Running:
    """A system of which every broker answers requests. `pids` has one process for each broker, by its id."""

    bootstrap: str
    pids: tuple[int, ...]
    start_to_ready_s: float
    directory: Path
    """The directory that contains all files of the brokers."""


class System(ABC):
    """A number of brokers that start with empty data directories. A topic has a replica on each of them."""

    name: str

    def __init__(self, brokers: int) -> None:
        """One broker, or an odd number with a majority: 3 or 5."""
        self.brokers = brokers
        self._session: dict[str, str] = {}
        self.certificates: BenchCertificates | None = None
        """Those of all listeners, if clients and brokers use TLS."""

    @abstractmethod
    def version(self) -> str:
        """Return the system's own version."""

    @abstractmethod
    def prepare(self) -> None:
        """Fetch the system's files. Raises CannotRun."""

    @abstractmethod
    def command(self, member: SystemBroker, members: Sequence[SystemBroker]) -> list[str]:
        """Write the configuration of one member into its directory. Return the command that starts the member."""

    def with_sessions(self, session_ms: int) -> Self:
        """Return the same system with this broker session timeout, in ms, and four heartbeats in each session."""
        other = copy.copy(self)
        other._session = {
            "broker.session.timeout.ms": str(session_ms),
            "broker.heartbeat.interval.ms": str(session_ms // 4),
        }
        return other

    @property
    def protocol(self) -> str:
        """The security protocol of the listener for clients and brokers, and its name."""
        return "PLAINTEXT" if self.certificates is None else "SSL"

    @contextlib.contextmanager
    def running(self, directory: Path) -> Iterator[Running]:
        """Start the system and wait until every broker answers; in the end stop all brokers and delete their data.

        Raises CannotRun with the end of a broker's output where one does not start.
        """
        members = _members(self.brokers, directory)
        commands = [self.command(member, members) for member in members]
        processes: list[subprocess.Popen[bytes]] = []
        begin = time.perf_counter()
        try:
            for member, command in zip(members, commands, strict=True):
                processes.append(_launch(member, command))
            for member, process in zip(members, processes, strict=True):
                self._wait(member, process, begin + START_S)
            ready_s = time.perf_counter() - begin
            bootstrap = ",".join(member.address for member in members)
            yield Running(bootstrap, tuple(process.pid for process in processes), ready_s, directory)
        finally:
            _end(processes)
            shutil.rmtree(directory, ignore_errors=True)

    def common_settings(self, member: SystemBroker) -> dict[str, str]:
        """Return the settings that all systems share, so that they do the same work."""
        replicas = str(self.brokers)
        return {
            "node.id": str(member.broker_id),
            "log.dirs": str(member.directory / "data"),
            "num.partitions": "6",
            "default.replication.factor": replicas,
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.replication.factor": replicas,
            "share.coordinator.state.topic.replication.factor": replicas,
            "min.insync.replicas": str(majority(self.brokers)),
            **self._session,
            **({} if self.certificates is None else self.certificates.broker_settings()),
        }

    def _wait(self, member: SystemBroker, process: subprocess.Popen[bytes], until: float) -> None:
        security = OPEN if self.certificates is None else self.certificates.client()
        while not answers(member.client_port, security):
            if process.poll() is not None or time.perf_counter() > until:
                tail = member.output_path.read_text(errors="replace")[-2000:]
                raise CannotRun(f"{self.name}: broker {member.broker_id} did not come up:\n{tail}")
            time.sleep(0.005)


class Cordwood(System):
    """`cordwood serve` of this tree, or of another checkout.

    Records are acknowledged once they are on the disks of the in-sync set; with `flush.policy=os` once they are in its
    page caches, as in Kafka by default.
    """

    def __init__(
        self,
        brokers: int = 1,
        settings: Mapping[str, str] | None = None,
        *,
        flush_policy: str = "group",
        baseline: Path | None = None,
    ) -> None:
        """`settings` go to every broker and take precedence. `baseline` is another checkout with its .venv."""
        super().__init__(brokers)
        self.name = OURS if flush_policy == "group" else UNFLUSHED
        self._python = sys.executable
        if baseline is not None:
            self.name = BASELINE
            self._python = str(baseline.absolute() / ".venv" / "bin" / "python")
        self._settings = {"flush.policy": flush_policy, **(settings or {})}

    def version(self) -> str:
        return self._run("import cordwood; print(cordwood.__version__)")

    def prepare(self) -> None:
        """Check that the interpreter has the package. Raises CannotRun."""
        self._run("import cordwood.cluster.cli")

    def command(self, member: SystemBroker, members: Sequence[SystemBroker]) -> list[str]:
        settings = {
            **self.common_settings(member),
            "listeners": f"{self.protocol}://{member.address}",
        }
        if len(members) > 1:
            settings["controller.quorum.voters"] = ",".join(each.voter for each in members)
        options = [word for key, value in (settings | self._settings).items() for word in ("--set", f"{key}={value}")]
        return [self._python, "-m", "cordwood.cluster.cli", "serve", *options]

    def _run(self, code: str) -> str:
        try:
            return subprocess.run([self._python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
        except FileNotFoundError:
            raise CannotRun(
                f"{self.name}: there is no {self._python}. Run `make .venv/.ready` in that checkout."
            ) from None
        except subprocess.CalledProcessError as error:
            raise CannotRun(f"{self.name}: {self._python} cannot import cordwood:\n{error.stderr[-2000:]}") from None


def majority(brokers: int) -> int:
    """Return the smallest majority."""
    return brokers // 2 + 1


def answers(port: int, security: ClientSecurity = OPEN) -> bool:
    """Return whether a broker answers ApiVersions on this port, which any system does as soon as it serves."""
    with contextlib.suppress(OSError), connect(f"127.0.0.1:{port}", ANSWER_S, security=security) as connection:
        connection.ask(ApiVersionsRequest())
        return True
    return False


def _members(count: int, directory: Path) -> list[SystemBroker]:
    ports: set[int] = set()
    while len(ports) < 2 * count:
        ports.add(free_port())
    members = [SystemBroker(id_, ports.pop(), ports.pop(), directory / f"broker-{id_}") for id_ in range(1, count + 1)]
    for member in members:
        member.directory.mkdir(parents=True)
    return members


def _launch(member: SystemBroker, command: list[str]) -> subprocess.Popen[bytes]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("CORDWOOD_")}
    with member.output_path.open("wb") as output:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=member.directory, env=environment
        )


def _end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        process.send_signal(signal.SIGTERM)
    until = time.perf_counter() + STOP_S
    for process in processes:
        try:
            process.wait(max(0.0, until - time.perf_counter()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
