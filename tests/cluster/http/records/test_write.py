"""Records produced over HTTP: partition, encoding, acknowledgement, and the idempotency key."""

import base64
import socket

import pytest
from broker_fixture import RunningBroker
from confluent_kafka import Message, Producer
from http_client import BYTES, JSON, HttpClient
from topics import values_of

from cordwood.chaos.live.flood.watch import resident_mb


def test_records_are_kept_in_their_order_and_kafka_clients_read_them(api: HttpClient, served: RunningBroker) -> None:
    api.make_topic("plain")
    assert api.write("plain", "a", "b", "ü") == [{"partition": 0, "offset": offset} for offset in range(3)]
    assert values_of(served.bootstrap, "plain", 0) == [b"a", b"b", "ü".encode()]


def test_a_key_goes_where_kafkas_clients_would_send_it(api: HttpClient, served: RunningBroker) -> None:
    api.make_topic("keyed", partitions=7)
    sent: dict[str, int] = {}

    def delivered(_error: object, message: Message) -> None:
        sent[message.key().decode()] = message.partition()

    producer = Producer({"bootstrap.servers": served.bootstrap, "partitioner": "murmur2"})
    for key in ("alice", "bob", "carol", "ü", "a long one, of more than sixty-four bytes, so that it is hashed anew"):
        producer.produce("keyed", "x", key, on_delivery=delivered)
    assert producer.flush(20) == 0
    assert {key: api.write("keyed", "x", key=key)[0]["partition"] for key in sent} == sent
    assert len(set(sent.values())) > 1


def test_all_parts_of_a_record_come_back(api: HttpClient) -> None:
    api.make_topic("whole", partitions=3)
    record = {"key": "k", "value": "v", "headers": {"h": "1", "none": None}, "partition": 2, "timestamp": 1500}
    assert api.post("/v1/topics/whole/records", {"records": [record]}).status == 200
    (read,) = api.read("whole")
    assert read == {
        "topic": "whole",
        "partition": 2,
        "offset": 0,
        "timestamp": 1500,
        "key": "k",
        "value": "v",
        "headers": [{"name": "h", "value": "1"}, {"name": "none", "value": None}],
    }


def test_values_are_text_json_or_base64(api: HttpClient, served: RunningBroker) -> None:
    api.make_topic("encoded")
    packed = base64.b64encode(b"\xff\x00").decode()
    for encoding, value in (("json", {"a": [1, None]}), ("base64", packed), ("json", None), ("text", None)):
        answer = api.post(f"/v1/topics/encoded/records?value_encoding={encoding}", {"records": [{"value": value}]})
        assert answer.status == 200, answer.content
    assert values_of(served.bootstrap, "encoded", 0) == [b'{"a": [1, null]}', b"\xff\x00", None, None]
    first, second, *_ = api.read("encoded", "value_encoding=json")
    assert (first["value"], second["value_base64"]) == ({"a": [1, None]}, packed)
    assert (
        api.read("encoded", "value_encoding=base64")[0]["value_base64"]
        == base64.b64encode(b'{"a": [1, null]}').decode()
    )


def test_a_body_of_bytes_is_one_record(api: HttpClient, served: RunningBroker) -> None:
    api.make_topic("bytes")
    for headers in ({"record_key": "k"}, {"record_key_base64": "aw=="}):
        assert api.post("/v1/topics/bytes/records", b"\x00\xff", content_type=BYTES, **headers).status == 200
    assert values_of(served.bootstrap, "bytes", 0) == [b"\x00\xff"] * 2
    assert [record["key"] for record in api.read("bytes")] == ["k", "k"]


@pytest.mark.parametrize("acks", ["all", "1"])
def test_acknowledged_records_have_offsets(api: HttpClient, acks: str) -> None:
    topic = api.make_topic(f"acks-{acks}")
    assert api.write(topic, "a", query=f"acks={acks}") == [{"partition": 0, "offset": 0}]


def test_without_acknowledgement_records_are_on_their_way(api: HttpClient) -> None:
    api.make_topic("unheard")
    answer = api.post("/v1/topics/unheard/records?acks=0", {"records": [{"value": "a"}]})
    assert (answer.status, answer.json) == (202, {"records": [{"partition": 0, "offset": None}]})
    # A later request on the same path is appended after the unacknowledged one.
    api.write("unheard", "b", query="acks=1")
    assert sorted(api.values("unheard")) == ["a", "b"]


def test_a_request_that_is_sent_again_with_its_key_counts_once(api: HttpClient, served: RunningBroker) -> None:
    api.make_topic("once", partitions=3)
    first = api.write("once", "a", "b", idempotency_key="order-17")
    assert api.write("once", "a", "b", idempotency_key="order-17") == first
    served.restart()
    assert api.write("once", "a", "b", idempotency_key="order-17") == first
    assert sorted(api.values("once")) == ["a", "b"]
    assert api.write("once", "a", "b", idempotency_key="order-18") != first


