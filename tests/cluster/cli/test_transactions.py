"""`cordwood transaction` and `cordwood consume --isolation` against a broker."""

from collections.abc import Iterator

import pytest
from broker_fixture import RunningBroker, wait_until
from command import Outcome, cordwood, in_process
from hanging_transaction import PRODUCER, leave_hanging
from transactional_clients import ConfluentProducer

from cordwood.cluster.cli.exits import ExitCode


@pytest.fixture
def topic(broker: RunningBroker) -> str:
    """Create a topic of one partition with the record `before`."""
    in_process("topic", "create", "t", "-p", "1", bootstrap=broker.bootstrap)
    assert cordwood("produce", "t", stdin=b"before\n", bootstrap=broker.bootstrap).exit_code == ExitCode.OK
    return "t"


@pytest.fixture
def open_one(broker: RunningBroker, topic: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """Yield a transactional id of the test's own, with an open transaction that wrote the record `open`."""
    name: str = request.node.name
    producer = ConfluentProducer(broker.bootstrap, name)
    producer.begin()
    producer.send(topic, b"open")
    yield name
    producer.abort()


def run(broker: RunningBroker, *words: str) -> Outcome:
    return in_process("transaction", *words, bootstrap=broker.bootstrap)


def consumed(broker: RunningBroker, *words: str) -> list[bytes]:
    outcome = in_process("consume", "t", *words, bootstrap=broker.bootstrap)
    assert outcome.exit_code == ExitCode.OK, outcome.stderr
    return outcome.lines


def test_transactions_are_listed_by_state_producer_age_and_name(
    broker: RunningBroker, topic: str, open_one: str
) -> None:
    ended = ConfluentProducer(broker.bootstrap, "ended")
    ended.begin()
    ended.send(topic, b"ended")
    ended.commit()
    listed = {row["transactional_id"]: row for row in run(broker, "list", "--json").json}
    assert listed[open_one]["state"] == "Ongoing"
    assert listed[open_one]["coordinator"] == 1
    wait_until(
        lambda: names(run(broker, "list", "--state", "completecommit", "--json")) == ["ended"], 30, "the markers"
    )
    del ended
    assert names(run(broker, "list", "--state", "ongoing", "--state", "empty", "--json")) == [open_one]
    of_producer = run(broker, "list", "--producer-id", str(listed["ended"]["producer_id"]), "--json")
    assert names(of_producer) == ["ended"]
    assert names(run(broker, "list", "--duration", "3600000", "--json")) == []
    assert names(run(broker, "list", "--transactional-id-pattern", "end.*", "--json")) == ["ended"]
    assert "TRANSACTIONAL ID" in run(broker, "list").text
    assert "No transactional id was found." in run(broker, "list", "--state", "Dead").stderr


def names(listed: Outcome) -> list[str]:
    return [row["transactional_id"] for row in listed.json]


def test_a_pattern_that_is_none_is_named(broker: RunningBroker) -> None:
    refused = run(broker, "list", "--transactional-id-pattern", "(")
    assert refused.exit_code == ExitCode.USAGE
    assert "is not a regular expression" in refused.stderr


def test_an_open_transaction_is_described_with_its_partitions(broker: RunningBroker, open_one: str) -> None:
    (described,) = run(broker, "describe", open_one, "--json").json
    assert (described["state"], described["coordinator"]) == ("Ongoing", 1)
    assert described["partitions"] == [{"topic": "t", "partition": 0}]
    assert 0 <= described["age_ms"] < described["timeout_ms"]
    text = run(broker, "describe", open_one).text
    assert f"{open_one}: Ongoing" in text
    assert "open since" in text


def test_an_unknown_transactional_id_is_named_with_what_to_do(broker: RunningBroker) -> None:
    refused = run(broker, "describe", "none")
    assert refused.exit_code == ExitCode.FAILED
    assert "cordwood transaction list" in refused.stderr


def test_the_producers_of_a_partition_are_shown_with_what_they_have_open(broker: RunningBroker, open_one: str) -> None:
    (described,) = run(broker, "describe", open_one, "--json").json
    producers = run(broker, "describe-producers", "--topic", "t", "--partition", "0", "--json").json
    (found,) = (row for row in producers if row["producer_id"] == described["producer_id"])
    assert found["transaction_start_offset"] == 1
    assert found["coordinator_epoch"] is None
    assert "OPEN FROM" in run(broker, "describe-producers", "-t", "t", "-p", "0").text


@pytest.mark.parametrize(
    ("words", "said", "exit_code"),
    [
        (["describe-producers", "-t", "none", "-p", "0"], "there is no topic 'none'", ExitCode.FAILED),
        (["describe-producers", "-t", "t", "-p", "7"], "t has partitions 0 to 0", ExitCode.USAGE),
        (["describe-producers", "-t", "t", "-p", "0", "--broker", "9"], "broker 9 is not there", ExitCode.FAILED),
        (["find-hanging", "--broker", "9"], "broker 9 is not there", ExitCode.FAILED),
        (["find-hanging", "-t", "none"], "there is no topic 'none'", ExitCode.FAILED),
        (["find-hanging", "-t", "t", "-p", "7"], "t has partitions 0 to 0", ExitCode.USAGE),
        (["abort", "-t", "t", "-p", "0", "--start-offset", "0"], "describe-producers --topic t", ExitCode.FAILED),
        (["abort", "-t", "t", "-p", "0", "--producer-id", "5"], "describe-producers --topic t", ExitCode.FAILED),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
@pytest.mark.usefixtures("topic")
def test_what_is_not_there_is_named(broker: RunningBroker, words: list[str], said: str, exit_code: ExitCode) -> None:
    refused = run(broker, *words)
    assert (refused.exit_code, said in refused.stderr) == (exit_code, True), refused.stderr


@pytest.mark.usefixtures("open_one")
def test_an_isolation_level_bounds_what_is_consumed(broker: RunningBroker) -> None:
    assert consumed(broker) == [b"before"]
    assert consumed(broker, "--isolation", "read_uncommitted") == [b"before", b"open"]


def test_a_hanging_transaction_is_found_and_aborted(broker: RunningBroker, topic: str) -> None:
    start = leave_hanging(broker, topic)
    cordwood("produce", topic, stdin=b"after\n", bootstrap=broker.bootstrap)
    assert consumed(broker) == [b"before"]
    assert run(broker, "find-hanging", "--json").json == [], "it may have been open for less than 15 minutes"
    now = ["find-hanging", "--max-transaction-timeout", "0"]
    (found,) = run(broker, *now, "--topic", topic, "--json").json
    assert (found["partition"], found["producer_id"], found["start_offset"]) == (0, PRODUCER, start)
    assert found["reason"] == "no coordinator has the producer"
    assert str(PRODUCER) in run(broker, *now).text
    assert len(run(broker, *now, "--broker", "1", "--json").json) == 1
    aborted = run(broker, "abort", "-t", topic, "-p", "0", "--start-offset", str(start))
    assert (aborted.exit_code, str(PRODUCER) in aborted.text) == (ExitCode.OK, True), aborted.stderr
    assert run(broker, *now, "--json").json == []
    assert consumed(broker) == [b"before", b"after"]


def test_a_transaction_that_ends_by_itself_is_aborted_only_by_force(broker: RunningBroker, open_one: str) -> None:
    abort = ["abort", "-t", "t", "-p", "0", "--start-offset", "1"]
    refused = run(broker, *abort)
    assert refused.exit_code == ExitCode.FAILED
    assert f"'{open_one}' is Ongoing" in refused.stderr
    assert consumed(broker) == [b"before"]
    assert run(broker, "find-hanging", "--json").json == []
    forced = run(broker, *abort, "--force", "--json").json
    assert (forced["topic"], forced["start_offset"], forced["coordinator_epoch"]) == ("t", 1, 0)
    assert run(broker, *abort, "--force").exit_code == ExitCode.FAILED, "it is over"
