"""One Fetch request to a leader, for the HTTP record reader."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import NamedTuple

from kio.schema.errors import ErrorCode
from kio.schema.fetch.v12.request import FetchPartition, FetchRequest, FetchTopic

from cordwood.cluster.kafka.client_connection import ClientConnection
from cordwood.cluster.operations.isolation import IsolationLevel
from cordwood.storage.types import TopicPartition

ANSWER_BYTES_MAX = 512 << 10
PARTITION_BYTES_MAX = 256 << 10
WAIT_S = 20.0
"""The long poll time: a leader without new records responds after it."""
SILENCE_S = 10.0
"""The time after the long poll until a request without a response fails."""


class Fetched(NamedTuple):
    """The fetched part of one partition: whole batches, or an error."""

    place: TopicPartition
    code: ErrorCode
    log_start: int
    records: bytes
    aborted: Sequence[tuple[int, int]]
    """Aborted transactions among the records: producer id and first offset."""


async def fetch(
    connection: ClientConnection, starts: Mapping[TopicPartition, int], isolation: IsolationLevel, waits: bool
) -> Sequence[Fetched]:
    """Fetch partitions from their leader. Return one row per partition, in the order of the response.

    With `waits`, the request is a long poll, which ends once one partition has records. Raises HungUp, TimeoutError.
    """
    wait_s = WAIT_S if waits else 0.0
    request = FetchRequest(
        max_wait=timedelta(seconds=wait_s),
        min_bytes=1,
        max_bytes=ANSWER_BYTES_MAX,
        isolation_level=isolation.level,
        forgotten_topics_data=(),
        topics=tuple(
            FetchTopic(
                topic=place.topic,
                partitions=(
                    FetchPartition(
                        partition=place.partition, fetch_offset=offset, partition_max_bytes=PARTITION_BYTES_MAX
                    ),
                ),
            )
            for place, offset in starts.items()
        ),
    )
    async with asyncio.timeout(wait_s + SILENCE_S):
        answer = await connection.ask(request)
    return [
        Fetched(
            TopicPartition(topic.topic, row.partition_index),
            row.error_code,
            row.log_start_offset,
            bytes(row.records or b""),
            [(each.producer_id, each.first_offset) for each in row.aborted_transactions or ()],
        )
        for topic in answer.responses
        for row in topic.partitions
    ]