def test_a_key_belongs_to_one_request(api: HttpClient) -> None:
    api.make_topic("mixed")
    api.write("mixed", "a", idempotency_key="k")
    other = {"records": [{"value": "b"}]}
    api.post("/v1/topics/mixed/records", other, idempotency_key="k").refused(422, "used for another request")
    api.post("/v1/topics/mixed/records", other, idempotency_key="x" * 256).refused(400, "255")
    assert api.values("mixed") == ["a"]


@pytest.mark.parametrize(
    ("content", "status", "word"),
    [
        (b"", 400, "not JSON"),
        (b"{", 400, "not JSON"),
        (b"\xff", 400, "not JSON"),
        (b'{"records":' + b"[" * 100_000, 422, "$.records"),
        (b'{"records": []}', 422, "1 to 10000"),
        (b'{"records": [' + b",".join([b'{"value":""}'] * 10_001) + b"]}", 422, "1 to 10000"),
        (b'{"records": [{}]}', 422, "value"),
        (b'{"records": [{"value": 1}]}', 422, "$.records[0].value"),
        (b'{"records": [{"value": "\\ud800"}]}', 400, "not JSON"),
        (b'{"records": [{"value": "", "partition": 1}]}', 404, "partitions 0 to 0"),
        (b'{"records": [{"value": "", "partition": -1}]}', 422, "partition"),
        (b'{"records": [{"value": "", "timestamp": 1e30}]}', 422, "timestamp"),
        (b'{"records": [{"value": "", "topic": "x"}]}', 422, "topic"),
    ],
)
def test_what_are_no_records_is_refused_with_a_reason(api: HttpClient, content: bytes, status: int, word: str) -> None:
    if api.get("/v1/topics/sound").status == 404:
        api.make_topic("sound")
    api.post("/v1/topics/sound/records", content, content_type=JSON).refused(status, word)
    assert api.read("sound") == []


def test_json_that_is_kept_as_it_is_written_is_looked_at_all_the_same(api: HttpClient) -> None:
    api.make_topic("raw")
    path = "/v1/topics/raw/records?value_encoding=json"
    for content in (b'{"records":[{"value":"\xff"}]}', b'{"records":[{"value":' + b"[" * 100_000):
        api.post(path, content, content_type=JSON).refused(400)
    assert api.read("raw") == []


def test_a_batch_that_is_too_large_harms_no_other_request(api: HttpClient) -> None:
    api.make_topic("small", configs={"max.message.bytes": 1000})
    api.post("/v1/topics/small/records", {"records": [{"value": "x" * 2000}]}).refused(413, "max.message.bytes")
    assert api.write("small", "x" * 500) == [{"partition": 0, "offset": 0}]


def test_a_body_that_is_too_large_is_refused(api: HttpClient) -> None:
    api.make_topic("huge")
    api.post("/v1/topics/huge/records", b"x" * (9 << 20), content_type=BYTES).refused(413, "larger than")


def test_bodies_that_are_announced_and_do_not_come_take_no_room(api: HttpClient) -> None:
    api.make_topic("patient")
    host, _, port = api.address.partition(":")
    hanging = [socket.create_connection((host, int(port))) for _ in range(32)]
    for connection in hanging:
        connection.sendall(
            b"POST /v1/topics/patient/records HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            b"Content-Type: application/json\r\nContent-Length: 8000000\r\n\r\n{"
        )
    assert api.write("patient", "a") == [{"partition": 0, "offset": 0}]
    for connection in hanging:
        connection.close()


def test_an_internal_topic_is_written_by_no_client(api: HttpClient) -> None:
    api.make_topic("mine")
    api.post("/v1/groups/any/reset", {"to": "latest", "topics": ["mine"]})
    api.post("/v1/topics/__consumer_offsets/records", {"records": [{"value": ""}]}).refused(400, "internal")
    api.post("/v1/topics/nowhere/records", {"records": [{"value": ""}]}).refused(404, "nowhere")


def test_some_records_may_be_kept_where_others_are_not(api: HttpClient) -> None:
    api.make_topic("both", partitions=2, configs={"max.message.bytes": 1000})
    records = [{"value": "x", "partition": 0}, {"value": "x" * 2000, "partition": 1}]
    answer = api.post("/v1/topics/both/records", {"records": records})
    answer.refused(413, "1 of 2 records")
    kept, lost = answer.json["records"]
    assert kept == {"partition": 0, "offset": 0}
    assert (lost["offset"], lost["code"]) == (None, "MESSAGE_TOO_LARGE")


def test_records_that_are_refused_leave_no_memory_behind(api: HttpClient, served: RunningBroker) -> None:
    api.make_topic("narrow")
    body = {"records": [{"value": "x" * (7 << 20)}]}
    api.post("/v1/topics/narrow/records", body).refused(413, "max.message.bytes")
    before_mb = resident_mb(served.pid)
    for _ in range(10):
        api.post("/v1/topics/narrow/records", body).refused(413, "max.message.bytes")
    assert resident_mb(served.pid) - before_mb < 50
