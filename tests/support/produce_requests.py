"""Produce requests as raw frames, and their responses."""

import asyncio
from typing import Any, NamedTuple
from uuid import UUID

from handlers_fixture import HandlersStory, milliseconds
from kio.schema.errors import ErrorCode
from replica_fixture import NOW_MS, TOPIC_ID

from cordwood.cluster.kafka.handlers import produce as handler
from cordwood.storage.batch import TRANSACTIONAL
from cordwood.storage.records import Record, encode

ALL, LEADER_ONLY, NONE = -1, 1, 0
NEWEST = handler.KEY.versions[-1]
TIMEOUT_MS = 30_000


class Row(NamedTuple):
    """The outcome of one batch."""

    code: ErrorCode
    offset: int


def batch(*, count: int = 1, time_ms: int = NOW_MS, key: bytes | None = b"k", size: int = 1, **producer: int) -> bytes:
    return encode([Record(0, time_ms, key, b"v" * size)] * count, **producer)


def sent(sequence: int, *, producer: int = 7, epoch: int = 0, count: int = 1) -> bytes:
    """Return a batch of an idempotent producer."""
    return batch(count=count, producer_id=producer, producer_epoch=epoch, base_sequence=sequence)


def in_transaction(sequence: int, *, producer: int = 7, epoch: int = 0, count: int = 1) -> bytes:
    """Return a transactional batch."""
    numbers = {"producer_id": producer, "producer_epoch": epoch, "base_sequence": sequence}
    return batch(count=count, attributes=TRANSACTIONAL, **numbers)


def send(
    broker: HandlersStory,
    records: bytes | None,
    *more: bytes,
    acks: int = ALL,
    version: int = NEWEST,
    topic: str = "t",
    topic_id: UUID = TOPIC_ID,
    timeout_ms: int = TIMEOUT_MS,
    transactional_id: str | None = None,
) -> "asyncio.Future[Any]":
    """Send one request with these batches, all for partition 0."""
    data = tuple({"index": 0, "records": each} for each in (records, *more))
    return broker.client.send(
        handler.KEY,
        version,
        acks=acks,
        transactional_id=transactional_id,
        timeout=milliseconds(timeout_ms),
        topic_data=({"name": topic, "topic_id": topic_id, "partition_data": data},),
    )


def rows(response: Any) -> list[Row]:
    return [Row(row.error_code, row.base_offset) for topic in response.responses for row in topic.partition_responses]


async def produce(broker: HandlersStory, records: bytes | None, **options: Any) -> Row:
    """Produce a batch, run its group commits, and return its outcome."""
    answer = send(broker, records, **options)
    await broker.sync()
    assert answer.done(), "it is answered"
    (row,) = rows(answer.result())
    return row
