"""Client quotas over HTTP: set, listed and removed, for those who may."""

from closed_http_broker import ClosedBroker
from http_client import HttpClient

ANN = {"user": "ann", "client-id": None}


def test_a_quota_is_set_listed_and_removed(api: HttpClient) -> None:
    wanted = {"entity": ANN, "limits": {"producer_byte_rate": 1_000_000, "request_percentage": 12.5}}
    assert api.patch("/v1/quotas?dry_run=true", wanted).status == 200
    assert api.get("/v1/quotas").json == {"quotas": []}
    changed = api.patch("/v1/quotas", wanted).json
    assert changed == {"entity": ANN, "changed": ["producer_byte_rate", "request_percentage"]}
    limits = {"producer_byte_rate": 1e6, "request_percentage": 12.5}
    assert api.get("/v1/quotas").json == {"quotas": [{"entity": ANN, "limits": limits}]}
    api.patch("/v1/quotas", {"entity": ANN, "limits": dict.fromkeys(limits)})
    assert api.get("/v1/quotas").json == {"quotas": []}


def test_a_quota_that_no_cluster_can_have_is_refused(api: HttpClient) -> None:
    api.patch("/v1/quotas", {"entity": {"user": "ann"}, "limits": {"bytes": 1.0}}).refused(400, "bytes")
    api.patch("/v1/quotas", {"entity": {}, "limits": {"producer_byte_rate": 1.0}}).refused(422)


def test_quotas_need_rights_on_the_configs_of_the_cluster(closed: ClosedBroker) -> None:
    alice, wanted = closed.client("alice", "secret"), {"entity": ANN, "limits": {"producer_byte_rate": 1e6}}
    alice.get("/v1/quotas").refused(403)
    closed.allow("alice", "DESCRIBE_CONFIGS", "BROKER", "kafka-cluster")
    assert alice.get("/v1/quotas").json == {"quotas": []}
    alice.patch("/v1/quotas", wanted).refused(403)
    closed.allow("alice", "ALTER_CONFIGS", "BROKER", "kafka-cluster")
    assert alice.patch("/v1/quotas", wanted).status == 200
    closed.take_back("alice")
