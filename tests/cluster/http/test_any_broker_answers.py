"""Three brokers over HTTP: each answers for the whole cluster, also after one is killed."""

from collections.abc import Callable, Iterator

import pytest
from broker_fixture import wait_until
from http_client import HttpAnswer, HttpClient
from local_cluster import LocalCluster

SETTLED_S = 30.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    three = LocalCluster(tmp_path_factory.mktemp("three") / "cluster", 3)
    three.up()
    try:
        yield three
    finally:
        three.end()


@pytest.fixture
def apis(cluster: LocalCluster) -> list[HttpClient]:
    """Return a client of each broker of a complete running cluster."""
    cluster.up()
    clients = [HttpClient(broker["http"]) for broker in cluster.brokers]
    wait_until(lambda: all(is_whole(api) for api in clients), SETTLED_S, "a whole cluster")
    return clients


def is_whole(api: HttpClient) -> bool:
    seen = api.get("/v1/cluster").json
    return seen["under_replicated_partitions"] == 0 and not any(broker["is_fenced"] for broker in seen["brokers"])


def make_topic(apis: list[HttpClient], name: str, **wanted: object) -> str:
    """Create a topic. Return its name once every broker has it in its metadata."""
    apis[0].make_topic(name, **wanted)
    wait_until(lambda: all(api.get(f"/v1/topics/{name}").status == 200 for api in apis), SETTLED_S, f"topic {name}")
    return name


def soon(ask: Callable[[], HttpAnswer]) -> HttpAnswer:
    """Repeat a request until it succeeds, and check that every refusal until then has 503 and Retry-After."""

    def is_answered() -> bool:
        answer = ask()
        if answer.status == 503:
            assert answer.headers["Retry-After"] == "1"
        elif answer.status != 200:
            answer.refused(200)
        else:
            found.append(answer)
        return bool(found)

    found: list[HttpAnswer] = []
    wait_until(is_answered, SETTLED_S, "an answer")
    return found[0]


def test_every_broker_forwards_to_the_leader(apis: list[HttpClient]) -> None:
    make_topic(apis, "shared", partitions=6, replication_factor=3)
    assert {row["leader"] for row in apis[1].get("/v1/topics/shared/partitions").json["partitions"]} == {1, 2, 3}
    for number, api in enumerate(apis):
        records = [{"value": f"{number}-{partition}", "partition": partition} for partition in range(6)]
        answer = api.post("/v1/topics/shared/records", {"records": records})
        assert [record["offset"] for record in answer.json["records"]] == [number] * 6
    assert len({tuple(sorted(api.values("shared"))) for api in apis}) == 1
    assert len(apis[2].values("shared")) == 18
    for api in apis:
        rows = api.get("/v1/topics/shared/partitions").json["partitions"]
        assert [row["log_end"] for row in rows] == [3] * 6
        assert all(replica["size_bytes"] > 0 for row in rows for replica in row["replicas"])


def test_a_key_counts_once_whichever_broker_is_asked(apis: list[HttpClient]) -> None:
    make_topic(apis, "once", partitions=3, replication_factor=3)
    kept = [api.write("once", "a", idempotency_key="k") for api in apis]
    assert kept[0] == kept[1] == kept[2]
    assert apis[0].values("once") == ["a"]


def test_groups_and_brokers_are_asked_wherever_they_are(apis: list[HttpClient]) -> None:
    make_topic(apis, "read", replication_factor=3)
    apis[0].write("read", "a", "b")
    assert apis[1].post("/v1/groups/readers/reset", {"to": "1", "topics": ["read"]}).status == 200
    described = [api.get("/v1/groups/readers").json for api in apis]
    assert described[0] == described[1] == described[2]
    assert described[0]["lag_records"] == 1
    for api in apis:
        assert "readers" in [row["group"] for row in api.get("/v1/groups").json["groups"]]
        for broker_id in (1, 2, 3):
            configs = {row["name"]: row["value"] for row in api.get(f"/v1/brokers/{broker_id}/configs").json["configs"]}
            assert configs["node.id"] == str(broker_id)
    assert all(api.get("/v1/brokers/1/can-stop").json["can_stop"] for api in apis)


