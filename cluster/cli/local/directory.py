"""Directory of a local cluster: the files of each broker, and the cluster's list of processes.

cluster.json            each broker's number, process, addresses and log directory
broker-1/server.toml    configuration of broker 1
broker-1/broker.log     its log output
broker-1/data/          its log directory

A closed cluster also has client.properties and security/ (`cluster/cli/local/security.py`).
"""

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cordwood.cluster.cli.exits import ExitCode, Failure, reason_of
from cordwood.cluster.cli.local import layout
from cordwood.cluster.cli.local.default_cluster import CLUSTER_FILE
from cordwood.cluster.config.listeners import listeners_of
from cordwood.cluster.config.settings import Settings

SETTINGS_FILE = "server.toml"
ONLY_THE_OWNER = 0o600
"""File mode of a configuration, which has the secret of the cluster in it."""


@dataclass(frozen=True, slots=True)
class LocalBroker:
    """One broker of a local cluster, as in its configuration file."""

    directory: Path
    settings: Settings

    @property
    def broker_id(self) -> int:
        """The broker's node.id."""
        return self.settings.node_id

    @property
    def config(self) -> Path:
        """The configuration file."""
        return self.directory / SETTINGS_FILE

    @property
    def log(self) -> Path:
        """The file of the broker's log output."""
        return self.directory / "broker.log"

    @property
    def kafka_port(self) -> int:
        """The port for clients."""
        return listeners_of(self.settings)[0].port

    @property
    def kafka(self) -> str:
        """The advertised host:port for clients."""
        listener = listeners_of(self.settings)[0]
        host = f"[{listener.advertised_host}]" if ":" in listener.advertised_host else listener.advertised_host
        return f"{host}:{listener.advertised_port}"

    def addresses(self) -> list[tuple[str, str]]:
        """Return host:port of every address that the broker listens on, each with its setting."""
        voters = dict(text.split("@", 1) for text in self.settings.controller_quorum_voters)
        listeners = [f"{listener.host or '0.0.0.0'}:{listener.port}" for listener in listeners_of(self.settings)]
        found = [("listeners", address) for address in listeners]
        found.append(("controller.quorum.voters", voters.get(str(self.broker_id), "")))
        found.append(("http.listen", self.settings.http_listen))
        return [(setting, address) for setting, address in found if address]


@dataclass(frozen=True, slots=True)
class ClusterDirectory:
    """The directory of a local cluster. `path` is absolute."""

    path: Path

    @property
    def security(self) -> Path:
        """The directory of the CA and of the brokers' certificates."""
        return self.path / "security"

    def members(self) -> list[LocalBroker]:
        """Return the brokers that have a configuration file, by number. Raises Failure for an invalid file."""
        found = [self._read(config) for config in self.path.glob(f"broker-*/{SETTINGS_FILE}")]
        return sorted(found, key=lambda member: member.broker_id)

    def new_member(
        self, broker_id: int, ports: layout.Ports, shared: dict[str, str], overrides: Iterable[str]
    ) -> LocalBroker:
        """Return a broker with the shared settings and its own, not written yet. Raises Failure with exit code 2."""
        directory = self._directory_of(broker_id)
        own = layout.own_rows(broker_id, ports, str(directory / "data"), str(self.security))
        return LocalBroker(directory, layout.checked(own | shared, overrides))

    def write(self, member: LocalBroker) -> None:
        """Write a broker's configuration file."""
        replace_file(member.config, layout.render(layout.given_rows(member.settings)), ONLY_THE_OWNER)

    def pids(self) -> dict[int, int]:
        """Return the process id by which each broker was started last; the process may have ended. Raises Failure."""
        try:
            rows = json.loads((self.path / CLUSTER_FILE).read_text())["brokers"]
            return {int(row["id"]): int(row["pid"]) for row in rows}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise Failure(f"cannot read {self.path / CLUSTER_FILE}: {reason_of(error)}.", ExitCode.USAGE) from None

    def write_pids(self, members: Iterable[LocalBroker], pids: Mapping[int, int]) -> None:
        """Write `cluster.json`, with the brokers that have been started at least once."""
        rows = [_row(member, pids[member.broker_id]) for member in members if member.broker_id in pids]
        replace_file(self.path / CLUSTER_FILE, json.dumps({"brokers": rows}, indent=2) + "\n")

    def _directory_of(self, broker_id: int) -> Path:
        return self.path / f"broker-{broker_id}"

    def _read(self, config: Path) -> LocalBroker:
        try:
            text = config.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise Failure(f"cannot read {config}: {reason_of(error)}.", ExitCode.USAGE) from None
        return LocalBroker(config.parent, layout.parsed(text, origin=str(config)))


def _row(member: LocalBroker, pid: int) -> dict[str, Any]:
    return {
        "id": member.broker_id,
        "pid": pid,
        "kafka": member.kafka,
        "http": member.settings.http_listen,
        "data": str((member.directory / member.settings.log_dirs[0]).absolute()),
    }


def replace_file(path: Path, text: str, mode: int = 0o644) -> None:
    """Replace a file atomically: a reader finds the old text or the new one. Raises Failure."""
    new = path.with_name(f"{path.name}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    except OSError as error:
        raise Failure(f"cannot write {error.filename or new}: {error.strerror}.", ExitCode.USAGE) from None
