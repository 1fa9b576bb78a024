"""Topics over HTTP: create, describe, add partitions, configure and delete, with the checks of the Kafka APIs."""

import pytest
from broker_fixture import RunningBroker
from confluent_kafka.admin import AdminClient
from http_client import HttpClient


def test_a_topic_is_made_and_found_by_kafka_clients(api: HttpClient, served: RunningBroker) -> None:
    answer = api.post("/v1/topics", {"name": "made", "partitions": 3, "configs": {"retention.ms": 60000}})
    assert answer.status == 201
    assert answer.json.items() >= {"name": "made", "partition_count": 3, "replication_factor": 1}.items()
    assert (
        len(AdminClient({"bootstrap.servers": served.bootstrap}).list_topics("made", 10).topics["made"].partitions) == 3
    )
    described = api.get("/v1/topics/made").json
    assert (described["id"], described["configs"]) == (answer.json["id"], {"retention.ms": "60000"})
    assert described in api.get("/v1/topics").json["topics"]


def test_a_dry_run_makes_nothing(api: HttpClient) -> None:
    answer = api.post("/v1/topics?dry_run=true", {"name": "imagined", "partitions": 2})
    assert (answer.status, answer.json["partition_count"], answer.json["id"]) == (200, 2, None)
    api.get("/v1/topics/imagined").refused(404, "imagined")


@pytest.mark.parametrize(
    "body",
    [
        b'{"name": "' + b"x" * (1 << 20) + b'"}',
        b'{"name": "x", "configs": {' + b",".join(b'"k%d": 1' % number for number in range(20_100)) + b"}}",
    ],
    ids=["bytes", "values"],
)
def test_a_body_that_would_take_long_to_decode_is_refused(api: HttpClient, body: bytes) -> None:
    api.post("/v1/topics", body, content_type="application/json").refused(413, "send ")


@pytest.mark.parametrize(
    ("wanted", "status", "word"),
    [
        ({"name": "a/b"}, 400, "Topic name is invalid"),
        ({"name": "__consumer_offsets"}, 400, "internal"),
        ({"name": "x", "replication_factor": 2}, 400, "only 1 broker(s)"),
        ({"name": "x", "partitions": 0}, 422, "$.partitions"),
        ({"name": "x", "partitions": 20_000}, 400, "Excessively large"),
        ({"name": "x", "partitions": 1, "assignments": [[1]]}, 400, "must be -1"),
        ({"name": "x", "assignments": [[7]]}, 400, "no such broker"),
        ({"name": "x", "configs": {"no.such": 1}}, 400, "no.such"),
        ({"name": "x", "configs": {"retention.ms": "soon"}}, 400, "must be a whole number"),
        ({"name": "x", "partitoins": 1}, 422, "partitoins"),
        ({}, 422, "name"),
        ([], 422, "object"),
    ],
)
def test_a_topic_that_cannot_be_is_refused_with_a_reason(
    api: HttpClient, wanted: object, status: int, word: str
) -> None:
    api.post("/v1/topics", wanted).refused(status, word)


def test_a_topic_is_there_once(api: HttpClient) -> None:
    api.make_topic("once")
    api.post("/v1/topics", {"name": "once"}).refused(409, "already exists")


def test_the_brokers_own_topics_are_shown_to_those_who_ask(api: HttpClient) -> None:
    api.make_topic("read")
    api.post("/v1/groups/reader/reset", {"to": "latest", "topics": ["read"]})
    assert "__consumer_offsets" not in [topic["name"] for topic in api.get("/v1/topics").json["topics"]]
    shown = {topic["name"]: topic for topic in api.get("/v1/topics?internal=true").json["topics"]}
    assert shown["__consumer_offsets"]["is_internal"]


def test_a_deleted_topic_is_gone(api: HttpClient) -> None:
    api.make_topic("old")
    assert api.delete("/v1/topics/old").json["name"] == "old"
    api.delete("/v1/topics/old").refused(404, "There is no topic 'old'")


def test_partitions_have_their_replicas_and_offsets(api: HttpClient) -> None:
    api.make_topic("long", partitions=2)
    api.write("long", "a", "b", query="partition=1")
    empty, written = api.get("/v1/topics/long/partitions").json["partitions"]
    assert (empty["log_start"], empty["high_watermark"], empty["log_end"]) == (0, 0, 0)
    assert (written["log_start"], written["high_watermark"], written["log_end"]) == (0, 2, 2)
    assert (written["leader"], written["isr"], written["is_under_replicated"]) == (1, [1], False)
    (replica,) = written["replicas"]
    assert replica.items() >= {"broker_id": 1, "is_in_sync": True, "is_alive": True, "lag_records": 0}.items()
    assert replica["size_bytes"] > 0


def test_the_partitions_of_all_topics_are_a_single_answer(api: HttpClient) -> None:
    api.make_topic("all", partitions=2)
    api.write("all", "a", query="partition=0")
    quick = [row for row in api.get("/v1/partitions").json["partitions"] if row["topic"] == "all"]
    assert [(row["partition"], row["log_end"]) for row in quick] == [(0, None), (1, None)]
    whole = [row for row in api.get("/v1/partitions?offsets=true").json["partitions"] if row["topic"] == "all"]
    assert [(row["partition"], row["log_end"]) for row in whole] == [(0, 1), (1, 0)]


def test_a_topic_grows_and_never_shrinks(api: HttpClient) -> None:
    api.make_topic("growing")
    assert api.post("/v1/topics/growing/partitions?dry_run=1", {"count": 3}).json["partition_count"] == 3
    assert len(api.get("/v1/topics/growing/partitions").json["partitions"]) == 1
    assert api.post("/v1/topics/growing/partitions", {"count": 3}).status == 200
    assert len(api.get("/v1/topics/growing/partitions").json["partitions"]) == 3
    api.post("/v1/topics/growing/partitions", {"count": 2}).refused(400, "would not be an increase")
    api.post("/v1/topics/nowhere/partitions", {"count": 2}).refused(404, "nowhere")


def test_configs_have_the_source_of_their_values(api: HttpClient) -> None:
    api.make_topic("tuned", configs={"retention.ms": 1000})
    configs = {row["name"]: row for row in api.get("/v1/topics/tuned/configs").json["configs"]}
    assert (configs["retention.ms"]["value"], configs["retention.ms"]["source"]) == ("1000", "dynamic_topic")
    assert (configs["segment.bytes"]["source"], configs["segment.bytes"]["default"]) == ("default", "1073741824")
    assert configs["segment.bytes"]["documentation"]


def test_configs_are_set_and_taken_back(api: HttpClient) -> None:
    api.make_topic("changed", configs={"retention.ms": 1000})
    changes = {"configs": {"retention.ms": None, "segment.bytes": 4096, "preallocate": True}}
    assert api.patch("/v1/topics/changed/configs?dry_run=true", changes).status == 200
    assert api.get("/v1/topics/changed").json["configs"] == {"retention.ms": "1000"}
    assert api.patch("/v1/topics/changed/configs", changes).json["changed"] == sorted(changes["configs"])
    assert api.get("/v1/topics/changed").json["configs"] == {"segment.bytes": "4096", "preallocate": "true"}
    api.patch("/v1/topics/changed/configs", {"configs": {"no.such": "1"}}).refused(400, "no.such")
