"""A closed broker as its users meet it: passwords, rights on records, and streams that end with the right to them."""

from collections.abc import Iterator

import pytest
from closed_http_broker import ClosedBroker
from http_client import Following, HttpClient


@pytest.fixture
def topic(closed: ClosedBroker) -> Iterator[str]:
    """Yield a topic that alice may read and write."""
    closed.add_user("alice", "secret")
    for operation in ("CREATE", "READ", "WRITE"):
        closed.allow("alice", operation, "TOPIC", "orders")
    alice = closed.client("alice", "secret")
    if alice.get("/v1/topics/orders").status == 404:
        alice.make_topic("orders")
    yield "orders"
    closed.take_back("alice")


def test_a_password_is_checked(closed: ClosedBroker) -> None:
    closed.log_in("alice", "Secret").refused(401, "not correct")
    closed.log_in("nobody", "secret").refused(401, "not correct")
    assert closed.client("alice", "secret").get("/v1/session").json["principal"] == "User:alice"


def test_records_are_written_and_read_by_those_who_may(closed: ClosedBroker, topic: str) -> None:
    alice = closed.client("alice", "secret")
    offset = alice.write(topic, "a", "b")[0]["offset"]
    assert alice.values(topic, f"from={offset}") == ["a", "b"]
    closed.add_user("bob", "other")
    bob = closed.client("bob", "other")
    bob.post(f"/v1/topics/{topic}/records", {"records": [{"value": "x"}]}).refused(403, "WRITE", topic)
    bob.get(f"/v1/topics/{topic}/records").refused(403, "READ", topic)
    bob.post("/v1/topics", {"name": "bobs"}).refused(403)
    assert bob.get("/v1/topics").json["topics"] == []
    assert [row["name"] for row in alice.get("/v1/topics").json["topics"]] == [topic]


def test_requests_of_two_users_share_no_batch(closed: ClosedBroker, topic: str) -> None:
    alice = closed.client("alice", "secret")
    closed.add_user("bob", "other")
    closed.allow("bob", "WRITE", "TOPIC", topic)
    bob = closed.client("bob", "other")
    bob.write(topic, "of bob")
    closed.take_back("bob")
    bob.post(f"/v1/topics/{topic}/records", {"records": [{"value": "x"}]}).refused(403)
    alice.write(topic, "of alice")


def test_a_kafka_request_of_the_api_has_the_rights_of_its_user(closed: ClosedBroker, topic: str) -> None:
    alice = closed.client("alice", "secret")
    # The route's own check passes: ListOffsets and DescribeLogDirs decide about each broker's answer.
    (partition,) = alice.get(f"/v1/topics/{topic}/partitions").json["partitions"]
    assert partition["log_end"] is not None
    assert partition["replicas"][0]["size_bytes"] is None, "sizes need DESCRIBE on the cluster"
    closed.allow("alice", "DESCRIBE", "CLUSTER", "kafka-cluster")
    (partition,) = alice.get(f"/v1/topics/{topic}/partitions").json["partitions"]
    assert partition["replicas"][0]["size_bytes"] is not None


@pytest.mark.parametrize("how", ["logout", "password", "acl"])
def test_a_stream_ends_with_the_right_to_it(closed: ClosedBroker, topic: str, how: str) -> None:
    alice, writer = closed.client("alice", "secret"), HttpClient(closed.address)
    closed.add_user("writer", "w")
    closed.allow("writer", "WRITE", "TOPIC", topic)
    writer = closed.client("writer", "w")
    with Following(alice.address, f"/v1/topics/{topic}/records", alice.session) as stream:
        writer.write(topic, "before")
        assert stream.values(1) == ["before"]
        match how:
            case "logout":
                assert alice.post("/v1/logout", {}).status == 200
            case "password":
                closed.add_user("alice", "changed")
            case "acl":
                closed.take_back("alice")
        writer.write(topic, "after")
        event = stream.next()
        assert event.kind == "mistake"
        assert event.data["code"] in ("SASL_AUTHENTICATION_FAILED", "TOPIC_AUTHORIZATION_FAILED")
    closed.take_back("writer")


def test_a_new_password_counts_at_once(closed: ClosedBroker) -> None:
    closed.add_user("carol", "first")
    carol = closed.client("carol", "first")
    closed.add_user("carol", "second")
    carol.get("/v1/session").refused(401)
    closed.log_in("carol", "first").refused(401)
    assert closed.log_in("carol", "second").status == 200


def test_a_restart_ends_sessions_and_keeps_users(closed: ClosedBroker) -> None:
    alice = closed.client("alice", "secret")
    closed.broker.restart()
    alice.get("/v1/session").refused(401)
    assert closed.log_in("alice", "secret").status == 200
