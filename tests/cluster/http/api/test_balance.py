"""The balance over HTTP: what each broker holds, its cordon, and the plan."""

from closed_http_broker import ClosedBroker
from http_client import HttpClient


def test_the_balance_of_one_broker_has_nothing_to_move(api: HttpClient) -> None:
    api.post("/v1/topics", {"name": "balanced", "partitions": 2})
    found = api.get("/v1/balance").json
    assert found["moves"] == []
    assert found["is_even"] is True
    (broker,) = found["brokers"]
    assert broker["now"] == broker["after"]
    assert broker["now"]["leaders"] >= 2
    assert (broker["is_alive"], broker["is_cordoned"]) == (True, False)
    api.get("/v1/balance?bytes_per_second=0").refused(400, "at least 1")


def test_a_cordon_is_a_config_of_the_broker(api: HttpClient) -> None:
    (broker,) = api.get("/v1/balance").json["brokers"]
    path = f"/v1/brokers/{broker['broker_id']}/configs"
    assert api.patch(path, {"configs": {"cordoned.log.dirs": "*"}}).status == 200
    try:
        assert api.get("/v1/balance").json["brokers"][0]["is_cordoned"] is True
        api.post("/v1/topics", {"name": "nowhere"}).refused(400, "cordoned")
    finally:
        api.patch(path, {"configs": {"cordoned.log.dirs": None}})
    assert api.get("/v1/balance").json["brokers"][0]["is_cordoned"] is False


def test_the_balance_needs_a_right(closed: ClosedBroker) -> None:
    alice = closed.client("alice", "secret")
    alice.get("/v1/balance").refused(403)
    closed.allow("alice", "DESCRIBE", "CLUSTER", "kafka-cluster")
    assert alice.get("/v1/balance").status == 200
    closed.take_back("alice")
