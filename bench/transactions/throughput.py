"""Throughput: transactions of 1 MB beside the same records without, and read_committed beside plain consumers."""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from cordwood.bench.generator import Generator
from cordwood.bench.kafka import Kafka
from cordwood.bench.lines import PARTITIONS, GeneratorMode, LoadLine
from cordwood.bench.systems import Cordwood, Running, System, SystemBroker
from cordwood.bench.transactions.ratios import Interleaved, interleave
from cordwood.chaos.live.process import free_port

RECORD_BYTES, RECORDS = 1000, 1000
"""Of a transaction, which has 1 MB."""
IN_TRANSACTIONS, FLUSHED, PIPELINED = "a commit after each MB", "a flush after each MB", "without a wait"
IN_TOPIC, PLAIN_TOPIC = "in-transactions", "plain"
COMMITTED, UNCOMMITTED, PLAIN = "read_committed", "read_uncommitted", "plain topic"
MODES = {
    IN_TRANSACTIONS: GeneratorMode.TRANSACTIONS,
    FLUSHED: GeneratorMode.FLUSHED,
    PIPELINED: GeneratorMode.PIPELINED,
}


class MeteredCordwood(Cordwood):
    """Brokers that serve their metrics; `http` has the addresses."""

    def __init__(self, brokers: int) -> None:
        super().__init__(brokers)
        self.http = [f"127.0.0.1:{free_port()}" for _ in range(brokers)]

    def command(self, member: SystemBroker, members: Sequence[SystemBroker]) -> list[str]:
        return [*super().command(member, members), "--set", f"http.listen={self.http[member.broker_id - 1]}"]


def systems(brokers: int, home: Path, *, is_comparing: bool) -> list[System]:
    """Return Cordwood, and Kafka if it is compared, ready to start. Raises CannotRun."""
    found: list[System] = [MeteredCordwood(brokers)]
    if is_comparing:
        found.append(Kafka(home, brokers))
    for system in found:
        system.prepare()
    return found


def produce(
    system: System, generator: Generator, producers: int, seconds: float, rounds: int, say: Callable[[str], None]
) -> Interleaved:
    """Measure transactions, flushes and neither, each in a topic of its own. Raises CannotRun and LoadFailed."""
    plain = LoadLine("", GeneratorMode.PIPELINED, "", record_bytes=RECORD_BYTES, producers=producers, seconds=seconds)
    lines = {
        name: replace(plain, name=name, mode=mode, topic=mode.value, transaction_records=RECORDS)
        for name, mode in MODES.items()
    }
    with running(system) as brokers:
        for line in lines.values():
            generator.create_topic(brokers.bootstrap, line.topic, PARTITIONS, system.brokers)
        return interleave(system.name, brokers, generator, lines, rounds, say, getattr(system, "http", ()))


def consume(
    system: System, generator: Generator, megabytes: int, rounds: int, say: Callable[[str], None]
) -> Interleaved:
    """Measure consumers of the same records: committed, uncommitted, and without transactions. Raises as `produce`."""
    read = LoadLine("", GeneratorMode.CONSUME, IN_TOPIC, records=1000 * megabytes, record_bytes=RECORD_BYTES)
    lines = {
        COMMITTED: replace(read, name=COMMITTED, is_read_committed=True),
        UNCOMMITTED: replace(read, name=UNCOMMITTED),
        PLAIN: replace(read, name=PLAIN, topic=PLAIN_TOPIC),
    }
    with running(system) as brokers:
        for topic, records in ((IN_TOPIC, RECORDS), (PLAIN_TOPIC, 0)):
            generator.create_topic(brokers.bootstrap, topic, PARTITIONS, system.brokers)
            fill = replace(read, name="fill", mode=GeneratorMode.PRODUCE, topic=topic, transaction_records=records)
            generator.run(fill, brokers.bootstrap, brokers.pids)
        return interleave(system.name, brokers, generator, lines, rounds, say, getattr(system, "http", ()))


@contextmanager
def running(system: System) -> Iterator[Running]:
    """Run brokers with temporary directories. Raises CannotRun."""
    with (
        tempfile.TemporaryDirectory(prefix="cordwood-transactions-") as place,
        system.running(Path(place) / "brokers") as brokers,
    ):
        yield brokers
