"""librdkafka's consumers with the consumer protocol (KIP-848): commits, static members, restarts of the broker."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from broker_fixture import RunningBroker, wait_until
from confluent_kafka import Consumer, ConsumerGroupState, ConsumerGroupType, Producer
from confluent_kafka.admin import AdminClient
from topics import make_topic

PARTITIONS = 6
RECORDS = 60
SETTLED_S = 30.0


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    made = RunningBroker(
        tmp_path / "data",
        group_consumer_min_heartbeat_interval_ms="100",
        group_consumer_heartbeat_interval_ms="500",
        group_min_session_timeout_ms="1000",
        group_initial_rebalance_delay_ms="0",
    )
    made.start()
    yield made
    made.stop()


@pytest.fixture
def topic(broker: RunningBroker) -> str:
    name = make_topic(broker.bootstrap, "flights", PARTITIONS)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(RECORDS):
        producer.produce(name, str(number).encode(), partition=number % PARTITIONS)
    assert producer.flush(30) == 0
    return name


class Members:
    """Consumers of one group by name, polled by turns."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.by_name: dict[str, Consumer] = {}
        self.read: list[tuple[int, int]] = []

    def join(self, name: str, topic: str, protocol: str = "consumer", **settings: Any) -> None:
        base = {
            "bootstrap.servers": self.bootstrap,
            "group.id": "kitchen",
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
        if protocol == "classic":
            base |= {"session.timeout.ms": 6000, "heartbeat.interval.ms": 500}
            base |= {"partition.assignment.strategy": "cooperative-sticky"}
        consumer = self.by_name[name] = Consumer({**base, **settings})
        consumer.subscribe([topic])

    def leave(self, name: str) -> None:
        self.by_name.pop(name).close()

    def have(self, **counts: int) -> None:
        """Poll until the members have these numbers of partitions, each by one of them."""

        def is_so() -> bool:
            self.poll()
            owned = [self.owned(name) for name in counts]
            return list(map(len, owned)) == list(counts.values()) and len(set().union(*owned)) == sum(counts.values())

        wait_until(is_so, SETTLED_S, f"{counts}")

    def have_read(self, count: int) -> None:
        def is_so() -> bool:
            self.poll()
            return len(self.read) >= count

        wait_until(is_so, SETTLED_S, f"{count} records")

    def owned(self, name: str) -> set[tuple[str, int]]:
        return {(place.topic, place.partition) for place in self.by_name[name].assignment()}

    def poll(self) -> None:
        for consumer in self.by_name.values():
            message = consumer.poll(0.02)
            if message is not None and message.error() is None:
                self.read.append((message.partition() or 0, message.offset() or 0))

    def close(self) -> None:
        for name in list(self.by_name):
            self.leave(name)


@pytest.fixture
def members(broker: RunningBroker) -> Iterator[Members]:
    made = Members(broker.bootstrap)
    yield made
    made.close()


def test_members_join_read_commit_and_leave(broker: RunningBroker, topic: str, members: Members) -> None:
    members.join("anna", topic)
    members.have(anna=PARTITIONS)
    members.have_read(RECORDS)
    assert len(set(members.read)) == RECORDS
    members.by_name["anna"].commit(asynchronous=False)
    members.join("ben", topic, **{"group.remote.assignor": "range"})
    members.have(anna=3, ben=3)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    described = admin.describe_consumer_groups(["kitchen"])["kitchen"].result()
    assert (described.state, described.type) == (ConsumerGroupState.STABLE, ConsumerGroupType.CONSUMER)
    assert len(described.members) == 2
    members.leave("anna")
    members.have(ben=PARTITIONS)
    assert len(set(members.read)) == len(members.read) == RECORDS, "nothing is read again"
    members.leave("ben")
    assert admin.delete_consumer_groups(["kitchen"])["kitchen"].result() is None


def test_a_static_member_comes_back_to_its_partitions(topic: str, members: Members) -> None:
    members.join("anna", topic, **{"group.instance.id": "rack-a"})
    members.join("ben", topic, **{"group.instance.id": "rack-b"})
    members.have(anna=3, ben=3)
    before = members.owned("anna")
    members.leave("anna")
    members.join("anna", topic, **{"group.instance.id": "rack-a"})
    members.have(anna=3, ben=3)
    assert members.owned("anna") == before


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_restarted_broker_goes_on_with_the_group(
    broker: RunningBroker, topic: str, members: Members, end: str
) -> None:
    members.join("anna", topic)
    members.join("ben", topic)
    members.have(anna=3, ben=3)
    before = members.owned("anna")
    how: Callable[[], None] = getattr(broker, end)
    how()
    broker.start()
    members.join("carl", topic)
    members.have(anna=2, ben=2, carl=2)
    assert members.owned("anna") <= before
