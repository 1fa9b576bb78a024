"""`cordwood group` against a broker."""

import time
from typing import Any

import pytest
from broker_fixture import RunningBroker, wait_until
from command import cordwood, in_process, start_cordwood
from confluent_kafka import Consumer, Producer, ShareConsumer

from cordwood.cluster.cli.exits import ExitCode


@pytest.fixture
def group(broker: RunningBroker, request: pytest.FixtureRequest) -> str:
    """Return a group of the test's own that has read the five records of topic t."""
    name: str = request.node.name
    in_process("topic", "create", "t", bootstrap=broker.bootstrap)
    cordwood("produce", "t", stdin=b"a\nb\nc\nd\ne\n", bootstrap=broker.bootstrap)
    assert len(cordwood("consume", "t", "--group", name, bootstrap=broker.bootstrap).lines) == 5
    return name


def committed(broker: RunningBroker, group: str) -> list[int]:
    described = in_process("group", "describe", group, "--json", bootstrap=broker.bootstrap).json
    return [partition["committed"] for partition in described["partitions"]]


def test_groups_are_listed_and_described_with_their_lag(broker: RunningBroker, group: str) -> None:
    listed = in_process("group", "list", "--json", bootstrap=broker.bootstrap).json
    assert [found["group"] for found in listed].count(group) == 1
    cordwood("produce", "t", stdin=b"f\ng\n", bootstrap=broker.bootstrap)
    described = in_process("group", "describe", group, "--json", bootstrap=broker.bootstrap).json
    assert (described["state"], described["members"]) == ("empty", [])
    assert described["partitions"] == [
        {"topic": "t", "partition": 0, "committed": 5, "end": 7, "lag": 2, "member": None}
    ]
    assert "LAG" in in_process("group", "describe", group, bootstrap=broker.bootstrap).text


