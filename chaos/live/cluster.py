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
    ) -> None:
        """`disks` are the directories of the brokers' data, where they are not below `place`.

        With `has_http` each broker serves the HTTP API at `http_addresses[i]`.
        """
        ids = range(1, brokers + 1)
        self.replicas = min(brokers, REPLICAS_MAX)
        addresses = {id_: (hosts or {}).get(id_, "127.0.0.1") for id_ in ids}
        voting = ids[: min(voters or VOTERS_MAX, brokers)]
        common = self._settings([f"{id_}@{addresses[id_]}:{free_port()}" for id_ in voting])
        self.http_addresses = {id_: f"{addresses[id_]}:{free_port()}" for id_ in ids} if has_http else {}
        self.brokers: dict[int, BrokerProcess] = {}
        for id_ in ids:
            home = place / str(id_)
            home.mkdir(parents=True)
            self.brokers[id_] = BrokerProcess(
                (disks or {}).get(id_, home) / "data",
                {"node.id": str(id_), **self._http(id_), **common, **(settings or {})},
                host=addresses[id_],
                inside=(inside or {}).get(id_, ()),
            )
            self.brokers[id_].output_path = home / "broker.log"

    @property
    def data(self) -> dict[int, Path]:
        """Each broker's log directory."""
        return {id_: broker.data for id_, broker in self.brokers.items()}

    def wiped(self, id_: int) -> None:
        """Kill a broker with SIGKILL and delete its log directory. The broker is not started again."""
        self.brokers[id_].kill()
        shutil.rmtree(self.brokers[id_].data)

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
