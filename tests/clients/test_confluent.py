"""confluent-kafka, and with it librdkafka: records, groups, commits and idempotence."""

from collections.abc import Callable
from typing import Any

import pytest
from broker_fixture import RunningBroker
from confluent_kafka import Consumer, Producer, TopicPartition
from cutting_proxy import CuttingProxy
from group_members import group_of, kept_partitions_are_not_revoked, three_members_join_crash_and_leave
from sent_records import CODECS, PARTITIONS, RECORDS, Sent, by_partition, partition_of, records
from topics import make_topic, values_of


def read_back(bootstrap: str, topic: str, count: int) -> dict[int, list[Sent]]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
    found: dict[int, list[Sent]] = {index: [] for index in range(PARTITIONS)}
    for _ in range(count):
        message = consumer.poll(15)
        assert message is not None, f"{sum(map(len, found.values()))} of {count} came"
        assert message.error() is None, message.error()
        partition = found[message.partition() or 0]
        assert message.offset() == len(partition)
        headers: Any = tuple(message.headers() or ())
        key, value = message.key(), message.value()
        assert not isinstance(key, str)
        assert not isinstance(value, str)
        partition.append(Sent(key, value, headers, message.timestamp()[1]))
    consumer.close()
    return found


@pytest.mark.parametrize("codec", CODECS)
def test_records_come_back_byte_for_byte(shared: RunningBroker, topic: str, codec: str) -> None:
    sent = records()
    producer = Producer({"bootstrap.servers": shared.bootstrap, "compression.type": codec, "acks": "all"})
    failures = []
    for number, record in enumerate(sent):
        producer.produce(
            topic,
            value=record.value,
            key=record.key,
            partition=partition_of(number),
            headers=list(record.headers),
            timestamp=record.timestamp_ms,
            on_delivery=lambda error, _message: failures.append(error) if error else None,
        )
        producer.poll(0)
    assert producer.flush(60) == 0
    assert not failures
    assert read_back(shared.bootstrap, topic, RECORDS) == by_partition(sent)


def test_a_group_of_three(shared: RunningBroker, group_topic: str, send_to_all: Callable[[], dict[int, int]]) -> None:
    with group_of("confluent", shared.bootstrap, group_topic) as group:
        three_members_join_crash_and_leave(group, send_to_all)


def test_a_cooperative_group_keeps_its_partitions(shared: RunningBroker, group_topic: str) -> None:
    with group_of("confluent", shared.bootstrap, group_topic, is_cooperative=True) as group:
        kept_partitions_are_not_revoked(group)


@pytest.mark.parametrize("end", ["terminate", "kill"])
def test_committed_offsets_survive_a_restart(broker: RunningBroker, end: str) -> None:
    topic = make_topic(broker.bootstrap, "numbers", 1)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(200):
        producer.produce(topic, str(number))
    assert producer.flush(15) == 0
    # If the broker dies before it has stored the first consumer's departure, the second waits for the session timeout.
    session = {"session.timeout.ms": 6000, "heartbeat.interval.ms": 1000}
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "g", "auto.offset.reset": "earliest", **session}
    consumer = Consumer({**settings, "enable.auto.commit": False})
    consumer.subscribe([topic])
    assert [message.value() for message in consumer.consume(100, 15)] == [b"%d" % number for number in range(100)]
    consumer.commit(offsets=[TopicPartition(topic, 0, 100, "what I said")], asynchronous=False)
    consumer.close()

    getattr(broker, end)()
    broker.start()

    consumer = Consumer(settings)
    (committed,) = consumer.committed([TopicPartition(topic, 0)], 15)
    assert (committed.offset, committed.metadata) == (100, "what I said")
    consumer.subscribe([topic])
    assert [message.value() for message in consumer.consume(100, 15)] == [b"%d" % number for number in range(100, 200)]
    consumer.close()


def test_an_idempotent_producer_whose_connections_are_cut(
    behind_a_proxy: tuple[RunningBroker, CuttingProxy],
) -> None:
    _broker, proxy = behind_a_proxy
    producer = Producer(
        {
            "bootstrap.servers": proxy.bootstrap,
            "enable.idempotence": True,
            "max.in.flight": 5,
            "batch.num.messages": 20,
            "linger.ms": 1,
            "retry.backoff.ms": 20,
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 50,
        }
    )
    failures = []
    proxy.cut_every(3, 15)
    sent = 0
    # The proxy counts responses that arrive in one read as one, so the number of sends until enough cuts varies.
    while proxy.cuts < 10:
        for number in range(sent, sent + 4000):
            producer.produce(
                "numbers",
                str(number),
                partition=number % 2,
                on_delivery=lambda error, _message: failures.append(error) if error else None,
            )
            producer.poll(0)
        assert producer.flush(60) == 0
        sent += 4000
    proxy.heal()
    assert not failures
    for partition in range(2):
        assert values_of(proxy.bootstrap, "numbers", partition) == [b"%d" % n for n in range(partition, sent, 2)]