def test_a_follower_and_a_producer_survive_the_loss_of_a_leader(apis: list[HttpClient], cluster: LocalCluster) -> None:
    make_topic(apis, "lasting", assignments=[[3, 1, 2]])
    with apis[0].follow("lasting") as events:
        apis[1].write("lasting", "before")
        assert events.values(1) == ["before"]
        cluster.kill(3)
        wanted = {"records": [{"value": "after"}]}
        first = soon(lambda: apis[1].post("/v1/topics/lasting/records", wanted, idempotency_key="after"))
        assert first.json == {"records": [{"partition": 0, "offset": 1}]}
        again = soon(lambda: apis[0].post("/v1/topics/lasting/records", wanted, idempotency_key="after"))
        assert again.json == first.json, "the new leader knows what was said to the old one"
        assert events.values(1) == ["after"]
    seen = apis[0].get("/v1/topics/lasting/partitions").json["partitions"][0]
    assert (seen["leader"], seen["is_under_replicated"]) == (1, True)
    (dead,) = [replica for replica in seen["replicas"] if not replica["is_alive"]]
    assert (dead["broker_id"], dead["lag_records"]) == (3, None)
    assert "left below min.insync.replicas" in apis[1].get("/v1/brokers/1/can-stop").json["reasons"][0]
    assert apis[1].get("/v1/groups").json["unanswered_by"] == []


def test_a_partition_is_moved_and_led_as_preferred(apis: list[HttpClient]) -> None:
    make_topic(apis, "moving", assignments=[[1, 2]])
    apis[0].write("moving", "a")
    move = {"topic": "moving", "partition": 0, "replicas": [2, 3]}
    (outcome,) = apis[1].post("/v1/reassignments", {"moves": [move]}).json["partitions"]
    assert (outcome["is_done"], outcome["code"]) == (True, "NONE")

    def where() -> list[int]:
        row = apis[2].get("/v1/topics/moving/partitions?offsets=false").json["partitions"][0]
        return [replica["broker_id"] for replica in row["replicas"]]

    wait_until(lambda: where() == [2, 3], SETTLED_S, "the end of the move")
    assert apis[0].get("/v1/reassignments").json == {"moves": []}
    apis[0].post("/v1/elections", {"partitions": [{"topic": "moving", "partition": 0}]})
    seen = apis[0].get("/v1/topics/moving/partitions").json["partitions"][0]
    assert (seen["leader"], seen["isr"]) == (2, [2, 3])


def test_a_move_shows_what_is_left_of_it(apis: list[HttpClient]) -> None:
    make_topic(apis, "slow", assignments=[[1]])
    apis[0].write("slow", "a")
    configs = "/v1/brokers/1/configs"
    assert apis[0].patch(configs, {"configs": {"leader.replication.throttled.rate": "0"}}).status == 200
    move = {"topic": "slow", "partition": 0, "replicas": [2]}
    apis[1].post("/v1/reassignments", {"moves": [move]})
    for _ in range(2):
        [shown] = apis[2].get("/v1/reassignments").json["moves"]
        assert shown["bytes_left"] == shown["bytes_total"] > 0
    assert (shown["bytes_per_second"], shown["minutes_left"]) == (0.0, None)
    left = 'cordwood_reassignment_left_bytes{topic="slow",partition="0",broker="2"}'
    assert f"{left} {shown['bytes_left']}" in apis[0].get("/metrics").content.decode()
    assert apis[0].patch(configs, {"configs": {"leader.replication.throttled.rate": None}}).status == 200
    wait_until(lambda: apis[0].get("/v1/reassignments").json == {"moves": []}, SETTLED_S, "the end of the move")


def test_receipts_are_forwarded_to_the_broker_that_took_the_records(apis: list[HttpClient]) -> None:
    topic = make_topic(apis, "queued", partitions=1, replication_factor=3)
    take = {"topics": [topic], "wait_ms": 2_000}

    def first_take() -> HttpAnswer:
        return apis[0].post("/v1/queues/movers/take", take)

    soon(first_take)
    apis[1].write(topic, "a", "b")
    records = soon(first_take).json["records"]
    assert [record["value"] for record in records] == ["a", "b"]
    a, b = (record["receipt"] for record in records)
    done = soon(lambda: apis[1].post("/v1/queues/movers/acknowledge", {"receipts": [a]}))
    assert done.json["done"] == 1
    soon(lambda: apis[2].post("/v1/queues/movers/release", {"receipts": [b]}))
    (again,) = soon(first_take).json["records"]
    assert (again["value"], again["delivery_count"]) == ("b", 2)
    apis[2].post("/v1/queues/movers/acknowledge", {"receipts": [b]}).refused(410, "not locked")
    soon(lambda: apis[2].post("/v1/queues/movers/acknowledge", {"receipts": [again["receipt"]]}))
