"""A cluster of broker processes on this machine."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from cordwood.chaos.live.brokers import REPLICAS_MAX, LiveCluster
from cordwood.chaos.live.process import BrokerProcess, free_port

VOTERS_MAX = 3


class LocalCluster(LiveCluster):
    """`brokers` brokers in directories below `place`; the first `voters` of them are the metadata quorum.

    Ports and directories stay the same over restarts. Broker `i` listens on `hosts[i]` (default: 127.0.0.1) and runs
    inside `inside[i]`, as in BrokerProcess. `settings` go to every broker. All brokers are killed at the end of the
    `with` block.
    """

    def __init__(
        self,
        place: Path,
        brokers: int = 3,
        voters: int | None = None,
        settings: Mapping[str, str] | None = None,
        *,
        hosts: Mapping[int, str] | None = None,
        inside: Mapping[int, Sequence[str]] | None = None,
        disks: Mapping[int, Path] | None = None,
        has_http: bool = False,
        has_second_disks: bool = False,
        may_all_vote: bool = False,
    ) -> None:
        """`disks` are the directories of the brokers' data, where they are not below `place`.

        With `has_http` each broker serves the HTTP API at `http_addresses[i]`, with `has_second_disks` it has a second
        log directory, and with `may_all_vote` every broker has a controller listener.
        """
        ids = range(1, brokers + 1)
        self.replicas = min(brokers, REPLICAS_MAX)
        addresses = {id_: (hosts or {}).get(id_, "127.0.0.1") for id_ in ids}
        voting = ids[: min(voters or VOTERS_MAX, brokers)]
        self._controller_ports = {id_: free_port() for id_ in (ids if may_all_vote else voting)}
        common = self._settings([f"{id_}@{addresses[id_]}:{self._controller_ports[id_]}" for id_ in voting])
        self.http_addresses = {id_: f"{addresses[id_]}:{free_port()}" for id_ in ids} if has_http else {}
        self.brokers: dict[int, BrokerProcess] = {}
        self.second_disks: dict[int, Path] = {}
        """Each broker's second log directory, if it has one."""
        for id_ in ids:
            home = place / str(id_)
            home.mkdir(parents=True)
            data = (disks or {}).get(id_, home) / "data"
            if has_second_disks:
                self.second_disks[id_] = data.with_name("data-2")
            self.brokers[id_] = BrokerProcess(
                data,
                {"node.id": str(id_), **self._log_dirs(id_, data), **self._http(id_), **common, **(settings or {})},
                host=addresses[id_],
                inside=(inside or {}).get(id_, ()),
                controller_port=self._controller_ports[id_] if may_all_vote else None,
            )
            self.brokers[id_].output_path = home / "broker.log"

    @property
    def data(self) -> dict[int, Path]:
        """Each broker's log directory, the first where it has two."""
        return {id_: broker.data for id_, broker in self.brokers.items()}

    def wiped(self, id_: int) -> None:
        """Kill a broker with SIGKILL and delete its log directories. The broker is not started again."""
        self.brokers[id_].kill()
        shutil.rmtree(self.brokers[id_].data)
        if id_ in self.second_disks:
            shutil.rmtree(self.second_disks[id_])

    def find_voters_by_address(self) -> None:
        """Let brokers find the quorum by the addresses of all, from their next start on: its voters may change."""
        hosts = ((self.brokers[id_].host, port) for id_, port in self._controller_ports.items())
        addresses = ",".join(f"{host}:{port}" for host, port in hosts)
        for broker in self.brokers.values():
            broker.reconfigure(
                {"controller.quorum.voters": None, "controller.quorum.bootstrap.servers": addresses},
            )

    def _log_dirs(self, id_: int, data: Path) -> dict[str, str]:
        return {"log.dirs": f"{data},{self.second_disks[id_]}"} if self.second_disks else {}

    def _http(self, id_: int) -> dict[str, str]:
        return {"http.listen": self.http_addresses[id_]} if self.http_addresses else {}

    def _settings(self, voters: Sequence[str]) -> dict[str, str]:
        """Return the configuration that all brokers share. A single broker needs no quorum."""
        return {
            **(_quorum_of(voters) if len(voters) > 1 else {}),
            "default.replication.factor": str(self.replicas),
            "offsets.topic.replication.factor": str(self.replicas),
            "offsets.topic.num.partitions": str(self.replicas),
            "transaction.state.log.replication.factor": str(self.replicas),
            "transaction.state.log.num.partitions": str(self.replicas),
            "share.coordinator.state.topic.replication.factor": str(self.replicas),
            "share.coordinator.state.topic.num.partitions": str(self.replicas),
            "min.insync.replicas": str(min(2, self.replicas)),
            # When all brokers stop, the last one has no broker to move its leadership to.
            "controlled.shutdown.max.wait.ms": "2000",
        }


def _quorum_of(voters: Sequence[str]) -> dict[str, str]:
    """Return the quorum's configuration. Voters in network namespaces are not on loopback: they need a secret."""
    return {"controller.quorum.voters": ",".join(voters), "controller.quorum.secret": "of this run"}
