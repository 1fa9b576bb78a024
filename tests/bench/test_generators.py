"""Load generators: each runs every mode against real brokers, and counts its records."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Producer
from requirements import Requirement, check

from cordwood.bench.generator import IN_PYTHON, Generator, load_generator
from cordwood.bench.lines import PARTITIONS, GeneratorMode, LoadLine
from cordwood.bench.load_in_python import paced
from cordwood.bench.rounds import run_failover
from cordwood.bench.systems import Cordwood, Running

RECORDS = 6_000
AT_ONCE = {"controlled.shutdown.max.wait.ms": "0"}
"""Brokers that all stop together wait in vain for other leaders."""
TOPIC = "modes"


@pytest.fixture(scope="module", params=["go", "python"])
def generator(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Generator:
    if request.param == "python":
        return IN_PYTHON
    check(Requirement.GO, shutil.which("go") is not None, "there is no Go here")
    reported: list[str] = []
    built = load_generator(tmp_path_factory.mktemp("load"), reported.append)
    assert not reported
    return built


@pytest.fixture(scope="module")
def brokers(generator: Generator, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Run three brokers with a topic of at least RECORDS records."""
    with Cordwood(3, AT_ONCE).running(tmp_path_factory.mktemp("brokers") / "round") as running:
        generator.create_topic(running.bootstrap, TOPIC, PARTITIONS, 3)
        written = generator.run(
            LoadLine("write", GeneratorMode.PRODUCE, TOPIC, RECORDS), running.bootstrap, running.pids
        )
        assert written.records == RECORDS
        yield running


@pytest.mark.parametrize("consumers", [1, 3])
def test_consumers_see_together_what_was_asked_for(generator: Generator, brokers: Running, consumers: int) -> None:
    line = LoadLine("read", GeneratorMode.CONSUME, TOPIC, RECORDS, consumers=consumers)
    assert generator.run(line, brokers.bootstrap, brokers.pids).records >= RECORDS


def test_a_producer_and_a_consumer_at_once_have_as_many(generator: Generator, brokers: Running) -> None:
    line = LoadLine("both", GeneratorMode.BOTH, TOPIC, 3_000, acks="1")
    assert generator.run(line, brokers.bootstrap, brokers.pids).records >= 3_000


@pytest.mark.parametrize("mode", [GeneratorMode.LATENCY, GeneratorMode.ONE_AT_A_TIME])
def test_reading_takes_at_least_as_long_as_the_ack(generator: Generator, brokers: Running, mode: GeneratorMode) -> None:
    topic = f"{mode.value}-of-its-own"
    generator.create_topic(brokers.bootstrap, topic, 1, 3)
    outcome = generator.run(LoadLine("waits", mode, topic, rate=200, seconds=1.0), brokers.bootstrap, brokers.pids)
    assert outcome.records > 10
    assert 0 < outcome.ack_ms["p50"] <= outcome.ack_ms["p99"]
    assert 0 < outcome.end_to_end_ms["p50"] <= outcome.end_to_end_ms["p99"]


def test_connections_with_one_record_in_flight(generator: Generator, brokers: Running) -> None:
    line = LoadLine("many", GeneratorMode.ONE_IN_FLIGHT, TOPIC, connections=3, seconds=1.0)
    outcome = generator.run(line, brokers.bootstrap, brokers.pids)
    assert outcome.records > 10
    assert outcome.ack_ms["p50"] > 0


def test_transactions_are_counted_one_after_the_other(generator: Generator, brokers: Running) -> None:
    line = LoadLine("counted", GeneratorMode.TRANSACTIONS, TOPIC, seconds=0.5, transaction_records=3)
    outcome = generator.run(line, brokers.bootstrap, brokers.pids)
    assert outcome.records > 1
    assert outcome.ack_ms["p50"] > 0


@pytest.mark.parametrize("mode", [GeneratorMode.TRANSACTIONS, GeneratorMode.FLUSHED, GeneratorMode.PIPELINED])
def test_parts_are_counted_from_all_producers(generator: Generator, brokers: Running, mode: GeneratorMode) -> None:
    topic = f"{mode.value}-from-two"
    generator.create_topic(brokers.bootstrap, topic, PARTITIONS, 3)
    line = LoadLine("parts", mode, topic, producers=2, seconds=0.5, transaction_records=3)
    parts = generator.run(line, brokers.bootstrap, brokers.pids).records
    read = LoadLine("read", GeneratorMode.CONSUME, topic, 3 * (parts + 2), is_read_committed=True)
    assert parts > 2
    assert generator.run(read, brokers.bootstrap, brokers.pids).records == 3 * (parts + 2)


def test_records_in_transactions_are_read_once_committed(generator: Generator, brokers: Running) -> None:
    topic = "in-transactions"
    generator.create_topic(brokers.bootstrap, topic, PARTITIONS, 3)
    written = LoadLine("write", GeneratorMode.PRODUCE, topic, 300, producers=3, transaction_records=40)
    assert generator.run(written, brokers.bootstrap, brokers.pids).records == 300
    read = LoadLine("read", GeneratorMode.CONSUME, topic, 300, is_read_committed=True)
    assert generator.run(read, brokers.bootstrap, brokers.pids).records >= 300


def test_a_killed_leader_is_a_gap_between_acks_and_no_lost_record(generator: Generator, tmp_path: Path) -> None:
    line = LoadLine("leader killed", GeneratorMode.FAILOVER, TOPIC, rate=100, seconds=4.0, is_replicated=True)
    with Cordwood(3, AT_ONCE).running(tmp_path / "round") as running:
        generator.create_topic(running.bootstrap, TOPIC, PARTITIONS, 3)
        undisturbed = generator.run(replace(line, seconds=1.0), running.bootstrap, running.pids)
        assert undisturbed.records == 100
        outcome = run_failover(line, running, generator)
        killed = [pid for pid in running.pids if not _is_alive(pid)]
    assert len(killed) == 1
    assert outcome.records == 400
    assert outcome.longest_gap_s > undisturbed.longest_gap_s > 0


def test_a_second_has_as_many_records_as_the_rate_says_whenever_it_begins() -> None:
    producer = Producer({})
    for begin in range(1, 100):
        dues = list(paced(producer, begin / 7, 100, 1.0, lambda: 1e6))
        assert len(dues) == 100
        assert dues[0] == begin / 7
        assert dues[-1] == pytest.approx(begin / 7 + 0.99)


def _is_alive(pid: int) -> bool:
    # The parent has not reaped the process yet, so a killed one is a zombie.
    return " Z " not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2][:3]
