"""Transactional copies of a topic by Java clients, while copiers or brokers are killed."""

import contextlib
import json
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

from broker_fixture import wait_until
from brokers import QUIET, Brokers
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from java_tools import JavaTools

PARTITIONS, RECORDS = 2, 6_000
"""Records are of each partition."""
TRANSACTION_RECORDS = 50
COPIED_S = 180.0
PROGRESS_S = 90.0
SHORT_TIMEOUT_MS, LONG_TIMEOUT_MS = 8_000, 40_000
"""A killed copier's next run reads the group's offsets first, which waits for the timeout of its open transaction."""

Copied = dict[int, list[bytes]]
"""Values by partition, in order."""


class Copier:
    """A `TransactionalMessageCopier` that can be killed and started again with the same transactional id."""

    def __init__(self, tools: JavaTools, output: Path, words: list[str]) -> None:
        self._tools, self._output, self._words = tools, output, words
        self.start()

    def start(self) -> None:
        self._from = self._output.stat().st_size if self._output.exists() else 0
        self._process = self._tools.start(self._output, "TransactionalMessageCopier", *self._words)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    @property
    def copied(self) -> int:
        """The number of records that this run has copied so far."""
        numbers = [0]
        for line in self._output.read_bytes()[self._from :].splitlines():
            with contextlib.suppress(json.JSONDecodeError):
                numbers.append(json.loads(line).get("totalProcessed", 0))
        return max(numbers)

    def wait_for(self, copied: int) -> None:
        """Wait until this run has copied this many records."""
        wait_until(lambda: self.copied >= copied or self._process.poll() is not None, PROGRESS_S, f"{copied} copies")
        assert self._process.poll() is None, f"{self._output.name} ended with {self._process.returncode} already"

    def wait(self) -> None:
        """Wait for the end of the copy."""
        try:
            assert self._process.wait(COPIED_S) == 0, f"{self._output.name} ended with {self._process.returncode}"
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self._output.name} had no end; it has copied {self.copied} records") from None


class CommittedReader:
    """A `read_committed` consumer of a whole topic, beside the copiers, in a thread of its own."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        isolation = {**QUIET, "bootstrap.servers": bootstrap, "isolation.level": "read_committed"}
        settings = {**isolation, "group.id": f"reader of {topic}", "enable.auto.commit": False}
        self._consumer = Consumer({**settings, "enable.partition.eof": True})
        # A consumer serves one thread at a time.
        self._watermarks = Consumer(settings)
        self._places = [TopicPartition(topic, index, OFFSET_BEGINNING) for index in range(PARTITIONS)]
        self._consumer.assign(self._places)
        self.values: Copied = {index: [] for index in range(PARTITIONS)}
        self._ends: dict[int, int] = {}
        self._is_ending = threading.Event()
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def wait_for_the_end(self) -> None:
        """Wait until the reader is at the end of each partition, as it is now."""
        for place in self._places:
            _, end = self._watermarks.get_watermark_offsets(place, PROGRESS_S)
            wait_until(lambda at=place.partition, to=end: self._ends.get(at, 0) >= to, PROGRESS_S, f"offset {end}")

    def close(self) -> None:
        self._is_ending.set()
        self._thread.join()
        self._consumer.close()
        self._watermarks.close()

    def _read(self) -> None:
        while not self._is_ending.is_set():
            for message in self._consumer.consume(500, timeout=0.2):
                error, value = message.error(), message.value()
                partition, offset = message.partition(), message.offset()
                assert partition is not None
                assert offset is not None
                if error is None:
                    assert isinstance(value, bytes)
                    self.values[partition].append(value)
                elif error.code() == KafkaError._PARTITION_EOF:
                    self._ends[partition] = offset


def copiers_are_killed(tools: JavaTools, brokers: Brokers, place: Path) -> None:
    """Kill each copier twice. Its next run aborts what the last one left open."""
    with _copy(tools, brokers, place, SHORT_TIMEOUT_MS, assigned=True) as copiers:
        for _ in range(2):
            for copier in copiers:
                copier.wait_for(RECORDS // 5)
                copier.kill()
                copier.start()


def copiers_of_a_group_abort(tools: JavaTools, brokers: Brokers, place: Path) -> None:
    """Let two copiers of a group abort a third of their transactions. Kill and restart one: the group rebalances."""
    with _copy(tools, brokers, place, SHORT_TIMEOUT_MS, assigned=False) as copiers:
        copiers[0].wait_for(RECORDS // 5)
        copiers[0].kill()
        copiers[0].start()


def brokers_are_killed(tools: JavaTools, brokers: Brokers, place: Path) -> None:
    """Kill and restart each broker in turn, while the copy goes on."""
    records = RECORDS * brokers.count
    with _copy(tools, brokers, place, LONG_TIMEOUT_MS, assigned=True, records=records) as copiers:
        for at in range(brokers.count):
            copiers[0].wait_for(RECORDS * (at + 1) // 6)
            brokers.kill_and_restart(at)


@contextlib.contextmanager
def _copy(
    tools: JavaTools, brokers: Brokers, place: Path, timeout_ms: int, *, assigned: bool, records: int = RECORDS
) -> Iterator[list[Copier]]:
    """Copy a topic, with the faults of the `with` block meanwhile, and compare the copy.

    `assigned` gives each copier a partition. Otherwise the copiers are members of a group, and abort some transactions.
    """
    name = f"{place.name}-{tools.version}"
    source, target = f"{name}-source", f"{name}-target"
    admin = AdminClient({**QUIET, "bootstrap.servers": brokers.bootstrap})
    topics = [NewTopic(each, PARTITIONS, brokers.count) for each in (source, target)]
    for created in admin.create_topics(topics).values():
        created.result(PROGRESS_S)
    sent = _seeded(brokers.bootstrap, source, records)
    words = ["--broker-list", brokers.bootstrap, "--input-topic", source, "--output-topic", target]
    words += ["--consumer-group", name, "--transaction-size", str(TRANSACTION_RECORDS)]
    words += ["--transaction-timeout", str(timeout_ms)]
    words += [] if assigned else ["--group-mode", "--use-group-metadata", "--enable-random-aborts"]
    copiers: list[Copier] = []
    reader = CommittedReader(brokers.bootstrap, target)
    try:
        for index in range(PARTITIONS):
            own = ["--transactional-id", f"{name}-{index}", "--input-partition", str(index)]
            copiers.append(Copier(tools, place / f"copier-{index}", [*words, *own]))
        yield copiers
        for copier in copiers:
            copier.wait()
        reader.wait_for_the_end()
    finally:
        for copier in copiers:
            copier.kill()
        reader.close()
    for index, values in sent.items():
        assert reader.values[index] == values, f"partition {index}: {_difference(reader.values[index], values)}"


def _seeded(bootstrap: str, topic: str, records: int) -> Copied:
    """Produce the same numbers to each partition, and return them."""
    producer = Producer({**QUIET, "bootstrap.servers": bootstrap, "enable.idempotence": True})
    sent = {index: [b"%d" % number for number in range(records)] for index in range(PARTITIONS)}
    for index, values in sent.items():
        for value in values:
            producer.produce(topic, value, partition=index)
    assert producer.flush(PROGRESS_S) == 0
    return sent


def _difference(read: list[bytes], sent: list[bytes]) -> str:
    lost, doubled = set(sent) - set(read), len(read) - len(set(read))
    order = "in another order" if not lost and not doubled else "of which the first is " + str(min(lost, default=None))
    return f"{len(read)} records of {len(sent)}, {len(lost)} missing, {doubled} twice, {order}"
