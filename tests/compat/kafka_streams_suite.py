"""An application of Kafka Streams, `exactly_once_v2`, whose instances and brokers are killed.

Streams is the most demanding client of transactions: internal topics that it creates and purges, state that it restores
from compacted changelogs, offsets that its transactions commit. Each word must be counted up one by one.
"""

import shutil
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from brokers import QUIET, Brokers
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from java_application import ANSWER_S, PROCESSES, JavaApplication
from java_tools import TOOL_LIMIT_S, JavaTools
from kafka_tools_suite import KafkaTools, Scenario
from suite import HERE

from cordwood.chaos.live.process import wait_for

PROGRAM = HERE / "streams" / "WordCounts.java"
PARTITIONS, LINES = 4, 2_000
"""Lines are of each part of the input."""
WORDS = tuple(f"word{number}" for number in range(23))
PERIOD_MS, AGO_S = 1_000, 12 * 3_600
"""Lines are a second apart, and the first one is so old."""


class WordCount(JavaApplication):
    """The application: its topics, and what it should have counted so far."""

    def __init__(self, tools: JavaTools, brokers: Brokers, place: Path) -> None:
        super().__init__(brokers, place)
        self.name = f"{place.name}-{tools.version}"
        self.lines, self.counts, self.counts_of_minutes = (
            f"{self.name}-{part}" for part in ("lines", "counts", "minutes")
        )
        self._tools = tools
        self._expected: dict[str, Counter[str]] = {self.counts: Counter(), self.counts_of_minutes: Counter()}
        self._sent, self._first_ms, self._times = 0, int(time.time() - AGO_S) // 60 * 60_000, 1
        admin = AdminClient({**QUIET, "bootstrap.servers": brokers.bootstrap})
        topics = [NewTopic(each, PARTITIONS, brokers.count) for each in (self.lines, *self._expected)]
        for created in admin.create_topics(topics).values():
            created.result(ANSWER_S)

    def command(self, name: str) -> Sequence[str]:
        words = (self._brokers.bootstrap, self.name, self.lines, *self._expected, str(self._states(name)))
        return ["java", "-Xmx256m", "-cp", f"{self._tools.jars}/*", str(PROGRAM), *words, str(self._brokers.count)]

    def feed(self) -> None:
        """Send the next LINES lines, of three words each."""
        producer = Producer({**QUIET, "bootstrap.servers": self._brokers.bootstrap, "enable.idempotence": True})
        for number in range(self._sent, self._sent + LINES):
            words = [WORDS[number * factor % len(WORDS)] for factor in (1, 5, 7)]
            at = self._first_ms + number * PERIOD_MS
            producer.produce(self.lines, " ".join(words), partition=number % PARTITIONS, timestamp=at)
            minute = at - at % 60_000
            self._expected[self.counts].update(words)
            self._expected[self.counts_of_minutes].update(f"{word}@{minute}" for word in words)
        assert producer.flush(ANSWER_S) == 0
        self._sent += LINES

    def await_all(self) -> None:
        """Wait until both outputs have all counts, and check that each word is counted up one by one."""
        for topic, expected in self._expected.items():
            counted: dict[str, list[int]] = defaultdict(list)
            for key, value in self.committed(topic, PARTITIONS, expected.total() * self._times):
                assert key is not None
                counted[key.decode()].append(int.from_bytes(value))
            due = {word: list(range(1, count + 1)) * self._times for word, count in expected.items()}
            wrong = {word: counted[word] for word in counted.keys() | due if counted[word] != due.get(word)}
            assert not wrong, f"{topic}: {len(wrong)} words, such as {next(iter(wrong.items()))}"

    def reset(self) -> None:
        """Reset the application with Kafka's tool: it deletes the internal topics, and input begins anew."""
        words = ("--application-id", self.name, "--bootstrap-server", self._brokers.bootstrap, "--force")
        command = self._tools.command("StreamsResetter", *words, "--input-topics", self.lines)
        subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=TOOL_LIMIT_S, check=True)
        for name in PROCESSES:
            shutil.rmtree(self._states(name))
        self._times += 1

    def internal_topics(self) -> set[str]:
        admin = AdminClient({**QUIET, "bootstrap.servers": self._brokers.bootstrap})
        topics = admin.list_topics(timeout=ANSWER_S).topics
        return {topic for topic in topics if topic.startswith(f"{self.name}-")} - {self.lines, *self._expected}

    def _states(self, name: str) -> Path:
        return self._place / f"states-{name}"


def instances_are_killed(tools: JavaTools, brokers: Brokers, place: Path) -> None:
    """Kill each of two instances: the next one restores its states from the changelogs."""
    with WordCount(tools, brokers, place) as count:
        count.survives_kills()


def brokers_are_killed(tools: JavaTools, brokers: Brokers, place: Path) -> None:
    """Kill each broker, with lines to count meanwhile."""
    with WordCount(tools, brokers, place) as count:
        count.survives_kills_of_brokers()


def an_application_is_reset(tools: JavaTools, brokers: Brokers, place: Path) -> None:
    """Reset the application once it has stopped: it counts all lines again."""
    with WordCount(tools, brokers, place) as count:
        count.await_all()
        count.stop()
        assert count.internal_topics()
        count.reset()
        assert wait_for(lambda: not count.internal_topics(), ANSWER_S)
        count.start(PROCESSES[0])
        count.await_all()


class KafkaStreams(KafkaTools):
    """The scenarios with one version of Kafka Streams; `words` select scenarios."""

    name = "kafka_streams"
    scenarios: ClassVar[Mapping[str, Scenario]] = {
        "instances_killed": instances_are_killed,
        "brokers_killed": brokers_are_killed,
        "reset": an_application_is_reset,
    }

    def __init__(self, version: str) -> None:
        super().__init__(version, JavaTools(version, ("kafka-tools", "kafka-streams"), self.name.replace("_", "-")))
