"""kafka-python 3: records, groups, commits and idempotence."""

from collections.abc import Callable, Iterator
from typing import Any

import kafka.codec
import pytest
from broker_fixture import RunningBroker
from cutting_proxy import CuttingProxy
from group_members import group_of, kept_partitions_are_not_revoked, three_members_join_crash_and_leave
from kafka import KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from sent_records import CODECS, PARTITIONS, RECORDS, Sent, by_partition, partition_of, records
from topics import make_topic, values_of


def read(consumer: Any, count: int) -> Iterator[Any]:
    consumer.config["consumer_timeout_ms"] = 15_000
    for number, message in enumerate(consumer, 1):
        yield message
        if number == count:
            return
    raise AssertionError("the records did not all come")


@pytest.mark.parametrize("codec", CODECS)
def test_records_come_back_byte_for_byte(shared: RunningBroker, topic: str, codec: str) -> None:
    assert codec == "none" or getattr(kafka.codec, f"has_{codec}")(), "the dev extra installs kafka-python's codecs"
    # kafka-python refuses to send a header without a value, though it reads one.
    sent = records(null_headers=False)
    producer = KafkaProducer(
        bootstrap_servers=shared.bootstrap, compression_type=None if codec == "none" else codec, acks="all", linger_ms=5
    )
    futures = [
        producer.send(
            topic,
            value=record.value,
            key=record.key,
            headers=list(record.headers),
            partition=partition_of(number),
            timestamp_ms=record.timestamp_ms,
        )
        for number, record in enumerate(sent)
    ]
    producer.flush(60)
    assert all(future.succeeded() for future in futures)
    producer.close()

    consumer = KafkaConsumer(
        bootstrap_servers=shared.bootstrap, auto_offset_reset="earliest", consumer_timeout_ms=15_000
    )
    consumer.assign([TopicPartition(topic, index) for index in range(PARTITIONS)])
    found: dict[int, list[Sent]] = {index: [] for index in range(PARTITIONS)}
    for message in read(consumer, RECORDS):
        assert message.offset == len(found[message.partition])
        headers = tuple((name, value) for name, value in message.headers)
        found[message.partition].append(Sent(message.key, message.value, headers, message.timestamp))
    consumer.close()
    assert found == by_partition(sent)


def test_a_group_of_three(shared: RunningBroker, group_topic: str, send_to_all: Callable[[], dict[int, int]]) -> None:
    with group_of("kafka-python", shared.bootstrap, group_topic) as group:
        three_members_join_crash_and_leave(group, send_to_all)


def test_a_cooperative_group_keeps_its_partitions(shared: RunningBroker, group_topic: str) -> None:
    with group_of("kafka-python", shared.bootstrap, group_topic, is_cooperative=True) as group:
        kept_partitions_are_not_revoked(group)


def test_committed_offsets_survive_a_restart(broker: RunningBroker) -> None:
    topic = make_topic(broker.bootstrap, "numbers", 1)
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
    for number in range(200):
        producer.send(topic, b"%d" % number)
    producer.flush(15)
    producer.close()
    # If the broker dies before it has stored the first consumer's departure, the second waits for the session timeout.
    session = {"session_timeout_ms": 6000, "heartbeat_interval_ms": 1000}
    settings = {"bootstrap_servers": broker.bootstrap, "group_id": "g", "auto_offset_reset": "earliest", **session}
    consumer = KafkaConsumer(topic, **settings, enable_auto_commit=False, consumer_timeout_ms=15_000)
    assert [message.value for message in read(consumer, 100)] == [b"%d" % number for number in range(100)]
    place = TopicPartition(topic, 0)
    consumer.commit({place: OffsetAndMetadata(100, "what I said", -1)})
    consumer.close()

    broker.kill()
    broker.start()

    consumer = KafkaConsumer(topic, **settings, consumer_timeout_ms=15_000)
    committed = consumer.committed(place, metadata=True)
    assert (committed.offset, committed.metadata) == (100, "what I said")
    assert [message.value for message in read(consumer, 100)] == [b"%d" % number for number in range(100, 200)]
    consumer.close()


def test_an_idempotent_producer_whose_connections_are_cut(
    behind_a_proxy: tuple[RunningBroker, CuttingProxy],
) -> None:
    _broker, proxy = behind_a_proxy
    producer = KafkaProducer(
        bootstrap_servers=proxy.bootstrap,
        enable_idempotence=True,
        max_in_flight_requests_per_connection=5,
        batch_size=500,
        linger_ms=1,
        retry_backoff_ms=20,
        reconnect_backoff_ms=10,
        reconnect_backoff_max_ms=50,
    )
    # Get the producer id before any cut: kafka-python gives up if the response of InitProducerId is lost.
    producer.send("numbers", b"0", partition=0).get(15)
    producer.send("numbers", b"1", partition=1).get(15)
    proxy.cut_every(2, 8)
    sent = 2
    # The proxy counts responses that arrive in one read as one, so the number of sends until enough cuts varies.
    while proxy.cuts < 10:
        numbers = range(sent, sent + 4000)
        futures = [producer.send("numbers", b"%d" % number, partition=number % 2) for number in numbers]
        producer.flush(60)
        assert all(future.succeeded() for future in futures)
        sent += 4000
    proxy.heal()
    producer.close()
    for partition in range(2):
        assert values_of(proxy.bootstrap, "numbers", partition) == [b"%d" % n for n in range(partition, sent, 2)]