def test_a_lag_counts_records_of_open_transactions(broker: RunningBroker, group: str) -> None:
    """A consumer with read_uncommitted may have read them, and has no negative lag. Kafka's tool shows the same."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": group})
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce("t", b"open")
    producer.flush(20)
    (row,) = in_process("group", "describe", group, "--json", bootstrap=broker.bootstrap).json["partitions"]
    assert (row["committed"], row["end"], row["lag"]) == (5, 6, 1)
    producer.abort_transaction(20)


def test_a_reset_is_only_shown_until_it_is_executed(broker: RunningBroker, group: str) -> None:
    shown = in_process("group", "reset", group, "--to", "earliest", "--json", bootstrap=broker.bootstrap)
    assert shown.json == {
        "group": group,
        "executed": False,
        "partitions": [{"topic": "t", "partition": 0, "committed": 5, "new": 0}],
    }
    assert committed(broker, group) == [5]
    moved = in_process("group", "reset", group, "--to", "3", "--execute", bootstrap=broker.bootstrap)
    assert moved.exit_code == ExitCode.OK, moved.stderr
    assert committed(broker, group) == [3]
    assert cordwood("consume", "t", "--group", group, bootstrap=broker.bootstrap).lines == [b"d", b"e"]


@pytest.mark.usefixtures("group")
def test_a_new_group_may_be_given_a_place_to_begin(broker: RunningBroker) -> None:
    nothing = in_process("group", "reset", "new", "--to", "latest", bootstrap=broker.bootstrap)
    assert nothing.exit_code == ExitCode.FAILED
    assert "--topic" in nothing.stderr
    placed = in_process(
        "group", "reset", "new", "--to", "latest", "--topic", "t", "--execute", bootstrap=broker.bootstrap
    )
    assert placed.exit_code == ExitCode.OK, placed.stderr
    assert committed(broker, "new") == [5]


def test_running_members_are_shown_and_are_not_reset_under(broker: RunningBroker, group: str) -> None:
    member = start_cordwood("consume", "t", "--group", group, "--follow", bootstrap=broker.bootstrap)
    try:

        def owner() -> str | None:
            described = in_process("group", "describe", group, "--json", bootstrap=broker.bootstrap).json
            name: str | None = described["partitions"][0]["member"]
            return name

        wait_until(lambda: owner() is not None, 30, "the member to have its partition")
        refused = in_process("group", "reset", group, "--to", "earliest", "--execute", bootstrap=broker.bootstrap)
        assert refused.exit_code == ExitCode.FAILED
        assert "stop them, then reset it" in refused.stderr
    finally:
        member.terminate()
        member.communicate(timeout=30)


def test_an_unknown_group_is_named_with_what_to_do(broker: RunningBroker) -> None:
    outcome = in_process("group", "describe", "none", bootstrap=broker.bootstrap)
    assert outcome.exit_code == ExitCode.FAILED
    assert "cordwood group list" in outcome.stderr


def test_groups_are_listed_by_type(broker: RunningBroker, group: str) -> None:
    def listed(*options: str) -> list[str]:
        rows = in_process("group", "list", "--json", *options, bootstrap=broker.bootstrap).json
        return [row["type"] for row in rows if row["group"] == group]

    assert listed() == listed("--type", "classic") == ["classic"]
    assert listed("--type", "share") == []
    wrong = in_process("group", "list", "--type", "streams", bootstrap=broker.bootstrap)
    assert wrong.exit_code == ExitCode.USAGE
    assert "classic, consumer or share" in wrong.stderr


def test_a_deleted_group_is_gone(broker: RunningBroker, group: str) -> None:
    bootstrap = broker.bootstrap
    offsets = in_process("group", "delete", group, "--topic", "t", "--yes", bootstrap=bootstrap)
    assert offsets.text.strip() == f"{group}: offsets deleted", offsets.stderr
    in_process("group", "reset", group, "--to", "2", "--topic", "t", "--execute", bootstrap=bootstrap)
    assert committed(broker, group) == [2]
    assert in_process("group", "delete", group, "--yes", bootstrap=bootstrap).text.strip() == f"{group}: deleted"
    assert in_process("group", "describe", group, bootstrap=bootstrap).exit_code == ExitCode.FAILED
    again = in_process("group", "delete", group, "--yes", bootstrap=bootstrap)
    assert again.exit_code == ExitCode.FAILED
    assert "cordwood group list" in again.stderr
    assert in_process("group", "delete", group, "--yes", "--if-exists", bootstrap=bootstrap).exit_code == ExitCode.OK


def test_configs_of_a_group_are_shown_and_changed(broker: RunningBroker) -> None:
    key, bootstrap = "share.record.lock.duration.ms", broker.bootstrap

    def lock(*options: str) -> tuple[str, str]:
        outcome = in_process("group", "config", "workers", "--json", *options, bootstrap=bootstrap)
        (row,) = [row for row in outcome.json if row["key"] == key]
        return row["value"], row["source"]

    default = lock()
    assert lock("--config", f"{key}=45000") == ("45000", "dynamic_group_config")
    assert lock("--unset", key) == default
    refused = in_process("group", "config", "workers", "--config", f"{key}=soon", bootstrap=bootstrap)
    assert refused.exit_code == ExitCode.FAILED
    wrong = in_process("group", "config", "workers", "--config", "soon", bootstrap=bootstrap)
    assert wrong.exit_code == ExitCode.USAGE
    assert "give key=value" in wrong.stderr


def test_a_group_of_the_consumer_protocol_is_shown_with_epochs_and_targets(broker: RunningBroker) -> None:
    name, bootstrap = "of-the-new-kind", broker.bootstrap
    in_process("topic", "create", "two", "--partitions", "2", bootstrap=bootstrap)
    # With one key they are in one partition: a reset moves only what the group has read.
    cordwood("produce", "two", "-K", ":", stdin=b"k:a\nk:b\nk:c\n", bootstrap=bootstrap)
    settings = {"bootstrap.servers": bootstrap, "group.id": name, "group.protocol": "consumer"}
    consumer = Consumer({**settings, "auto.offset.reset": "earliest"})
    consumer.subscribe(["two"])
    try:
        wait_until(lambda: consumer.poll(0.2) is not None, 30, "a record")
        consumer.commit(asynchronous=False)
        described = in_process("group", "describe", name, "--json", bootstrap=bootstrap).json
        assert (described["type"], described["state"], described["assignor"]) == ("consumer", "stable", "uniform")
        assert described["group_epoch"] == described["assignment_epoch"] > 0
        (member,) = described["members"]
        assert (member["epoch"], member["topics"]) == (described["group_epoch"], ["two"])
        for row in described["partitions"]:
            assert (row["member"], row["target"]) == (member["member"], member["member"])
        assert (
            "consumer group, stable, 1 member, epoch" in in_process("group", "describe", name, bootstrap=bootstrap).text
        )
        refused = in_process("group", "reset", name, "--to", "latest", "--execute", bootstrap=bootstrap)
        assert "stop them, then reset it" in refused.stderr
        assert "stop them" in in_process("group", "delete", name, "--yes", bootstrap=bootstrap).stderr
    finally:
        consumer.close()
    moved = in_process("group", "reset", name, "--to", "latest", "--execute", bootstrap=bootstrap)
    assert moved.exit_code == ExitCode.OK, moved.stderr
    assert sum(committed(broker, name)) == 3
    assert in_process("group", "delete", name, "--yes", bootstrap=bootstrap).exit_code == ExitCode.OK


def test_a_share_group_is_shown_reset_and_deleted(broker: RunningBroker) -> None:
    name, topic, bootstrap = "sharers", "shared", broker.bootstrap
    in_process("topic", "create", topic, "--partitions", "1", bootstrap=bootstrap)
    configured = in_process(
        "group", "config", name, "--config", "share.auto.offset.reset=earliest", bootstrap=bootstrap
    )
    assert configured.exit_code == ExitCode.OK, configured.stderr
    cordwood("produce", topic, stdin=b"a\nb\nc\n", bootstrap=bootstrap)

    def described() -> Any:
        return in_process("group", "describe", name, "--json", bootstrap=bootstrap).json

    def read() -> list[bytes]:
        """Read as a share consumer until there is a record, and acknowledge all."""
        consumer, found = ShareConsumer({"bootstrap.servers": bootstrap, "group.id": name}), list[bytes]()
        consumer.subscribe([topic])
        try:
            deadline = time.monotonic() + 30
            while len(found) < 3 and time.monotonic() < deadline:
                found += [message.value() for message in consumer.poll(0.5) or []]
            assert described()["members"][0]["topics"] == [topic]
            refused = in_process("group", "reset", name, "--to", "earliest", "--execute", bootstrap=bootstrap)
            assert "stop them, then reset it" in refused.stderr
            consumer.commit_sync()
        finally:
            consumer.close()
        return found

    assert read() == [b"a", b"b", b"c"]
    wait_until(lambda: described()["partitions"][0]["start"] == 3, 30, "the start offset to move")
    assert (described()["type"], described()["state"], described()["partitions"][0]["lag"]) == ("share", "empty", 0)
    listed = in_process("group", "list", "--type", "share", "--json", bootstrap=bootstrap).json
    assert [row["group"] for row in listed] == [name]
    shown = in_process("group", "reset", name, "--to", "earliest", "--json", bootstrap=bootstrap).json
    assert shown["partitions"] == [{"topic": topic, "partition": 0, "committed": 3, "new": 0}]
    moved = in_process("group", "reset", name, "--to", "earliest", "--execute", bootstrap=bootstrap)
    assert moved.exit_code == ExitCode.OK, moved.stderr
    assert read() == [b"a", b"b", b"c"]
    offsets = in_process("group", "delete", name, "--topic", topic, "--yes", bootstrap=bootstrap)
    assert offsets.exit_code == ExitCode.OK, offsets.stderr
    assert described()["partitions"] == []
    assert in_process("group", "delete", name, "--yes", bootstrap=bootstrap).exit_code == ExitCode.OK
    assert "there is no group" in in_process("group", "describe", name, bootstrap=bootstrap).stderr
