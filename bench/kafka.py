"""Apache Kafka from Maven Central, in KRaft mode, as a system to measure beside Cordwood."""

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from cordwood.bench.maven import fetch_jars
from cordwood.bench.systems import KAFKA, CannotRun, System, SystemBroker, majority

VERSION = "4.4.0"
# ProducerPerformance. Maven Central has no kafka-tools of 4.4.0, so the tools have a folder of their own.
TOOLS_VERSION = "4.3.1"
HEAP = "1G"
# The options of Kafka's own start script.
GARBAGE_COLLECTION = ("-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35")
JAVA_MAJOR_MIN = 17
CLUSTER_ID = "Q29yZHdvb2RCZW5jaDAwMQ"
LOGGER = ("org.slf4j", "slf4j-simple", "1.7.36")
BROKER = (("org.apache.kafka", "kafka_2.13", VERSION), LOGGER)
TOOLS = (("org.apache.kafka", "kafka-tools", TOOLS_VERSION), LOGGER)


class Kafka(System):
    """Kafka with default flush settings, or with an fsync for each append, as Cordwood's acknowledgement implies."""

    def __init__(
        self, home: Path, brokers: int = 1, *, is_flushing: bool = False, settings: Mapping[str, str] | None = None
    ) -> None:
        """`home` keeps the jars, which are fetched once. `settings` go to every broker and take precedence."""
        super().__init__(brokers)
        self.name = f"{KAFKA}, fsync" if is_flushing else KAFKA
        self.libs = home / f"kafka-{VERSION}"
        self.tools = home / f"kafka-tools-{TOOLS_VERSION}"
        self._settings = {**({"log.flush.interval.messages": "1"} if is_flushing else {}), **(settings or {})}

    def version(self) -> str:
        return VERSION

    def prepare(self) -> None:
        if shutil.which("java") is None:
            raise CannotRun("Apache Kafka is skipped: there is no `java` on this machine.")
        if _java_major() < JAVA_MAJOR_MIN:
            raise CannotRun(f"Apache Kafka is skipped: it needs Java {JAVA_MAJOR_MIN} or newer.")
        fetch_jars("Apache Kafka", BROKER, self.libs)
        fetch_jars("Kafka's ProducerPerformance", TOOLS, self.tools)

    def command(self, member: SystemBroker, members: Sequence[SystemBroker]) -> list[str]:
        properties = member.directory / "server.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in self._properties(member, members).items()))
        format_log = subprocess.run(
            [*self._java(), "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(properties)],
            capture_output=True,
            text=True,
            check=False,
        )
        if format_log.returncode != 0:
            raise CannotRun(f"Apache Kafka could not format its directory:\n{format_log.stdout}{format_log.stderr}")
        return [
            *self._java(f"-Xms{HEAP}", f"-Xmx{HEAP}", *GARBAGE_COLLECTION),
            "kafka.Kafka",
            str(properties),
        ]

    def _java(self, *options: str) -> list[str]:
        quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
        return ["java", *options, quiet, "-cp", f"{self.libs}/*"]

    def _properties(self, member: SystemBroker, members: Sequence[SystemBroker]) -> dict[str, str]:
        return {
            **self.common_settings(member),
            "process.roles": "broker,controller",
            "controller.quorum.voters": ",".join(each.voter for each in members),
            "listeners": f"{self.protocol}://{member.address},CONTROLLER://127.0.0.1:{member.voter_port}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": f"CONTROLLER:PLAINTEXT,{self.protocol}:{self.protocol}",
            "inter.broker.listener.name": self.protocol,
            "transaction.state.log.replication.factor": str(self.brokers),
            "transaction.state.log.min.isr": str(majority(self.brokers)),
            "share.coordinator.state.topic.replication.factor": str(self.brokers),
            "share.coordinator.state.topic.min.isr": str(majority(self.brokers)),
            "group.initial.rebalance.delay.ms": "0",
            **self._settings,
        }


def _java_major() -> int:
    # "17.0.15", or "1.8.0_402" of the versions whose major version came second.
    output = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr
    numbers = output.partition('"')[2].partition('"')[0].split(".")
    return int(numbers[0]) if numbers[0].isdigit() else 0
