"""An application of Kafka Streams, `exactly_once_v2`, whose instances and brokers are killed.

Streams is the most demanding client of transactions: internal topics that it creates and purges, state that it restores
from compacted changelogs, offsets that its transactions commit. Each word must be counted up one by one.
"""

import contextlib
import shutil
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from brokers import QUIET, Brokers
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
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
COUNTED_S, ANSWER_S, STOP_S = 120.0, 30.0, 30.0


class WordCount:
    """The application: its topics, its instances, and what it should have counted so far."""

    def __init__(self, tools: JavaTools, brokers: Brokers, place: Path) -> None:
        self.name = f"{place.name}-{tools.version}"
        self.lines, self.counts, self.counts_of_minutes = (
            f"{self.name}-{part}" for part in ("lines", "counts", "minutes")
        )
        self._tools, self._brokers, self._place = tools, brokers, place
        self._instances: dict[str, subprocess.Popen[bytes]] = {}
        self._expected: dict[str, Counter[str]] = {self.counts: Counter(), self.counts_of_minutes: Counter()}
        self._sent, self._first_ms = 0, int(time.time() - AGO_S) // 60 * 60_000
        admin = AdminClient({**QUIET, "bootstrap.servers": brokers.bootstrap})
        topics = [NewTopic(each, PARTITIONS, brokers.count) for each in (self.lines, *self._expected)]
        for created in admin.create_topics(topics).values():
            created.result(ANSWER_S)

    def send(self) -> None:
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

    def start(self, name: str) -> None:
        """Start an instance with its own states."""
        words = (self._brokers.bootstrap, self.name, self.lines, *self._expected, str(self._states(name)))
        command = ["java", "-Xmx256m", "-cp", f"{self._tools.jars}/*", str(PROGRAM), *words, str(self._brokers.count)]
        with (self._place / f"{name}.log").open("ab") as log:
            self._instances[name] = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def kill(self, name: str) -> None:
        instance = self._instances[name]
        assert instance.poll() is None, f"instance {name} ended with {instance.returncode} before"
        instance.kill()
        instance.wait()

    def stop(self) -> None:
        """Stop the instances; each leaves its group."""
        for instance in self._instances.values():
            instance.terminate()
        for instance in self._instances.values():
            try:
                instance.wait(STOP_S)
            except subprocess.TimeoutExpired:
                instance.kill()
                instance.wait()

    def reset(self) -> None:
        """Reset the application with Kafka's tool: it deletes the internal topics, and input begins anew."""
        words = ("--application-id", self.name, "--bootstrap-server", self._brokers.bootstrap, "--force")
        command = self._tools.command("StreamsResetter", *words, "--input-topics", self.lines)
        subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=TOOL_LIMIT_S, check=True)
        for name in self._instances:
            shutil.rmtree(self._states(name))

    def await_all(self, *, times: int = 1) -> None:
        """Wait until both outputs have all counts, `times` times, and check that none is missing or comes twice."""
        for topic, expected in self._expected.items():
            self._await(topic, {word: list(range(1, count + 1)) * times for word, count in expected.items()})

    def internal_topics(self) -> set[str]:
        admin = AdminClient({**QUIET, "bootstrap.servers": self._brokers.bootstrap})
        topics = admin.list_topics(timeout=ANSWER_S).topics
        return {topic for topic in topics if topic.startswith(f"{self.name}-")} - {self.lines, *self._expected}

    def _states(self, name: str) -> Path:
        return self._place / f"states-{name}"

    def _await(self, topic: str, expected: Mapping[str, Sequence[int]]) -> None:
        settings = {**QUIET, "bootstrap.servers": self._brokers.bootstrap, "isolation.level": "read_committed"}
        reader = Consumer({**settings, "group.id": f"reader of {topic}", "enable.auto.commit": False})
        reader.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for index in range(PARTITIONS)])
        counted: dict[str, list[int]] = defaultdict(list)
        missing = sum(map(len, expected.values()))

        def read() -> bool:
            nonlocal missing
            for message in reader.consume(1_000, timeout=0.5):
                key, value = message.key(), message.value()
                if message.error() is None and isinstance(key, bytes) and isinstance(value, bytes):
                    counted[key.decode()].append(int.from_bytes(value))
                    missing -= 1
            return missing <= 0

        try:
            assert wait_for(read, COUNTED_S), f"{topic}: {missing} counts are missing"
            wrong = {word: counted[word] for word in expected if counted[word] != list(expected[word])}
            assert not wrong, f"{topic}: {dict(list(wrong.items())[:2])}"
        finally:
            reader.close()


@contextlib.contextmanager
def _running(tools: JavaTools, brokers: Brokers, place: Path) -> Iterator[WordCount]:
    count = WordCount(tools, brokers, place)
    count.send()
    count.start("a")
    count.start("b")
    try:
        yield count
    finally:
        count.stop()


def instances_are_killed(tools: JavaTools, brokers: Brokers, place: Path) -> None:
    """Kill each of two instances while they count, and start it again: it restores its states from the changelogs."""
    with _running(tools, brokers, place) as count:
        count.await_all()
        for name in ("a", "b"):
            count.send()
            count.kill(name)
            count.start(name)
            count.send()
            count.await_all()


def brokers_are_killed(tools: JavaTools, brokers: Brokers, place: Path) -> None:
    """Kill and start each broker in turn, with lines to count meanwhile."""
    with _running(tools, brokers, place) as count:
        count.await_all()
        for at in range(brokers.count):
            count.send()
            brokers.kill_and_restart(at)
            count.send()
            count.await_all()


def an_application_is_reset(tools: JavaTools, brokers: Brokers, place: Path) -> None:
    """Reset the application once it has stopped: it counts all lines again."""
    with _running(tools, brokers, place) as count:
        count.await_all()
    assert count.internal_topics()
    count.reset()
    assert wait_for(lambda: not count.internal_topics(), ANSWER_S)
    count.start("a")
    try:
        count.await_all(times=2)
    finally:
        count.stop()


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
