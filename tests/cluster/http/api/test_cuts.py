"""Cuts over HTTP: create, list, describe and drop, for those who may."""

from closed_http_broker import ClosedBroker
from confluent_kafka.admin import AdminClient, NewTopic
from http_client import HttpClient


def test_a_cut_is_created_described_and_dropped(api: HttpClient) -> None:
    api.post("/v1/topics", {"name": "cut-me", "partitions": 2})
    made = api.post("/v1/cuts", {"name": "monday", "topics": ["cut-me"], "lifetime_ms": 3_600_000})
    assert made.status == 201
    cut = made.json
    assert cut["expires_ms"] == cut["created_ms"] + 3_600_000
    (topic,) = cut["topics"]
    assert topic["partitions"] == [{"partition": index, "start": 0, "end": 0} for index in (0, 1)]
    assert api.get("/v1/cuts").json == {"cuts": [cut]}
    assert api.get("/v1/cuts/monday").json == cut
    api.post("/v1/cuts", {"name": "monday", "topics": ["cut-me"]}).refused(409, "exists")
    api.delete("/v1/topics/cut-me").refused(400, "monday")
    assert api.delete("/v1/cuts/monday").json == {"name": "monday"}
    api.get("/v1/cuts/monday").refused(404, "monday")
    api.delete("/v1/cuts/monday").refused(404, "monday")
    api.post("/v1/cuts", {"name": "monday", "topics": ["missing"]}).refused(404, "missing")


def test_cuts_need_rights_on_their_topics(closed: ClosedBroker) -> None:
    admin = AdminClient({"bootstrap.servers": closed.broker.bootstrap})
    admin.create_topics([NewTopic("secret", 1)])["secret"].result(30)
    alice, wanted = closed.client("alice", "secret"), {"name": "hers", "topics": ["secret"]}
    alice.post("/v1/cuts", wanted).refused(403)
    closed.allow("alice", "ALTER", "TOPIC", "secret")
    assert alice.post("/v1/cuts", wanted).status == 201
    assert [cut["name"] for cut in alice.get("/v1/cuts").json["cuts"]] == ["hers"]
    closed.take_back("alice")
    assert alice.get("/v1/cuts").json == {"cuts": []}
    alice.get("/v1/cuts/hers").refused(404)
    alice.delete("/v1/cuts/hers").refused(404)
    closed.allow("alice", "DESCRIBE", "TOPIC", "secret")
    assert alice.get("/v1/cuts/hers").status == 200
    alice.delete("/v1/cuts/hers").refused(403)
    closed.allow("alice", "ALTER", "TOPIC", "secret")
    assert alice.delete("/v1/cuts/hers").status == 200
    closed.take_back("alice")
