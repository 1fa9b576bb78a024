"""Workers of Kafka Connect, with exactly-once source connectors, while workers and brokers are killed.

A file goes to a topic, MirrorMaker copies the topic, and the copy goes to another file. Connect keeps its configs,
offsets and states in compacted topics, has a group protocol of its own, and fences the producers of former tasks.
"""

import json
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

from brokers import Brokers
from java_application import DONE_S, JavaApplication
from java_tools import JavaTools
from kafka_tools_suite import KafkaTools, Scenario

from cordwood.chaos.live.process import free_port, wait_for

LINES = 2_000
"""Lines are of each part of the file."""
STARTED_S, REQUEST_S = 90.0, 20.0
WORKER = "org.apache.kafka.connect.cli.ConnectDistributed"
STRINGS = "org.apache.kafka.connect.storage.StringConverter"
BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"


class ConnectCluster(JavaApplication):
    """Two workers with three connectors: `lines` reads a file, `mirror` copies its topic, `copy` writes the copy."""

    def __init__(self, tools: JavaTools, brokers: Brokers, place: Path) -> None:
        super().__init__(brokers, place)
        self.name = f"{place.name}-{tools.version}"
        self.topic, self.mirrored = f"{self.name}-lines", f"source.{self.name}-lines"
        self._tools = tools
        self._source, self._sink = place / "source.txt", place / "sink.txt"
        self._ports: dict[str, int] = {}
        self._written = 0

    def __enter__(self) -> Self:
        super().__enter__()
        try:
            self.create_connectors()
        except BaseException:
            # Then the block does not begin, and nothing else ends the workers.
            self.stop()
            raise
        return self

    def command(self, name: str) -> Sequence[str]:
        port = self._ports.setdefault(name, free_port())
        properties = self._place / f"{name}.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in self._settings(port).items()))
        return ["java", "-Xmx384m", "-cp", f"{self._tools.jars}/*", WORKER, str(properties)]

    def feed(self) -> None:
        """Append the next LINES lines to the file."""
        with self._source.open("a") as file:
            file.writelines(f"{number}\n" for number in range(self._written, self._written + LINES))
        self._written += LINES

    def create_connectors(self) -> None:
        """Create the connectors once the workers serve, and wait until all tasks run."""
        for name, config in self._connectors().items():
            assert wait_for(lambda name=name, config=config: self._is_created(name, config), STARTED_S), name
        assert wait_for(self.are_running, STARTED_S), self._states()

    def are_running(self) -> bool:
        """Return whether each connector and its task runs."""
        states = self._states()
        return all(states.get(name) == ["RUNNING", "RUNNING"] for name in self._connectors())

    def await_all(self) -> None:
        """Wait until the lines are in both topics, each once and in order, and in the file of the sink."""
        expected = [str(number) for number in range(self._written)]
        for topic in (self.topic, self.mirrored):
            read = [value.decode() for _, value in self.committed(topic, 1, self._written)]
            assert read == expected, f"{topic}: {len(read)} lines, {_first_difference(read, expected)}"
        has_all = wait_for(lambda: set(self._sink.read_text().splitlines()) >= set(expected), DONE_S)
        assert has_all, "the file of the sink lacks lines"

    def _settings(self, port: int) -> dict[str, object]:
        topics = {"config": f"{self.name}-configs", "offset": f"{self.name}-offsets", "status": f"{self.name}-states"}
        return {
            "bootstrap.servers": self._brokers.bootstrap,
            "group.id": self.name,
            "listeners": f"http://127.0.0.1:{port}",
            "key.converter": STRINGS,
            "value.converter": STRINGS,
            "exactly.once.source.support": "enabled",
            "offset.flush.interval.ms": 1_000,
            "session.timeout.ms": 6_000,
            "heartbeat.interval.ms": 2_000,
            "scheduled.rebalance.max.delay.ms": 1_000,
            **{f"{part}.storage.topic": topic for part, topic in topics.items()},
            **{f"{part}.storage.replication.factor": self._brokers.count for part in topics},
            **{f"{part}.storage.partitions": 2 for part in ("offset", "status")},
        }

    def _connectors(self) -> dict[str, dict[str, object]]:
        bootstrap, replicas = self._brokers.bootstrap, self._brokers.count
        return {
            "lines": {
                "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
                "file": str(self._source),
                "topic": self.topic,
                "exactly.once.support": "required",
                "transaction.boundary": "poll",
            },
            "mirror": {
                "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
                "source.cluster.alias": "source",
                "target.cluster.alias": "target",
                "source.cluster.bootstrap.servers": bootstrap,
                "target.cluster.bootstrap.servers": bootstrap,
                "topics": self.topic,
                "replication.factor": replicas,
                "offset-syncs.topic.replication.factor": replicas,
                "refresh.topics.interval.seconds": 1,
                "sync.topic.acls.enabled": "false",
                "consumer.isolation.level": "read_committed",
                "exactly.once.support": "required",
                "key.converter": BYTES,
                "value.converter": BYTES,
            },
            "copy": {
                "connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector",
                "file": str(self._sink),
                "topics": self.mirrored,
                "consumer.override.isolation.level": "read_committed",
            },
        }

    def _is_created(self, name: str, config: Mapping[str, object]) -> bool:
        settings = {**config, "name": name, "tasks.max": 1}
        return self._ask(f"connectors/{name}/config", {key: str(value) for key, value in settings.items()}) is not None

    def _states(self) -> dict[str, list[str]]:
        """Return the states of each connector and its tasks."""
        shown = self._ask("connectors?expand=status") or {}
        return {
            name: [part["state"] for part in (each["status"]["connector"], *each["status"]["tasks"])]
            for name, each in shown.items()
        }

    def _ask(self, path: str, body: Mapping[str, str] | None = None) -> Any:
        """Send a request to the first worker that answers; None if none does."""
        for port in self._ports.values():
            request = urllib.request.Request(
                f"http://127.0.0.1:{port}/{path}",
                None if body is None else json.dumps(body).encode(),
                {"Content-Type": "application/json"},
                method="GET" if body is None else "PUT",
            )
            try:
                with urllib.request.urlopen(request, timeout=REQUEST_S) as response:
                    return json.load(response)
            except (OSError, ValueError):
                continue
        return None


def _first_difference(read: list[str], expected: list[str]) -> str:
    differences = (f"{one} for {other}" for one, other in zip(read, expected, strict=False) if one != other)
    return next(differences, "all of these in order")


def workers_are_killed(tools: JavaTools, brokers: Brokers, place: Path) -> None:
    """Kill each of two workers, with lines to copy meanwhile."""
    with ConnectCluster(tools, brokers, place) as cluster:
        cluster.survives_kills()


def brokers_are_killed(tools: JavaTools, brokers: Brokers, place: Path) -> None:
    """Kill each broker, with lines to copy meanwhile."""
    with ConnectCluster(tools, brokers, place) as cluster:
        cluster.survives_kills_of_brokers()


class KafkaConnect(KafkaTools):
    """The scenarios with one version of Kafka Connect; `words` select scenarios."""

    name = "kafka_connect"
    scenarios: ClassVar[Mapping[str, Scenario]] = {
        "workers_killed": workers_are_killed,
        "brokers_killed": brokers_are_killed,
    }

    def __init__(self, version: str) -> None:
        artifacts = ("connect-runtime", "connect-file", "connect-mirror")
        super().__init__(version, JavaTools(version, artifacts, self.name.replace("_", "-")))
