"""`cordwood cut`: a cut is created, shown and dropped, and keeps its records meanwhile."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from broker_fixture import RunningBroker, wait_until
from command import Outcome, cordwood, in_process
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from transactional_clients import ConfluentProducer

from cordwood.archive.cuts import decode_cut
from cordwood.cluster.cli.exits import ExitCode

WRITTEN_S = 30.0


@pytest.fixture
def cuts(broker: RunningBroker) -> Iterator[RunningBroker]:
    """Yield the file's broker with a topic of three records, and drop all cuts afterwards."""
    in_process("topic", "create", "orders", bootstrap=broker.bootstrap)
    cordwood("produce", "orders", stdin=b"a\nb\nc\n", bootstrap=broker.bootstrap)
    yield broker
    for cut in run(broker, "list", "--json").json:
        run(broker, "drop", cut["name"])


def run(broker: RunningBroker, *words: str) -> Outcome:
    return in_process("cut", *words, bootstrap=broker.bootstrap)


def delete_records(broker: RunningBroker, before: int) -> str:
    """Delete records of the topic. Return the name of the error, or an empty string."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    (deleted,) = admin.delete_records([TopicPartition("orders", 0, before)]).values()
    try:
        deleted.result(15)
    except KafkaException as refused:
        return str(refused.args[0].name())
    return ""


def test_a_cut_has_the_offsets_of_its_moment(cuts: RunningBroker) -> None:
    assert run(cuts, "create", "monday", "orders").text == "monday: created, 3 offsets\n"
    cordwood("produce", "orders", stdin=b"d\n", bootstrap=cuts.bootstrap)
    shown = run(cuts, "show", "monday", "--json").json
    assert shown["partitions"] == [{"topic": "orders", "partition": 0, "start": 0, "end": 3}]
    assert shown["expires"] is None
    [listed] = run(cuts, "list", "--json").json
    assert (listed["name"], listed["topics"], listed["offsets"], listed["expires"]) == (
        "monday",
        ["orders"],
        3,
        "never",
    )
    assert run(cuts, "drop", "monday").text == "monday: dropped\n"
    assert run(cuts, "show", "monday").exit_code == ExitCode.FAILED
    assert run(cuts, "drop", "monday", "--if-exists").text == "monday: missing\n"


def test_a_cut_ends_where_a_transaction_is_open(cuts: RunningBroker) -> None:
    producer = ConfluentProducer(cuts.bootstrap, "open")
    producer.begin()
    producer.send("orders", b"undecided")
    cordwood("produce", "orders", stdin=b"after\n", bootstrap=cuts.bootstrap)
    run(cuts, "create", "monday", "orders")
    producer.commit()
    run(cuts, "create", "tuesday", "orders")
    ends = [run(cuts, "show", name, "--json").json["partitions"][0]["end"] for name in ("monday", "tuesday")]
    assert ends == [3, 6]


def test_pinned_records_are_not_deleted(cuts: RunningBroker) -> None:
    assert delete_records(cuts, 1) == ""
    run(cuts, "create", "monday", "orders")
    assert run(cuts, "show", "monday", "--json").json["partitions"][0]["start"] == 1
    assert delete_records(cuts, 2) == "POLICY_VIOLATION"
    assert delete_records(cuts, 1) == ""
    refused = in_process("topic", "delete", "orders", bootstrap=cuts.bootstrap)
    assert refused.exit_code == ExitCode.FAILED
    assert "cordwood cut list" in refused.stderr
    run(cuts, "drop", "monday")
    assert delete_records(cuts, 2) == ""


def test_a_name_is_there_once_and_topics_exist(cuts: RunningBroker) -> None:
    run(cuts, "create", "monday", "orders", "--lifetime", "1h")
    assert run(cuts, "list", "--json").json[0]["expires"] != "never"
    for words, reason in (
        (("monday", "orders"), "exists"),
        (("tuesday", "nowhere"), "nowhere"),
        (("a/b", "orders"), "name of a cut"),
        (("tuesday", "__consumer_offsets"), "internal"),
    ):
        refused = run(cuts, "create", *words)
        assert (refused.exit_code, reason in refused.stderr) == (ExitCode.FAILED, True)
    assert run(cuts, "create", "tuesday", "orders", "--lifetime", "soon").exit_code == ExitCode.USAGE


def test_a_cut_is_in_the_archive_too(tmp_path: Path) -> None:
    broker = RunningBroker(tmp_path / "data", archive_url=f"file://{tmp_path}/archive").start()
    try:
        in_process("topic", "create", "orders", bootstrap=broker.bootstrap)
        run(broker, "create", "monday", "orders")
        wait_until(lambda: len(objects(tmp_path)) == 1, WRITTEN_S, "the object of the cut")
        (path,) = objects(tmp_path)
        assert decode_cut(path.read_bytes()).name == "monday"
        run(broker, "drop", "monday")
        wait_until(lambda: not objects(tmp_path), WRITTEN_S, "its end")
    finally:
        broker.stop()


def objects(place: Path) -> list[Path]:
    return list(place.glob("archive/cuts/*/*.json"))
