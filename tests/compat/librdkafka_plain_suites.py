"""librdkafka's tests of transactions, and of classic groups that expect a delay before their first rebalance."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

from brokers import Brokers, running_up
from java_tools import JavaTools
from librdkafka_groups_suite import AT_ONCE, TIMES
from librdkafka_runner import VERSION, LibrdkafkaRunner
from suite import Suite
from suite_verdict import Outcomes


class LibrdkafkaTransactions(Suite):
    """Tests by number: 0098 and 0129 read aborted records, also of Java's producer, and 0103 is the producer's."""

    name, version = "librdkafka_transactions", VERSION
    settings: ClassVar = {"auto_create_topics_enable": "true", "num_partitions": "4"}
    numbers: ClassVar[Sequence[str]] = ("0098", "0103", "0129")
    of_three_brokers: ClassVar[Sequence[str]] = ("0098", "0103")
    """Tests that create topics with three replicas."""

    def __init__(self) -> None:
        self._tools, self._runner = JavaTools("4.3.1"), LibrdkafkaRunner()

    def prepare(self) -> None:
        self._tools.fetch()
        self._runner.build()

    def run(self, brokers: Brokers, place: Path, output: Path, words: Sequence[str]) -> Outcomes:
        config, environment = place / "test.conf", {"KAFKA_PATH": str(self._tools.home(place))}
        config.write_text(f"bootstrap.servers={brokers.bootstrap}\ntest.timeout.multiplier={TIMES}\n")

        def outcome(number: str) -> str:
            return self._runner.outcome(number, config, place / f"{number}.log", output, environment)

        left_out = () if brokers.count > 1 else self.of_three_brokers
        numbers = [each for each in self.numbers if each not in left_out and (not words or each in words)]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            return dict(zip(numbers, pool.map(outcome, numbers), strict=True))


class LibrdkafkaDefaults(LibrdkafkaTransactions):
    """Tests of rebalances in classic groups, by number, against clusters of `cordwood up` as it makes them."""

    name = "librdkafka_defaults"
    numbers: ClassVar[Sequence[str]] = ("0102", "0113")
    of_three_brokers: ClassVar[Sequence[str]] = ()

    @contextmanager
    def brokers(self, count: int) -> Iterator[Brokers]:
        with running_up(count, {}) as brokers:
            yield brokers
