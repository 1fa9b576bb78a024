"""A hanging transaction: a batch of a transaction that no coordinator knows, at the end of a partition's log."""

from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

from broker_fixture import RunningBroker
from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient

from cordwood.storage.batch import MAGIC, TRANSACTIONAL, BatchHeader, peek
from cordwood.storage.records import Record, encode

PRODUCER = 777_777


def leave_hanging(broker: RunningBroker, topic: str, value: bytes = b"hanging") -> int:
    """Kill a broker, and start it with a hanging transaction in partition 0 of a topic that has records.

    Return its first offset. The broker itself verifies each transaction, and lets none hang.
    """
    folder = broker.data / "topics" / str(_topic_id(broker, topic)) / "0"
    broker.kill()
    segment: Path = max(folder.glob("*.log"))
    *_, (position, last) = _batches(segment.read_bytes())
    batch = encode(
        [Record(0, last.max_timestamp, None, value)],
        base_offset=last.end,
        leader_epoch=last.leader_epoch,
        producer_id=PRODUCER,
        producer_epoch=0,
        base_sequence=0,
        attributes=TRANSACTIONAL,
    )
    with segment.open("r+b") as log:
        log.seek(position + last.size)
        log.write(batch)
    broker.start()
    return last.end


def _batches(content: bytes) -> Iterator[tuple[int, BatchHeader]]:
    """Yield the batches with their positions. The rest of the file is allocated, and zero."""
    position = 0
    while (header := peek(content, position)).magic == MAGIC:
        yield position, header
        position += header.size


def _topic_id(broker: RunningBroker, topic: str) -> UUID:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    found = admin.describe_topics(TopicCollection([topic]))[topic].result(30).topic_id
    bits = (found.get_most_significant_bits(), found.get_least_significant_bits())
    return UUID(bytes=b"".join(half.to_bytes(8, "big", signed=True) for half in bits))
