"""Transactions with every Python client: committed, aborted, fenced, and with offsets of a group (KIP-98, KIP-447)."""

from collections.abc import Callable, Iterator

import pytest
from broker_fixture import RunningBroker
from confluent_kafka import OFFSET_INVALID, Consumer, Producer, TopicPartition
from topics import make_topic
from transactional_clients import (
    END,
    PRODUCERS,
    READERS,
    WAIT_S,
    ConfluentProducer,
    Fenced,
    TransactionalProducer,
    committed_offset,
)

Open = Callable[[str], TransactionalProducer]


@pytest.fixture(params=PRODUCERS)
def client(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def opened(shared: RunningBroker, client: str) -> Iterator[Open]:
    """Yield a function that opens a producer with a transactional id."""
    producers: list[TransactionalProducer] = []

    def open_one(transactional_id: str) -> TransactionalProducer:
        producers.append(PRODUCERS[client](shared.bootstrap, transactional_id))
        return producers[-1]

    yield open_one
    for producer in producers:
        producer.close()


def finish(producer: TransactionalProducer, topic: str) -> None:
    producer.begin()
    producer.send(topic, END)
    producer.commit()


def test_only_committed_transactions_are_read(shared: RunningBroker, client: str, topic: str, opened: Open) -> None:
    producer = opened(topic)
    for name, is_commit in (("a", True), ("b", False), ("c", True), ("d", False)):
        producer.begin()
        for number in range(3):
            producer.send(topic, f"{name}{number}".encode())
        producer.send(topic, name.encode(), partition=1)
        if is_commit:
            producer.commit()
        else:
            producer.abort()
    finish(producer, topic)
    read = READERS[client]
    assert read(shared.bootstrap, topic, committed=True) == [b"a0", b"a1", b"a2", b"c0", b"c1", b"c2"]
    assert len(read(shared.bootstrap, topic, committed=False)) == 12


def test_nothing_is_read_beyond_an_open_transaction(shared: RunningBroker, topic: str, opened: Open) -> None:
    producer = opened(topic)
    producer.begin()
    producer.send(topic, b"open")
    plain = Producer({"bootstrap.servers": shared.bootstrap})
    plain.produce(topic, value=b"after", partition=0)
    assert plain.flush(WAIT_S) == 0
    consumer = Consumer({"bootstrap.servers": shared.bootstrap, "group.id": "r", "isolation.level": "read_committed"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    assert consumer.poll(0.5) is None
    producer.commit()
    found = [consumer.poll(WAIT_S) for _ in range(2)]
    assert [None if message is None else message.value() for message in found] == [b"open", b"after"]
    consumer.close()


def test_a_second_producer_fences_the_first(shared: RunningBroker, client: str, topic: str, opened: Open) -> None:
    first = opened(topic)
    first.begin()
    first.send(topic, b"lost")
    second = opened(topic)
    with pytest.raises(Fenced):
        first.commit()
    second.begin()
    second.send(topic, b"kept")
    second.commit()
    finish(second, topic)
    assert READERS[client](shared.bootstrap, topic, committed=True) == [b"kept"]


def test_offsets_count_with_their_transaction(shared: RunningBroker, topic: str, opened: Open) -> None:
    producer, group_id = opened(topic), f"group of {topic}"
    for offset, is_commit in ((5, False), (7, True), (9, False)):
        producer.begin()
        producer.send(topic, b"processed")
        producer.send_offsets(group_id, {(topic, 0): offset})
        if is_commit:
            producer.commit()
        else:
            producer.abort()
        expected = 7 if offset >= 7 else OFFSET_INVALID
        assert committed_offset(shared.bootstrap, group_id, topic) == expected


def test_a_member_processes_each_record_once(shared: RunningBroker, topic: str) -> None:
    """A read-process-write loop with the member's generation (KIP-447). Every second record is aborted at first."""
    results, count = make_topic(shared.bootstrap, f"{topic}-results", 1), 10
    plain = Producer({"bootstrap.servers": shared.bootstrap})
    for number in range(count):
        plain.produce(topic, value=str(number).encode(), partition=0)
    assert plain.flush(WAIT_S) == 0
    settings = {"bootstrap.servers": shared.bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, "enable.auto.commit": False, "isolation.level": "read_committed"})
    consumer.subscribe([topic])
    producer = Producer({"bootstrap.servers": shared.bootstrap, "transactional.id": topic})
    producer.init_transactions(WAIT_S)
    for number in range(count):
        for is_commit in (False, True) if number % 2 else (True,):
            message = consumer.poll(WAIT_S)
            assert message is not None
            assert message.error() is None
            assert message.value() == str(number).encode()
            producer.begin_transaction()
            producer.produce(results, value=message.value(), partition=0)
            after = TopicPartition(topic, 0, (message.offset() or 0) + 1)
            producer.send_offsets_to_transaction([after], consumer.consumer_group_metadata(), WAIT_S)
            if is_commit:
                producer.commit_transaction(WAIT_S)
            else:
                producer.abort_transaction(WAIT_S)
                consumer.seek(TopicPartition(topic, 0, number))
    assert committed_offset(shared.bootstrap, topic, topic) == count
    consumer.close()
    finish(ConfluentProducer(shared.bootstrap, f"{topic}-last"), results)
    read = READERS["confluent"]
    assert read(shared.bootstrap, results, committed=True) == [str(number).encode() for number in range(count)]
