"""The consumer protocol (KIP-848), as librdkafka speaks it: members, regular expressions, and groups that migrate."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from broker_fixture import RunningBroker, wait_until
from confluent_kafka import Consumer, ConsumerGroupType, Producer
from confluent_kafka.admin import AdminClient
from group_members import group_of, kept_partitions_are_not_revoked, three_members_join_crash_and_leave
from topics import make_topic

PARTITIONS, RECORDS = 6, 60
SETTLED_S = 30.0
CLIENT = "consumer-protocol"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """Yield a broker that soon misses a member of the consumer protocol."""
    broker = RunningBroker(
        tmp_path_factory.mktemp("shared") / "data",
        group_consumer_session_timeout_ms="3000",
        group_consumer_min_session_timeout_ms="1000",
        group_consumer_heartbeat_interval_ms="300",
        group_consumer_min_heartbeat_interval_ms="100",
    ).start()
    yield broker
    broker.stop()


def test_a_group_of_three(shared: RunningBroker, group_topic: str, send_to_all: Callable[[], dict[int, int]]) -> None:
    with group_of(CLIENT, shared.bootstrap, group_topic, is_cooperative=True) as group:
        three_members_join_crash_and_leave(group, send_to_all)


def test_partitions_that_stay_are_not_revoked(shared: RunningBroker, group_topic: str) -> None:
    with group_of(CLIENT, shared.bootstrap, group_topic, is_cooperative=True) as group:
        kept_partitions_are_not_revoked(group)


def test_the_broker_matches_a_regular_expression(shared: RunningBroker) -> None:
    make_topic(shared.bootstrap, "red-apples", 2)
    make_topic(shared.bootstrap, "green-apples", 1)
    reader = _Reader(shared.bootstrap, "fruit", "consumer", "^red-.*")
    reader.until(lambda: reader.owned() == [("red-apples", 0), ("red-apples", 1)])
    make_topic(shared.bootstrap, "red-pears", 1)
    reader.until(lambda: ("red-pears", 0) in reader.owned())
    reader.close()


def test_a_static_member_keeps_its_partitions(shared: RunningBroker, group_topic: str) -> None:
    first, second = (
        _Reader(shared.bootstrap, "static", "consumer", group_topic, **{"group.instance.id": name}) for name in "ab"
    )
    _until_even(first, second)
    owned = first.owned()
    first.close()
    again = _Reader(shared.bootstrap, "static", "consumer", group_topic, **{"group.instance.id": "a"})
    _until(lambda: len(again.owned()) == len(owned), again, second)
    assert again.owned() == owned
    again.close()
    second.close()


def test_a_group_migrates_and_comes_back(shared: RunningBroker, group_topic: str) -> None:
    """A rolling change of a group's protocol, and its reversal: every record is read, and offsets are kept."""
    admin = AdminClient({"bootstrap.servers": shared.bootstrap})

    def kind() -> ConsumerGroupType:
        described: Any = admin.describe_consumer_groups(["migrating"])["migrating"].result(15)
        return described.type

    _send(shared.bootstrap, group_topic)
    classic = _Reader(shared.bootstrap, "migrating", "classic", group_topic)
    classic.until(lambda: len(classic.read) == RECORDS)
    assert kind() is ConsumerGroupType.CLASSIC
    modern = _Reader(shared.bootstrap, "migrating", "consumer", group_topic)
    _until_even(classic, modern)
    assert kind() is ConsumerGroupType.CONSUMER
    _send(shared.bootstrap, group_topic)
    _until(lambda: len(classic.read) + len(modern.read) == 2 * RECORDS, classic, modern)
    classic.close()
    modern.until(lambda: len(modern.owned()) == PARTITIONS)
    again = _Reader(shared.bootstrap, "migrating", "classic", group_topic)
    _until_even(modern, again)
    modern.close()
    again.until(lambda: len(again.owned()) == PARTITIONS)
    assert kind() is ConsumerGroupType.CLASSIC
    _send(shared.bootstrap, group_topic)
    again.until(lambda: len(again.read) + len(classic.read) + len(modern.read) == 3 * RECORDS)
    again.close()


class _Reader:
    """A consumer that commits what it has read, and is served by `_until`."""

    def __init__(self, bootstrap: str, group: str, protocol: str, topic: str, **settings: str) -> None:
        self.read: list[tuple[int, int]] = []
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "group.protocol": protocol,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "topic.metadata.refresh.interval.ms": 1000,
                **settings,
            }
        )
        self._consumer.subscribe([topic])

    def owned(self) -> list[tuple[str, int]]:
        return sorted((place.topic, place.partition) for place in self._consumer.assignment())

    def serve(self) -> None:
        message = self._consumer.poll(0.02)
        if message is not None and message.error() is None:
            self.read.append((message.partition() or 0, message.offset() or 0))
            self._consumer.commit(message, asynchronous=False)

    def until(self, condition: Callable[[], bool]) -> None:
        _until(condition, self)

    def close(self) -> None:
        self._consumer.close()


def _until(condition: Callable[[], bool], *readers: _Reader) -> None:
    def is_done() -> bool:
        for reader in readers:
            reader.serve()
        return condition()

    wait_until(is_done, SETTLED_S, f"the readers, who have {[reader.owned() for reader in readers]}")


def _until_even(*readers: _Reader) -> None:
    """Serve readers until they share the partitions evenly."""
    share = PARTITIONS // len(readers)
    _until(lambda: [len(reader.owned()) for reader in readers] == [share] * len(readers), *readers)


def _send(bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(RECORDS):
        producer.produce(topic, b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(15) == 0
