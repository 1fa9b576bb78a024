"""The start of librdkafka's transactional producers."""

from confluent_kafka import Producer


def begin_producer(producer: Producer, topic: str | None, timeout_s: float) -> None:
    """Get the producer's epoch, which fences earlier producers with its transactional id. Raises KafkaException.

    A producer that is not connected when it looks for its coordinator looks again after half a second. So connect it
    first, by a request about a topic that it writes to.
    """
    if topic is not None:
        producer.list_topics(topic, timeout_s)
    producer.init_transactions(timeout_s)
