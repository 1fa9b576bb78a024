"""Groups over HTTP: members, lag, configs, offset reset and deletion."""

from collections.abc import Iterator
from contextlib import contextmanager

from broker_fixture import RunningBroker, wait_until
from confluent_kafka import Consumer, Producer
from http_client import HttpClient, quoted


@contextmanager
def member(broker: RunningBroker, group: str, topic: str, **settings: str) -> Iterator[Consumer]:
    """Yield a running member that has read a record and committed its position."""
    given = {"bootstrap.servers": broker.bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    consumer = Consumer({**given, **{key.replace("_", "."): value for key, value in settings.items()}})
    consumer.subscribe([topic])
    try:
        wait_until(lambda: consumer.poll(0.2) is not None, 20, "a record")
        consumer.commit(asynchronous=False)
        yield consumer
    finally:
        consumer.close()


def test_a_group_has_its_members_and_its_lag(api: HttpClient, served: RunningBroker) -> None:
    api.make_topic("orders", partitions=2)
    api.write("orders", "a", query="partition=0")
    with member(served, "kitchen", "orders"):
        api.write("orders", "b", "c", query="partition=1")
        group = api.get("/v1/groups/kitchen").json
        assert (group["state"], group["protocol_type"], group["coordinator"]) == ("Stable", "consumer", 1)
        (cook,) = group["members"]
        assert cook["client_host"] == "127.0.0.1"
        first, second = group["partitions"]
        assert (first["committed"], first["end"], first["lag_records"]) == (1, 1, 0)
        assert (second["committed"], second["end"]) == (None, 2)
        assert {first["member_id"], second["member_id"]} == {cook["member_id"]}
        listed = {row["group"]: row for row in api.get("/v1/groups").json["groups"]}
        assert listed["kitchen"]["state"] == "Stable"


def test_a_lag_counts_records_of_open_transactions(api: HttpClient, served: RunningBroker) -> None:
    api.make_topic("payments")
    api.write("payments", "a")
    producer = Producer({"bootstrap.servers": served.bootstrap, "transactional.id": "payments"})
    producer.init_transactions(20)
    with member(served, "readers", "payments"):
        producer.begin_transaction()
        producer.produce("payments", b"open")
        producer.flush(20)
        (row,) = api.get("/v1/groups/readers").json["partitions"]
        assert (row["committed"], row["end"], row["lag_records"]) == (1, 2, 1)
        producer.abort_transaction(20)


def test_a_group_of_the_consumer_protocol_has_epochs_and_targets(api: HttpClient, served: RunningBroker) -> None:
    api.make_topic("fresh", partitions=2)
    api.write("fresh", "a", query="partition=0")
    with member(served, "moderns", "fresh", group_protocol="consumer"):
        group = api.get("/v1/groups/moderns").json
        assert (group["type"], group["state"], group["protocol"]) == ("consumer", "Stable", "uniform")
        assert group["group_epoch"] == group["assignment_epoch"]
        (modern,) = group["members"]
        assert (modern["epoch"], modern["topics"]) == (group["group_epoch"], ["fresh"])
        assert (modern["partition_count"], modern["target_count"]) == (2, 2)
        assert {row["target_member_id"] for row in group["partitions"]} == {modern["member_id"]}
        listed = {row["group"]: row["type"] for row in api.get("/v1/groups").json["groups"]}
        assert listed["moderns"] == "consumer"


def test_a_group_that_runs_is_neither_moved_nor_deleted(api: HttpClient, served: RunningBroker) -> None:
    api.make_topic("busy")
    api.write("busy", "a")
    with member(served, "runners", "busy"):
        api.post("/v1/groups/runners/reset", {"to": "earliest"}).refused(409, "running members")
        api.delete("/v1/groups/runners").refused(409, "running members")


def test_a_group_goes_on_at_reset_offsets(api: HttpClient) -> None:
    api.make_topic("events")
    for value in ("a", "b", "c"):
        api.write("events", value)
    times = [record["timestamp"] for record in api.read("events")]

    def reset(to: str, **more: object) -> list[tuple[int | None, int]]:
        answer = api.post("/v1/groups/movers/reset", {"to": to, **more})
        assert answer.status == 200, answer.content
        return [(row["committed"], row["new"]) for row in answer.json["partitions"]]

    assert reset("latest", topics=["events"]) == [(None, 3)]
    assert reset("earliest", dry_run=True) == [(3, 0)]
    assert reset("2") == [(3, 2)]
    assert reset("99") == [(2, 3)]
    assert reset(f"@{times[0]}") == [(3, 0)]
    assert api.get("/v1/groups/movers").json["lag_records"] == 3


def test_a_reset_that_cannot_be_is_refused_with_the_forms_that_there_are(api: HttpClient) -> None:
    api.post("/v1/groups/g/reset", {"to": "yesterday"}).refused(422, "earliest, latest")
    api.post("/v1/groups/g/reset", {"to": "latest", "topics": ["nowhere"]}).refused(404, "nowhere")
    api.make_topic("known")
    api.post("/v1/groups/g/reset", {"to": "latest", "topics": ["known"]})
    api.post("/v1/groups/newcomers/reset", {"to": "latest"}).refused(422, "has no committed offsets")


def test_a_deleted_group_is_forgotten(api: HttpClient) -> None:
    api.make_topic("past")
    name = "a group/with a slash"
    path = f"/v1/groups/{quoted(name)}"
    assert api.post(f"{path}/reset", {"to": "latest", "topics": ["past"]}).json["group"] == name
    assert api.get(path).json["state"] == "Empty"
    assert api.delete(path).json == {"group": name}
    api.get(path).refused(404, name)
    api.delete(path).refused(404, "The group does not exist")


def test_a_groups_configs_are_set_before_it_exists(api: HttpClient) -> None:
    path = "/v1/groups/later/configs"

    def lock() -> tuple[str, str, str]:
        configs = {row["name"]: row for row in api.get(path).json["configs"]}
        row = configs["share.record.lock.duration.ms"]
        return row["value"], row["source"], row["default"]

    assert lock() == ("30000", "default", "30000")
    changes = {"configs": {"share.record.lock.duration.ms": 20_000}}
    assert api.patch(f"{path}?dry_run=true", changes).status == 200
    assert lock() == ("30000", "default", "30000")
    assert api.patch(path, changes).json == {"changed": ["share.record.lock.duration.ms"]}
    assert lock() == ("20000", "dynamic_group", "30000")
    assert api.patch(path, {"configs": {"share.record.lock.duration.ms": None}}).status == 200
    assert lock() == ("30000", "default", "30000")
    api.patch(path, {"configs": {"share.record.lock.duration.ms": 1}}).refused(400, "share.record.lock.duration.ms")
    api.patch(path, {"configs": {"retention.ms": 1}}).refused(400, "retention.ms")
