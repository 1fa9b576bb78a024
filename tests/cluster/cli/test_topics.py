"""`cordwood topic` against a broker."""

import pytest
from broker_fixture import RunningBroker
from command import cordwood, in_process

from cordwood.cluster.cli.exits import ExitCode


def test_a_topic_is_created_listed_described_altered_and_deleted(broker: RunningBroker) -> None:
    made = in_process("topic", "create", "orders", "-p", "3", "-c", "retention.ms=60000", bootstrap=broker.bootstrap)
    assert (made.exit_code, made.text) == (ExitCode.OK, "orders: created\n")

    listed = in_process("topic", "list", "--json", bootstrap=broker.bootstrap).json
    assert listed == [{"name": "orders", "partitions": 3, "replication_factor": 1, "without_leader": 0}]

    altered = in_process(
        "topic", "alter", "orders", "-p", "4", "-c", "flush.policy=os", "--unset", "retention.ms",
        bootstrap=broker.bootstrap,
    )  # fmt: skip
    assert altered.exit_code == ExitCode.OK, altered.stderr
    [topic] = in_process("topic", "describe", "orders", "--json", bootstrap=broker.bootstrap).json
    assert [partition["partition"] for partition in topic["partitions"]] == [0, 1, 2, 3]
    assert all(partition["leader"] in partition["isr"] for partition in topic["partitions"])
    assert {key: config["value"] for key, config in topic["configs"].items()} == {"flush.policy": "os"}

    deleted = in_process("topic", "delete", "orders", bootstrap=broker.bootstrap)
    assert (deleted.exit_code, deleted.text) == (ExitCode.OK, "orders: deleted\n")
    assert in_process("topic", "list", "--json", bootstrap=broker.bootstrap).json == []


def test_describe_says_in_words_what_an_acknowledgement_is_worth(broker: RunningBroker) -> None:
    in_process("topic", "create", "safe", bootstrap=broker.bootstrap)
    in_process("topic", "create", "quick", "-c", "flush.policy=os", bootstrap=broker.bootstrap)
    safe = in_process("topic", "describe", "safe", bootstrap=broker.bootstrap).text
    assert "acknowledged records are on disk (fdatasync) before the ack" in safe
    quick = in_process("topic", "describe", "quick", bootstrap=broker.bootstrap).text
    assert "acknowledged records may be lost in a power cut" in quick


def test_offsets_are_those_of_the_log(broker: RunningBroker) -> None:
    in_process("topic", "create", "t", bootstrap=broker.bootstrap)
    cordwood("produce", "t", stdin=b"a\nb\nc\n", bootstrap=broker.bootstrap)
    [topic] = in_process("topic", "describe", "t", "--json", bootstrap=broker.bootstrap).json
    assert [(partition["start"], partition["end"]) for partition in topic["partitions"]] == [(0, 3)]


def test_what_is_there_already_is_refused_unless_that_is_fine(broker: RunningBroker) -> None:
    in_process("topic", "create", "t", bootstrap=broker.bootstrap)
    again = in_process("topic", "create", "t", bootstrap=broker.bootstrap)
    assert again.exit_code == ExitCode.FAILED
    assert "exists" in again.stderr
    fine = in_process("topic", "create", "t", "--if-not-exists", "--json", bootstrap=broker.bootstrap)
    assert fine.json == [{"name": "t", "ok": True, "result": "exists"}]


def test_what_is_not_there_is_named_with_what_to_do(broker: RunningBroker) -> None:
    for words in (["describe", "none"], ["alter", "none", "-p", "3"], ["alter", "none", "-c", "retention.ms=1"]):
        outcome = in_process("topic", *words, bootstrap=broker.bootstrap)
        assert outcome.exit_code == ExitCode.FAILED
        assert "cordwood topic create none" in outcome.stderr
    assert in_process("topic", "delete", "none", bootstrap=broker.bootstrap).exit_code == ExitCode.FAILED
    assert in_process("topic", "delete", "none", "--if-exists", bootstrap=broker.bootstrap).exit_code == ExitCode.OK


def test_the_brokers_refusals_come_through(broker: RunningBroker) -> None:
    for words in (["create", "bad/name"], ["create", "t", "-c", "retention.ms=soon"], ["create", "t", "-r", "3"]):
        outcome = in_process("topic", *words, bootstrap=broker.bootstrap)
        assert outcome.exit_code == ExitCode.FAILED, words
        assert outcome.stderr.startswith("cordwood: "), outcome.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["topic", "describe", "orders:9"],
        ["consume", "orders:9"],
        ["produce", "orders:9"],
        ["partition", "elect", "orders:9"],
        ["group", "reset", "g", "--topic", "orders:9", "--to", "earliest"],
    ],
    ids=" ".join,
)
def test_an_invalid_name_of_a_topic_is_reported_with_the_rule_for_names(
    words: list[str], broker: RunningBroker
) -> None:
    outcome = in_process(*words, bootstrap=broker.bootstrap)
    assert outcome.exit_code == ExitCode.FAILED
    assert "a topic's name is 1 to 249 of a-z, A-Z, 0-9" in outcome.stderr


def test_a_missing_topic_is_named_once_and_quoted_for_the_shell(broker: RunningBroker) -> None:
    deleted = in_process("topic", "delete", "my topic", bootstrap=broker.bootstrap)
    assert deleted.stderr == "cordwood: my topic: there is no such topic: see `cordwood topic list`\n"
    altered = in_process("topic", "alter", "my topic", "-p", "2", bootstrap=broker.bootstrap)
    assert "`cordwood topic create 'my topic'`" in altered.stderr
