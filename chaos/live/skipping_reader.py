"""A reader that skips unreadable offsets, to find every record that a damaged log still serves."""

import time
from collections.abc import Sequence
from typing import NamedTuple

from confluent_kafka import Consumer, TopicPartition

ANSWER_S = 20.0
STALLED_S = 1.0
"""The time without a record after which an offset is skipped."""


class RecordPosition(NamedTuple):
    """A record's topic, partition and offset."""

    topic: str
    partition: int
    offset: int


def read_what_is_served(address: str, partitions: Sequence[tuple[str, int]]) -> dict[RecordPosition, bytes]:
    """Return every readable record, by its place."""
    found: dict[RecordPosition, bytes] = {}
    for topic, partition in partitions:
        consumer = Consumer(_consumer_settings(address))
        try:
            _read(consumer, topic, partition, found)
        finally:
            consumer.close()
    return found


def _read(consumer: Consumer, topic: str, partition: int, found: dict[RecordPosition, bytes]) -> None:
    start, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=ANSWER_S)
    offset = start
    consumer.assign([TopicPartition(topic, partition, offset)])
    moved_at = time.monotonic()
    while offset < end:
        for message in consumer.consume(500, 0.1):
            read, value = message.offset(), message.value()
            if message.error() is None and read is not None and value is not None:
                found[RecordPosition(topic, partition, read)] = value
                offset, moved_at = read + 1, time.monotonic()
        if time.monotonic() - moved_at > STALLED_S:
            offset, moved_at = offset + 1, time.monotonic()
            consumer.assign([TopicPartition(topic, partition, offset)])


def _consumer_settings(address: str) -> dict[str, str | int | bool]:
    return {
        "bootstrap.servers": address,
        "group.id": "skipping-reader",
        "enable.auto.commit": False,
        "fetch.error.backoff.ms": 10,
        "reconnect.backoff.ms": 10,
        "reconnect.backoff.max.ms": 50,
        "log_level": 0,
    }
