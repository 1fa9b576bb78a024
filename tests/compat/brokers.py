"""Brokers for a foreign suite: one, or a cluster of three."""

import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

from broker_fixture import RunningBroker
from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient
from local_cluster import LocalCluster

QUIET = {"log_level": 0}
"""A setting of librdkafka, without which it prints each connection that a killed broker refuses."""


class Brokers(ABC):
    """Running brokers. A topic without a number of replicas has one on each."""

    count: int

    @property
    @abstractmethod
    def bootstrap(self) -> str:
        """The address host:port of every broker."""

    @abstractmethod
    def kill_and_restart(self, at: int) -> None:
        """Send SIGKILL to the broker at an index from 0, start it again, and wait until it is ready."""

    @abstractmethod
    def lose(self, topic: str) -> None:
        """Kill all brokers, delete every replica of a topic from their disks, and start them again."""

    @abstractmethod
    def logs(self) -> str:
        """Return the log output of all brokers."""


class _One(Brokers):
    count = 1

    def __init__(self, broker: RunningBroker) -> None:
        self._broker = broker

    @property
    def bootstrap(self) -> str:
        return self._broker.bootstrap

    def kill_and_restart(self, at: int) -> None:
        assert at == 0
        self._broker.kill()
        self._broker.start()

    def lose(self, topic: str) -> None:
        replicas = self._broker.data / "topics" / str(_id_of(topic, self.bootstrap))
        self._broker.kill()
        shutil.rmtree(replicas)
        self._broker.start()

    def logs(self) -> str:
        return self._broker.output


class _Cluster(Brokers):
    def __init__(self, cluster: LocalCluster) -> None:
        self.count = cluster.count
        self._cluster = cluster

    @property
    def bootstrap(self) -> str:
        return self._cluster.bootstrap

    def kill_and_restart(self, at: int) -> None:
        self._cluster.kill(at + 1)
        self._cluster.up()

    def lose(self, topic: str) -> None:
        topic_id = _id_of(topic, self.bootstrap)
        for broker in self._cluster.brokers:
            self._cluster.kill(broker["id"])
        for broker in self._cluster.brokers:
            shutil.rmtree(Path(broker["data"]) / "topics" / str(topic_id))
        self._cluster.up()

    def logs(self) -> str:
        paths = sorted(self._cluster.directory.glob("broker-*/broker.log"))
        return "".join(f"==> {path.parent.name}\n{path.read_text(errors='replace')}" for path in paths)


@contextmanager
def running(count: int, settings: Mapping[str, str]) -> Iterator[Brokers]:
    """Start one broker or three with empty data directories; in the end stop them and delete their data."""
    if count > 1:
        with running_up(count, settings) as cluster:
            yield cluster
        return
    with tempfile.TemporaryDirectory(prefix="cordwood-compat-") as place:
        broker = RunningBroker(Path(place) / "data", **settings).start()
        try:
            yield _One(broker)
        finally:
            broker.stop()


@contextmanager
def running_up(count: int, settings: Mapping[str, str]) -> Iterator[Brokers]:
    """Start a cluster of `cordwood up`, as `running` does."""
    with tempfile.TemporaryDirectory(prefix="cordwood-compat-") as place:
        cluster = LocalCluster(Path(place) / "cluster", count)
        try:
            sets = [f"{key.replace('_', '.')}={value}" for key, value in settings.items() if key != "node_id"]
            cluster.up(*(word for each in sets for word in ("--set", each)))
            yield _Cluster(cluster)
        finally:
            cluster.end()


def _id_of(topic: str, bootstrap: str) -> UUID:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    bits = admin.describe_topics(TopicCollection([topic]))[topic].result(30).topic_id
    return UUID(int=bits.get_most_significant_bits() % 2**64 << 64 | bits.get_least_significant_bits() % 2**64)
