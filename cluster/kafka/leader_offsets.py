"""Offsets of partitions, by ListOffsets requests to their leaders."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from datetime import timedelta
from itertools import starmap
from typing import Any

from kio.schema.errors import ErrorCode
from kio.schema.list_offsets.v11.request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.kafka.cluster_client import ANSWER_S, ClusterClient, Unanswered
from cordwood.cluster.kafka.fetch_request import READ_COMMITTED
from cordwood.cluster.kafka.handlers.list_offsets import CONSUMER
from cordwood.cluster.metadata.image import Image
from cordwood.cluster.metadata.leaders import Offsets, by_leader, leader_of
from cordwood.cluster.resources.turns import Turns
from cordwood.storage.steps import Steps
from cordwood.storage.types import TopicPartition

RETRIED_FOR_S, RETRY_S = 3.0, 0.1
PLACES_MAX = 1000
"""Partitions of one request, which is encoded in one step of the event loop: some 1 ms."""


class LeaderOffsets:
    """Requests of one client to the leaders of partitions, all at the same moment."""

    def __init__(self, cluster: ClusterClient, image: Callable[[], Image], turns: Turns) -> None:
        self._cluster, self._image, self._turns = cluster, image, turns

    async def known(
        self, places: Iterable[TopicPartition], timestamp: int, isolation: int = READ_COMMITTED, asker: int = CONSUMER
    ) -> Offsets:
        """Return the offsets at a timestamp, or LATEST or EARLIEST, of those partitions whose leader answers."""
        found: Offsets = {}
        for answer in await self._ask(places, timestamp, isolation, asker):
            if not isinstance(answer, Unanswered):
                async for place, row in self._rows(answer):
                    if row.error_code is ErrorCode.none:
                        found[place] = row.offset
        return found

    async def listed(
        self,
        places: Iterable[TopicPartition],
        timestamp: int,
        isolation: int = READ_COMMITTED,
        retried_for_s: float = RETRIED_FOR_S,
    ) -> Offsets:
        """Return the offset of every partition. Retries retriable errors for a while. Raises Refused."""
        names, now = list(places), asyncio.get_running_loop().time
        deadline = now() + retried_for_s
        while True:
            try:
                return await self._listed_now(names, timestamp, isolation)
            except Refused as refused:
                # A leader may have failed or moved, or may not have a new topic in its metadata yet.
                if now() > deadline or not (refused.code.retriable or refused.code is ErrorCode.broker_not_available):
                    raise
            await asyncio.sleep(RETRY_S)

    async def _listed_now(self, names: list[TopicPartition], timestamp: int, isolation: int) -> Offsets:
        image = self._image()
        async for name in self._turns.each(names):
            if leader_of(name, image) is None:
                sentence = f"Partition {name.partition} of {name.topic!r} has no leader now: try again later."
                raise Refused(ErrorCode.leader_not_available, sentence)
        found: Offsets = {}
        for answer in await self._ask(names, timestamp, isolation, CONSUMER):
            if isinstance(answer, Unanswered):
                raise Refused(ErrorCode.broker_not_available, str(answer)) from answer
            async for place, row in self._rows(answer):
                if row.error_code is not ErrorCode.none:
                    raise Refused(row.error_code)
                found[place] = row.offset
        return found

    async def _ask(self, places: Iterable[TopicPartition], timestamp: int, isolation: int, asker: int) -> list[Any]:
        """Return the responses of the leaders, or Unanswered."""

        async def answer(leader: int, some: Iterable[TopicPartition]) -> Any:
            request = await self._turns.run(_request(some, timestamp, isolation, asker))
            try:
                return await self._cluster.ask(leader, request)
            except Unanswered as unanswered:
                return unanswered

        led: Mapping[int, list[TopicPartition]] = await self._turns.run(by_leader(places, self._image()))
        parts = [
            (leader, of_leader[begin : begin + PLACES_MAX])
            for leader, of_leader in led.items()
            for begin in range(0, len(of_leader), PLACES_MAX)
        ]
        return await asyncio.gather(*starmap(answer, parts))

    async def _rows(self, answer: Any) -> AsyncIterator[tuple[TopicPartition, Any]]:
        async for name, row in self._turns.within((topic.name, topic.partitions) for topic in answer.topics):
            yield TopicPartition(name, row.partition_index), row


def _request(places: Iterable[TopicPartition], timestamp: int, isolation: int, asker: int) -> Steps[ListOffsetsRequest]:
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
