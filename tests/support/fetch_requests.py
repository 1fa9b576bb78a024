"""Fetch requests as raw frames, and their responses."""

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple
from uuid import UUID

from handlers_fixture import MB, Client, HandlersStory, milliseconds, values_in
from kio.schema.errors import ErrorCode
from replica_fixture import TOPIC_ID
from roles_fixture import TOPIC

from cordwood.cluster.kafka.handlers import fetch as handler

NAMED = 12
"""The last version with topic names instead of topic ids."""
NO_SESSION, FULL, INITIAL = 0, -1, 0
READ_UNCOMMITTED, READ_COMMITTED = 0, 1


class Row(NamedTuple):
    """One partition's part of a response."""

    code: ErrorCode
    values: list[tuple[int, str]]
    high_watermark: int
    log_start: int
    preferred: int


def wanted(offset: int = 0, *, index: int = 0, epoch: int = -1, bytes_max: int = MB) -> dict[str, Any]:
    return {
        "partition": index,
        "fetch_offset": offset,
        "current_leader_epoch": epoch,
        "partition_max_bytes": bytes_max,
    }


def fields(
    partitions: Sequence[dict[str, Any]],
    *,
    topic: str = TOPIC,
    topic_id: UUID = TOPIC_ID,
    wait_ms: int = 0,
    bytes_min: int = 1,
    bytes_max: int = MB,
    session: tuple[int, int] = (NO_SESSION, FULL),
    forgotten: Sequence[int] = (),
    rack: str = "",
    isolation: int = READ_UNCOMMITTED,
) -> dict[str, Any]:
    return {
        "max_wait": milliseconds(wait_ms),
        "min_bytes": bytes_min,
        "max_bytes": bytes_max,
        "isolation_level": isolation,
        "session_id": session[0],
        "session_epoch": session[1],
        "topics": ({"topic": topic, "topic_id": topic_id, "partitions": partitions},) if partitions else (),
        "forgotten_topics_data": ({"topic": topic, "topic_id": topic_id, "partitions": tuple(forgotten)},)
        if forgotten
        else (),
        "rack_id": rack,
    }


async def fetch(story: HandlersStory, *partitions: dict[str, Any], version: int = NAMED, **options: Any) -> Any:
    return await story.ask(handler.KEY, version, **fields(partitions, **options))


def send(
    story: HandlersStory, *partitions: dict[str, Any], client: Client | None = None, **options: Any
) -> "asyncio.Future[Any]":
    """Send a fetch that may have to wait."""
    return (client or story.client).send(handler.KEY, NAMED, **fields(partitions, **options))


def rows(response: Any) -> dict[int, Row]:
    """Return the rows by partition, in the order of the response."""
    return {
        row.partition_index: Row(
            row.error_code,
            values_in(row.records),
            row.high_watermark,
            getattr(row, "log_start_offset", -1),
            getattr(row, "preferred_read_replica", -1),
        )
        for topic in response.responses
        for row in topic.partitions
    }


async def fetch_one(story: HandlersStory, *args: Any, **options: Any) -> Row:
    """Return the row of partition 0. Options go to `wanted` and `fields`."""
    of_partition = {name: options.pop(name) for name in ("epoch", "bytes_max") if name in options}
    (row,) = rows(await fetch(story, wanted(*args, **of_partition), **options)).values()
    return row


class Session:
    """A consumer's fetch session, with its epoch counted as a client counts it."""

    def __init__(self, broker: HandlersStory, client: Client | None = None) -> None:
        self.broker, self.client = broker, client or broker.client
        self.id, self.epoch = NO_SESSION, INITIAL

    async def fetch(self, *partitions: dict[str, Any], forgotten: Sequence[int] = ()) -> dict[int, Row]:
        response = await send(
            self.broker, *partitions, client=self.client, session=(self.id, self.epoch), forgotten=forgotten
        )
        assert response.error_code is ErrorCode.none
        self.id, self.epoch = response.session_id, self.epoch + 1
        return rows(response)
