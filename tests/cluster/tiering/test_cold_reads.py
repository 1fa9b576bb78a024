"""A broker with a directory as its archive, and little of a topic on its disk: a consumer reads all of it."""

from collections.abc import Iterator

import pytest
from broker_fixture import RunningBroker, wait_until
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

LONG_S = 60.0
COUNT = 300
TOPIC = "orders"
CONFIGS = {
    "remote.storage.enable": "true",
    "segment.bytes": "20000",
    "local.retention.bytes": "20000",
    "retention.ms": "-1",
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    data = tmp_path_factory.mktemp("cold")
    running = RunningBroker(
        data / "data",
        archive_url=f"file://{data}/archive",
        log_retention_check_interval_ms="200",
        log_segment_delete_delay_ms="0",
    ).start()
    try:
        fill(running)
        yield running
    finally:
        running.stop()


def fill(broker: RunningBroker) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(TOPIC, 1, 1, config=CONFIGS)])[TOPIC].result()
    producer = Producer({"bootstrap.servers": broker.bootstrap, "batch.size": 4000})
    for number in range(COUNT):
        producer.produce(TOPIC, f"{number} ".encode() + b"v" * 1000, timestamp=1_700_000_000_000 + number)
        producer.poll(0)
    assert producer.flush(LONG_S) == 0
    wait_until(lambda: len(list(broker.data.glob("topics/*/0/*.log"))) < 5, LONG_S, "local retention")


def consumer(broker: RunningBroker, **options: str | int) -> Consumer:
    usual = {"bootstrap.servers": broker.bootstrap, "group.id": "g", "enable.auto.commit": False}
    return Consumer({**usual, "auto.offset.reset": "error", **options})


def read_all(broker: RunningBroker, **options: str | int) -> list[int]:
    reader = consumer(broker, **options)
    reader.assign([TopicPartition(TOPIC, 0, 0)])
    numbers: list[int] = []
    while len(numbers) < COUNT:
        message = reader.poll(LONG_S)
        assert message is not None
        assert message.error() is None, message.error()
        assert message.offset() == len(numbers)
        numbers.append(int((message.value() or b"").split()[0]))
    reader.close()
    return numbers


@pytest.mark.parametrize("options", [{}, {"isolation.level": "read_committed"}, {"fetch.message.max.bytes": 1500}])
def test_a_consumer_reads_from_the_archive_and_on(broker: RunningBroker, options: dict[str, str | int]) -> None:
    assert read_all(broker, **options) == list(range(COUNT))


def test_the_beginning_is_known_after_a_kill(broker: RunningBroker) -> None:
    broker.kill()
    broker.start()
    reader = consumer(broker)
    assert reader.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=LONG_S) == (0, COUNT)
    assert read_all(broker) == list(range(COUNT))


def test_offsets_by_time_are_found(broker: RunningBroker) -> None:
    reader = consumer(broker)
    for number in (0, 7, COUNT - 1):
        wanted = TopicPartition(TOPIC, 0, 1_700_000_000_000 + number)
        assert reader.offsets_for_times([wanted], timeout=LONG_S)[0].offset == number
