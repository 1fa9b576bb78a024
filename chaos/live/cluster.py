"""A cluster of brokers in processes of their own on this machine."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from cordwood.chaos.live.brokers import REPLICAS_MAX, LiveCluster
from cordwood.chaos.live.process import BrokerProcess, free_port

VOTERS_MAX = 3


class LocalCluster(LiveCluster):
    """`brokers` brokers below `place`, the first `voters` of which keep the metadata.

    Ports and directories stay the same over restarts. Broker `i` listens at `hosts[i]`, 127.0.0.1 unless given, and
    runs inside `inside[i]`, as BrokerProcess has it. `settings` go to every broker. Whoever leaves the block finds all
    of them killed.
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
        """`disks` are the directories that hold a broker's data, where they are not below `place`.

        With `has_http` each broker has the HTTP API at `http_addresses[i]`.
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
        """Take a broker's directory away: SIGKILL, and all that it had on disk is gone. It is not started again."""
        self.brokers[id_].kill()
        shutil.rmtree(self.brokers[id_].data)

    def _http(self, id_: int) -> dict[str, str]:
        return {"http.listen": self.http_addresses[id_]} if self.http_addresses else {}

    def _settings(self, voters: Sequence[str]) -> dict[str, str]:
        """What all brokers are told. One broker by itself needs no quorum."""
        return {
            **(_quorum_of(voters) if len(voters) > 1 else {}),
            "default.replication.factor": str(self.replicas),
            "offsets.topic.replication.factor": str(self.replicas),
            "offsets.topic.num.partitions": str(self.replicas),
            "min.insync.replicas": str(min(2, self.replicas)),
            # When all are stopped, the last has nobody to hand over to.
            "controlled.shutdown.max.wait.ms": "2000",
        }


def _quorum_of(voters: Sequence[str]) -> dict[str, str]:
    """In network namespaces of their own, the voters are not on loopback."""
    return {"controller.quorum.voters": ",".join(voters), "controller.quorum.secret": "of this run"}
