"""ListOffsets for the HTTP API: log starts, ends and positions of partitions, requested from their leaders."""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import assert_never

from kio.schema.errors import ErrorCode
from kio.schema.list_offsets.v11.request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

from cordwood.cluster.http.context import Context
from cordwood.cluster.http.places import Offsets, by_leader, leader_of
from cordwood.cluster.http.refusal import NOT_NOW, HttpRefusal, check
from cordwood.cluster.kafka.cluster_client import ANSWER_S, Unanswered
from cordwood.cluster.kafka.fetch_request import READ_COMMITTED
from cordwood.cluster.kafka.handlers.list_offsets import CONSUMER, DEBUGGER, EARLIEST, LATEST
from cordwood.cluster.operations.positions import AtOffset, AtTime, Edge, Position
from cordwood.storage.steps import Steps
from cordwood.storage.types import TopicPartition

RETRIED_FOR_S, RETRY_S = 3.0, 0.1


async def starts(context: Context, places: Iterable[TopicPartition]) -> Offsets:
    """Return the log start offset of each partition. Partitions whose leader does not respond are left out."""
    return await _known(context, places, EARLIEST)


async def committed_ends(context: Context, places: Iterable[TopicPartition]) -> Offsets:
    """Return the end of what consumers may read. Partitions whose leader does not respond are left out."""
    return await _known(context, places, LATEST)


async def log_ends(context: Context, places: Iterable[TopicPartition]) -> Offsets:
    """Return the leader's log end, committed or not. Partitions whose leader does not respond are left out."""
    return await _known(context, places, LATEST, DEBUGGER)


async def resolve(
    context: Context, position: Position, places: Iterable[TopicPartition], isolation: int = READ_COMMITTED
) -> Offsets:
    """Return the offset of a position in each partition, always within the log. Raises HttpRefusal."""
    names = list(places)
    match position:
        case Edge.EARLIEST:
            return await _all(context, names, EARLIEST, isolation)
        case Edge.LATEST:
            return await _all(context, names, LATEST, isolation)
        case AtOffset(offset):
            return await clamped(context, dict.fromkeys(names, offset), isolation)
        case AtTime(timestamp_ms):
            found = await _all(context, names, timestamp_ms, isolation)
            none_so_late = [name async for name in context.turns.each(names) if found[name] < 0]
            late = await _all(context, none_so_late, LATEST, isolation)
            return {**found, **late}
        case _:
            assert_never(position)


async def clamped(context: Context, wanted: Mapping[TopicPartition, int], isolation: int = READ_COMMITTED) -> Offsets:
    """Return the offsets, each limited to the range of its partition. Raises HttpRefusal."""
    begins = await _all(context, wanted, EARLIEST, isolation)
    ends = await _all(context, wanted, LATEST, isolation)
    return {
        place: min(max(offset, begins[place]), ends[place])
        async for place, offset in context.turns.each(wanted.items())
    }


async def _all(context: Context, places: Iterable[TopicPartition], timestamp: int, isolation: int) -> Offsets:
    """Return the offset of every partition. Retries retriable errors for RETRIED_FOR_S. Raises HttpRefusal."""
    names, now = list(places), asyncio.get_running_loop().time
    deadline = now() + RETRIED_FOR_S
    while True:
        try:
            return await _all_now(context, names, timestamp, isolation)
        except HttpRefusal as refusal:
            # A leader may not have a new topic in its metadata yet.
            is_new = refusal.code is ErrorCode.unknown_topic_or_partition
            if now() > deadline or not (is_new or refusal.status == NOT_NOW):
                raise
        await asyncio.sleep(RETRY_S)


async def _all_now(context: Context, places: Iterable[TopicPartition], timestamp: int, isolation: int) -> Offsets:
    names, turns = list(places), context.turns
    async for name in turns.each(names):
        if leader_of(name, context.image) is None:
            sentence = f"Partition {name.partition} of {name.topic!r} has no leader now: try again later."
            raise HttpRefusal(NOT_NOW, sentence, ErrorCode.leader_not_available)
    found: Offsets = {}
    for leader, led in (await turns.run(by_leader(names, context.image))).items():
        try:
            answer = await context.cluster.ask(leader, await turns.run(_request(led, timestamp, CONSUMER, isolation)))
        except Unanswered as unanswered:
            raise HttpRefusal(NOT_NOW, str(unanswered), ErrorCode.broker_not_available) from unanswered
        async for name, row in turns.within((topic.name, topic.partitions) for topic in answer.topics):
            check(row.error_code)
            found[TopicPartition(name, row.partition_index)] = row.offset
    return found


async def _known(context: Context, places: Iterable[TopicPartition], timestamp: int, asker: int = CONSUMER) -> Offsets:
    turns = context.turns
    led = await turns.run(by_leader(places, context.image))
    requests = {leader: await turns.run(_request(of_leader, timestamp, asker)) for leader, of_leader in led.items()}
    answers = await context.cluster.ask_all(requests, requests.__getitem__)
    topics = (topic for answer in answers.values() if answer is not None for topic in answer.topics)
    return {
        TopicPartition(name, row.partition_index): row.offset
        async for name, row in turns.within((topic.name, topic.partitions) for topic in topics)
        if row.error_code is ErrorCode.none
    }


def _request(
    places: Iterable[TopicPartition], timestamp: int, asker: int, isolation: int = READ_COMMITTED
) -> Steps[ListOffsetsRequest]:
    by_topic: defaultdict[str, list[ListOffsetsPartition]] = defaultdict(list)
    for place in places:
        row = ListOffsetsPartition(partition_index=place.partition, timestamp=timestamp)
        by_topic[place.topic].append(row)
        yield
    return ListOffsetsRequest(
        replica_id=asker,
        isolation_level=isolation,
        topics=tuple(ListOffsetsTopic(name=name, partitions=tuple(rows)) for name, rows in by_topic.items()),
        timeout=timedelta(seconds=ANSWER_S),
    )
