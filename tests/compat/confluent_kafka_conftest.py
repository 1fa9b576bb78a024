"""A replacement for the configuration of confluent-kafka's tests: SUITE_BROKERS has the address of the brokers."""

import os
import time
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import DeserializingConsumer, Producer, SerializingProducer, ShareConsumer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

ANSWER_S = 30.0


class TestShareConsumer(ShareConsumer):
    """A share consumer that may be referred to weakly, as a class of Python."""

    __test__ = False


class Cluster:
    """The part of the suite's cluster that the chosen tests use; its methods have the suite's names."""

    def __init__(self) -> None:
        # The tests do not keep it while they wait for an answer.
        self._admin = AdminClient(self.client_conf())

    def client_conf(self, conf: dict[str, Any] | None = None) -> dict[str, Any]:
        return {"bootstrap.servers": os.environ["SUITE_BROKERS"], **(conf or {})}

    def admin(self, conf: dict[str, Any] | None = None) -> AdminClient:
        return AdminClient(self.client_conf(conf)) if conf else self._admin

    def cimpl_producer(self, conf: dict[str, Any] | None = None) -> Producer:
        return Producer(self.client_conf(conf))

    def producer(self, conf: dict[str, Any] | None = None) -> SerializingProducer:
        return SerializingProducer(self.client_conf(conf))

    def consumer(self, conf: dict[str, Any] | None = None) -> DeserializingConsumer:
        return DeserializingConsumer(self._group_conf({"auto.offset.reset": "earliest", **(conf or {})}))

    def cimpl_consumer(self, conf: dict[str, Any] | None = None) -> DeserializingConsumer:
        return self.consumer(conf)

    def share_consumer(self, conf: dict[str, Any] | None = None) -> ShareConsumer:
        """Return a share consumer whose group reads from the start, unless `conf` has `auto.offset.reset`."""
        chosen = self._group_conf(conf or {})
        self._set_group(chosen["group.id"], "share.auto.offset.reset", chosen.pop("auto.offset.reset", "earliest"))
        return TestShareConsumer(chosen)

    def create_topic_and_wait_propogation(self, prefix: str, conf: dict[str, Any] | None = None) -> str:
        name, replicas = f"{prefix}-{uuid4()}", int(os.environ.get("SUITE_REPLICAS", "1"))
        topic = NewTopic(name, **{"num_partitions": 1, **(conf or {}), "replication_factor": replicas})
        self._admin.create_topics([topic])[name].result(ANSWER_S)
        time.sleep(1)  # As the suite's own fixture waits: some of its tests ask another broker at once.
        return name

    def delete_topic(self, topic: str) -> None:
        self._admin.delete_topics([topic])[topic].result(ANSWER_S)

    def seed_topic(self, topic: str, values: list[str], keys: list[str]) -> None:
        producer = self.producer()
        for value, key in zip(values, keys, strict=True):
            producer.produce(topic, key=key, value=value)
        assert producer.flush(ANSWER_S) == 0

    def _group_conf(self, conf: dict[str, Any]) -> dict[str, Any]:
        return self.client_conf({"group.id": str(uuid4()), **conf})

    def _set_group(self, group: str, key: str, value: str) -> None:
        entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.GROUP, group, incremental_configs=[entry])
        self._admin.incremental_alter_configs([resource])[resource].result(ANSWER_S)


@pytest.fixture(scope="session")
def kafka_cluster() -> Cluster:
    """Return the running cluster."""
    return Cluster()
