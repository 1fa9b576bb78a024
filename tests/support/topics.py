"""Topics of a running broker: created for a test, and read back with each offset checked."""

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic


def make_topic(bootstrap: str, name: str, partitions: int) -> str:
    """Create a topic and return its name."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(15)
    return name


def values_of(bootstrap: str, topic: str, partition: int) -> list[bytes | None]:
    """Return all values of a partition from offset 0 to its end. Raises AssertionError if an offset is missing."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False})
    place = TopicPartition(topic, partition, 0)
    _, end = consumer.get_watermark_offsets(place, 15)
    consumer.assign([place])
    values: list[bytes | None] = []
    offset = 0
    while offset < end:
        messages = consumer.consume(min(5000, end - offset), 15)
        assert messages, f"nothing more came after offset {offset} of {end}"
        for message in messages:
            assert message.error() is None, message.error()
            assert message.offset() == offset
            value = message.value()
            assert value is None or isinstance(value, bytes)
            values.append(value)
            offset += 1
    consumer.close()
    return values
