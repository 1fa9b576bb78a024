"""Transactions over HTTP: lists and descriptions of transactional ids, and transaction markers among records."""

import pytest
from broker_fixture import RunningBroker, wait_until
from http_client import HttpClient, quoted
from transactional_clients import ConfluentProducer

OPEN = "state=Ongoing&state=PrepareCommit&state=PrepareAbort"


def begun(served: RunningBroker, transactional_id: str, topic: str, value: bytes) -> ConfluentProducer:
    """Return a producer with an open transaction that has written a record."""
    producer = ConfluentProducer(served.bootstrap, transactional_id)
    producer.begin()
    producer.send(topic, value)
    return producer


def listed(api: HttpClient, query: str = "") -> list[str]:
    answer = api.get(f"/v1/transactions?{query}")
    assert answer.status == 200, answer.content
    assert answer.json["unanswered_by"] == []
    return [row["transactional_id"] for row in answer.json["transactions"]]


def test_the_oldest_open_transaction_comes_first(api: HttpClient, served: RunningBroker) -> None:
    api.make_topic("orders")
    ended = begun(served, "order-a", "orders", b"a")
    ended.commit()
    older = begun(served, "order-z", "orders", b"b")
    younger = begun(served, "order-m", "orders", b"c")
    mine = "pattern=order-.%2B"
    wait_until(lambda: listed(api, f"{mine}&state=CompleteCommit") == ["order-a"], 30, "the markers")
    assert listed(api, mine) == ["order-z", "order-m", "order-a"]
    assert listed(api, f"{mine}&{OPEN}") == ["order-z", "order-m"]
    assert listed(api, "open_longer_than_ms=3600000") == []
    rows = api.get(f"/v1/transactions?{mine}&limit=1").json
    assert ([row["transactional_id"] for row in rows["transactions"]], rows["total"]) == (["order-z"], 3)
    (row,) = rows["transactions"]
    assert (row["state"], row["coordinator"]) == ("Ongoing", 1)
    assert row["open_for_ms"] >= 0
    assert listed(api, f"producer_id={row['producer_id']}") == ["order-z"]
    older.abort()
    younger.abort()


@pytest.mark.parametrize(
    ("query", "status", "word"),
    [
        ("state=Open", 400, "Open"),
        ("pattern=(", 400, "RE2"),
        ("limit=0", 400, "limit"),
        ("limit=10001", 400, "limit"),
        ("producer_id=-1", 400, "producer_id"),
        ("open_longer_than_ms=9223372036854775808", 400, "9223372036854775807"),
    ],
)
def test_a_list_with_an_impossible_condition_is_refused(api: HttpClient, query: str, status: int, word: str) -> None:
    api.get(f"/v1/transactions?{query}").refused(status, word)


def test_a_transactional_id_is_described_with_its_open_transaction(api: HttpClient, served: RunningBroker) -> None:
    api.make_topic("paid")
    name = "pay/ments 1"
    producer = begun(served, name, "paid", b"a")
    found = api.get(f"/v1/transactions/{quoted(name)}").json
    assert (found["transactional_id"], found["state"], found["coordinator"]) == (name, "Ongoing", 1)
    assert found["partitions"] == [{"topic": "paid", "partition": 0}]
    assert 0 <= found["open_for_ms"] < found["timeout_ms"]
    producer.commit()
    wait_until(lambda: state(api, name) == "CompleteCommit", 30, "the markers")
    found = api.get(f"/v1/transactions/{quoted(name)}").json
    assert (found["start_ms"], found["open_for_ms"], found["partitions"]) == (None, None, [])
    api.get("/v1/transactions/none").refused(404, "does not exist")


def state(api: HttpClient, name: str) -> str:
    found: str = api.get(f"/v1/transactions/{quoted(name)}").json["state"]
    return found


def test_markers_are_read_if_they_are_asked_for(api: HttpClient, served: RunningBroker) -> None:
    api.make_topic("marked", partitions=1)
    producer = begun(served, "marking", "marked", b"a")
    producer.commit()
    producer.begin()
    producer.send("marked", b"b")
    producer.abort()
    api.write("marked", "c")
    wait_until(lambda: api.values("marked") == ["a", "c"], 30, "the markers")
    found = [(row["offset"], row.get("control", row.get("value"))) for row in api.read("marked", "markers=true")]
    assert found == [(0, "a"), (1, "commit"), (3, "abort"), (4, "c")]
    marker = api.read("marked", "markers=true")[1]
    assert marker.keys() == {"topic", "partition", "offset", "timestamp", "control", "producer_id", "producer_epoch"}
    everything = api.read("marked", "markers=true&isolation=read_uncommitted")
    assert [row["offset"] for row in everything] == [0, 1, 2, 3, 4]
    assert [row["offset"] for row in api.read("marked", "markers=true&from=3&limit=1")] == [3]
    assert all("control" not in row for row in api.read("marked"))
