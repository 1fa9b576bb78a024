"""End offsets of partitions: high watermarks, by ListOffsets requests to the leaders."""

import asyncio
from collections.abc import Callable, Iterable

from kio.schema.errors import ErrorCode
from kio.schema.list_offsets.v8.request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kio.schema.list_offsets.v8.response import ListOffsetsResponse

from cordwood.cluster.kafka.cluster_client import ClusterClient, Unanswered
from cordwood.cluster.kafka.fetch_request import READ_UNCOMMITTED
from cordwood.cluster.kafka.handlers.list_offsets import CONSUMER, LATEST
from cordwood.cluster.metadata.image import Image
from cordwood.storage.types import TopicPartition

Offsets = dict[TopicPartition, int]


class EndOffsets:
    """Requests of one broker to the leaders of partitions."""

    def __init__(self, cluster: ClusterClient, image: Callable[[], Image]) -> None:
        self._cluster, self._image = cluster, image

    async def of(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """Return the end offsets of those partitions whose leader answers."""
        image, by_leader = self._image(), dict[int, dict[str, list[int]]]()
        for name, index in partitions:
            topic = image.topics_by_name.get(name)
            known = None if topic is None else image.partition(topic.id, index)
            if known is not None and known.leader >= 0:
                by_leader.setdefault(known.leader, {}).setdefault(name, []).append(index)
        answers = await asyncio.gather(*(self._ask(leader, topics) for leader, topics in by_leader.items()))
        return {place: offset for answer in answers for place, offset in answer.items()}

    async def _ask(self, leader: int, topics: dict[str, list[int]]) -> Offsets:
        asked = tuple(
            ListOffsetsTopic(
                name=name,
                partitions=tuple(ListOffsetsPartition(partition_index=index, timestamp=LATEST) for index in indexes),
            )
            for name, indexes in topics.items()
        )
        request = ListOffsetsRequest(replica_id=CONSUMER, isolation_level=READ_UNCOMMITTED, topics=asked)
        try:
            response: ListOffsetsResponse = await self._cluster.ask(leader, request)
        except Unanswered:
            return {}
        return {
            TopicPartition(topic.name, row.partition_index): row.offset
            for topic in response.topics
            for row in topic.partitions
            if row.error_code is ErrorCode.none
        }
