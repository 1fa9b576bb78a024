"""confluent-kafka's ShareConsumer: share groups from the first join to a restart of the broker."""

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from admin_fixture import message_of
from broker_fixture import RunningBroker, wait_until
from confluent_kafka import AcknowledgeType, Message, Producer, ShareConsumer
from kio.index import load_request_schema
from kio.schema.errors import ErrorCode
from local_cluster import LocalCluster
from topics import make_topic

from cordwood.chaos.live.broker_views import GROUP_KEY, coordinator_request
from cordwood.client.blocking import connect
from cordwood.cluster.kafka.api_keys import ApiKey

WAIT_S = 60.0
GROUP_RESOURCE, SET = 32, 0
SESSIONS = {
    "group_share_min_session_timeout_ms": "1000",
    "group_share_session_timeout_ms": "6000",
    "group_share_min_heartbeat_interval_ms": "100",
    "group_share_heartbeat_interval_ms": "300",
    "group_share_min_record_lock_duration_ms": "1000",
    "group_share_record_lock_duration_ms": "3000",
    "offsets_topic_num_partitions": "3",
    "share_coordinator_state_topic_num_partitions": "3",
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    running = RunningBroker(tmp_path_factory.mktemp("shares") / "data", **SESSIONS)
    running.start()
    yield running
    running.stop()


def ask(bootstrap: str, api: ApiKey, version: int, **fields: Any) -> Any:
    with connect(bootstrap.split(",")[0], WAIT_S) as connection:
        return connection.ask(message_of(load_request_schema(api, version), fields))


def begin_at_first_record(bootstrap: str, group: str) -> None:
    row = {"name": "share.auto.offset.reset", "value": "earliest", "config_operation": SET}
    resource = {"resource_type": GROUP_RESOURCE, "resource_name": group, "configs": (row,)}
    answer = ask(bootstrap, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=(resource,), validate_only=False)
    assert answer.responses[0].error_code is ErrorCode.none


def produce(bootstrap: str, topic: str, values: range) -> set[bytes]:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    sent = {str(value).encode() for value in values}
    for value in sorted(sent):
        producer.produce(topic, value)
    assert producer.flush(WAIT_S) == 0
    return sent


@contextmanager
def consuming(bootstrap: str, group: str, topic: str, **config: str) -> Iterator[ShareConsumer]:
    settings = {key.replace("_", "."): value for key, value in config.items()}
    consumer = ShareConsumer({"bootstrap.servers": bootstrap, "group.id": group, **settings})
    consumer.subscribe([topic])
    try:
        yield consumer
    finally:
        consumer.close()


def poll(*consumers: ShareConsumer, until: Callable[[list[Message]], bool]) -> list[Message]:
    """Poll until the messages are as wanted. Return them all."""
    found: list[Message] = []
    deadline = time.monotonic() + WAIT_S
    while not until(found):
        assert time.monotonic() < deadline, f"only {len(found)} messages within {WAIT_S:.0f} s"
        for consumer in consumers:
            for message in consumer.poll(0.5):
                assert message.error() is None, message.error()
                found.append(message)
    return found


def values(messages: list[Message]) -> set[bytes]:
    return {message.value() for message in messages}


def described(bootstrap: str, group: str) -> Any:
    (found,) = ask(bootstrap, ApiKey.SHARE_GROUP_DESCRIBE, 1, group_ids=(group,)).groups
    return found


@pytest.fixture
def group() -> str:
    return f"workers-{uuid.uuid4()}"


def test_two_members_take_all_records_of_a_topic(broker: RunningBroker, group: str) -> None:
    topic = make_topic(broker.bootstrap, f"t-{group}", 4)
    begin_at_first_record(broker.bootstrap, group)
    sent = produce(broker.bootstrap, topic, range(200))
    with (
        consuming(broker.bootstrap, group, topic) as one,
        consuming(broker.bootstrap, group, topic) as two,
    ):
        found = poll(one, two, until=lambda messages: values(messages) == sent)
        assert len(found) == len(sent), "a record was delivered twice"
        state = described(broker.bootstrap, group)
        assert (state.group_state, state.assignor_name, len(state.members)) == ("Stable", "simple", 2)
        assigned = [
            index for member in state.members for row in member.assignment.topic_partitions for index in row.partitions
        ]
        assert sorted(assigned) == [0, 1, 2, 3]
    assert described(broker.bootstrap, group).group_state == "Empty"


def test_a_released_record_comes_again_and_a_rejected_one_does_not(broker: RunningBroker, group: str) -> None:
    topic = make_topic(broker.bootstrap, f"t-{group}", 1)
    begin_at_first_record(broker.bootstrap, group)
    sent = produce(broker.bootstrap, topic, range(3))
    with consuming(broker.bootstrap, group, topic, share_acknowledgement_mode="explicit") as consumer:
        found = poll(consumer, until=lambda messages: values(messages) == sent)
        kinds = (AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT)
        released = found[1].value()
        for message, kind in zip(found, kinds, strict=True):
            consumer.acknowledge(message, kind)
        again = poll(consumer, until=lambda messages: bool(messages))
        assert values(again) == {released}
        consumer.acknowledge(again[0], AcknowledgeType.ACCEPT)
        consumer.commit_sync()
    later = produce(broker.bootstrap, topic, range(10, 12))
    with consuming(broker.bootstrap, group, topic) as consumer:
        assert values(poll(consumer, until=lambda messages: values(messages) == later)) == later


def test_what_is_acknowledged_survives_a_restart(tmp_path: Path, group: str) -> None:
    running = RunningBroker(tmp_path / "data", **SESSIONS).start()
    topic = make_topic(running.bootstrap, "numbers", 2)
    begin_at_first_record(running.bootstrap, group)
    sent = produce(running.bootstrap, topic, range(20))
    with consuming(running.bootstrap, group, topic) as consumer:
        poll(consumer, until=lambda messages: values(messages) == sent)
        consumer.commit_sync()
        running.kill()
        running.start()
        more = produce(running.bootstrap, topic, range(100, 120))
        assert values(poll(consumer, until=lambda messages: values(messages) >= more)) == more
        state = described(running.bootstrap, group)
        assert (state.group_state, len(state.members)) == ("Stable", 1)
    running.stop()


def test_a_group_goes_on_at_another_coordinator(tmp_path: Path, group: str) -> None:
    cluster = LocalCluster(tmp_path / "cluster", 3)
    options = [word for key, value in SESSIONS.items() for word in ("--set", f"{key.replace('_', '.')}={value}")]
    cluster.up(*options)
    try:
        row = {"name": "numbers", "num_partitions": 3, "replication_factor": 3}
        (made,) = ask(cluster.bootstrap, ApiKey.CREATE_TOPICS, 7, topics=(row,), timeout=timedelta(seconds=30)).topics
        assert made.error_code is ErrorCode.none, made
        topic = "numbers"
        begin_at_first_record(cluster.bootstrap, group)
        sent = produce(cluster.bootstrap, topic, range(30))
        with consuming(cluster.bootstrap, group, topic) as consumer:
            poll(consumer, until=lambda messages: values(messages) == sent)
            consumer.commit_sync()
            with connect(cluster.bootstrap.split(",")[0], WAIT_S) as connection:
                (found,) = connection.ask(coordinator_request(GROUP_KEY, group)).coordinators
            cluster.kill(found.node_id)
            more = produce(cluster.bootstrap, topic, range(100, 130))
            assert values(poll(consumer, until=lambda messages: values(messages) >= more)) == more
            left = [row for row in cluster.brokers if row["id"] != found.node_id]
            address = f"127.0.0.1:{cluster.port + left[0]['id'] - 1}"

            def is_member() -> bool:
                with connect(address, WAIT_S) as connection:
                    (now,) = connection.ask(coordinator_request(GROUP_KEY, group)).coordinators
                if now.error_code is not ErrorCode.none or now.node_id == found.node_id:
                    return False
                state = described(f"{now.host}:{now.port}", group)
                return state.error_code is ErrorCode.none and len(state.members) == 1

            wait_until(is_member, WAIT_S, "the member at the next coordinator")
    finally:
        cluster.down()
