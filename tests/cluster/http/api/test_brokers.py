"""The cluster and its brokers over HTTP: status, configs, elections, reassignments and the stop check."""

from broker_fixture import RunningBroker
from command import cordwood
from http_client import HttpClient


def test_the_cluster_has_its_brokers_and_its_state(api: HttpClient, served: RunningBroker) -> None:
    api.make_topic("counted", partitions=2)
    cluster = api.get("/v1/cluster").json
    assert (cluster["controller"], cluster["answered_by"]) == (1, 1)
    assert (cluster["under_replicated_partitions"], cluster["offline_partitions"]) == (0, 0)
    assert cluster["partition_count"] >= 2
    (broker,) = cluster["brokers"]
    assert broker["endpoints"] == [{"listener": "PLAINTEXT", "host": "127.0.0.1", "port": served.port}]
    assert (broker["http"], broker["is_fenced"], broker["is_controller"]) == (api.address, False, True)
    assert broker["led_partitions"] == broker["replicas"] == cluster["partition_count"]
    assert api.get("/v1/brokers").json["brokers"] == [broker]
    assert api.get("/v1/brokers/1").json == broker


def test_a_broker_that_is_not_there_is_named(api: HttpClient) -> None:
    for broker_id in ("2", "01", "-1", "one", "%31%00"):
        api.get(f"/v1/brokers/{broker_id}").refused(404, "There is no broker", "the cluster has 1")


def test_the_verdict_on_a_stop_is_that_of_the_command(api: HttpClient, served: RunningBroker) -> None:
    verdict = api.get("/v1/brokers/1/can-stop").json
    assert not verdict["can_stop"]
    said = cordwood("cluster", "can-stop", "1", bootstrap=served.bootstrap)
    assert said.exit_code == 1
    assert all(reason in said.stderr + said.text for reason in verdict["reasons"])


def test_a_brokers_configs_are_set_for_it_and_keep_its_secrets(api: HttpClient) -> None:
    def configs() -> dict[str, dict[str, object]]:
        return {row["name"]: row for row in api.get("/v1/brokers/1/configs").json["configs"]}

    assert (configs()["node.id"]["value"], configs()["node.id"]["is_read_only"]) == ("1", True)
    assert configs()["controller.quorum.secret"]["is_secret"]
    assert configs()["controller.quorum.secret"]["value"] is None
    assert api.patch("/v1/brokers/1/configs", {"configs": {"message.max.bytes": 2_000_000}}).status == 200
    assert (configs()["message.max.bytes"]["value"], configs()["message.max.bytes"]["source"]) == (
        "2000000",
        "dynamic_broker",
    )
    assert api.patch("/v1/brokers/1/configs", {"configs": {"message.max.bytes": None}}).status == 200
    api.patch("/v1/brokers/1/configs", {"configs": {"node.id": 7}}).refused(400, "dynamically")


def test_elections_say_what_became_of_each_partition(api: HttpClient) -> None:
    api.make_topic("led")
    wanted = [{"topic": "led", "partition": 0}, {"topic": "led", "partition": 1}]
    first, second = api.post("/v1/elections", {"partitions": wanted}).json["partitions"]
    assert (first["is_done"], first["code"]) == (False, "ELECTION_NOT_NEEDED")
    assert (second["is_done"], second["code"]) == (False, "UNKNOWN_TOPIC_OR_PARTITION")
    assert api.post("/v1/elections", {}).json == {"partitions": []}
    api.post("/v1/elections", {"type": "forced"}).refused(422, "forced")


def test_moves_say_what_became_of_each_partition(api: HttpClient) -> None:
    api.make_topic("moved")
    moves = [{"topic": "moved", "partition": 0, "replicas": [7]}, {"topic": "moved", "partition": 0, "replicas": None}]
    for move, code in zip(moves, ("INVALID_REPLICA_ASSIGNMENT", "NO_REASSIGNMENT_IN_PROGRESS"), strict=True):
        (outcome,) = api.post("/v1/reassignments", {"moves": [move]}).json["partitions"]
        assert (outcome["is_done"], outcome["code"]) == (False, code)
        assert outcome["error"]
    assert api.get("/v1/reassignments").json == {"moves": []}
