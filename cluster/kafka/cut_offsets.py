"""Offsets of a new cut, from the leaders of its partitions, and the wait until every broker has pinned them."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kio.schema.errors import ErrorCode

from cordwood.client.cut_messages import DescribeCutsRequest
from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.kafka.cluster_client import ClusterClient
from cordwood.cluster.kafka.fetch_request import READ_COMMITTED
from cordwood.cluster.kafka.handlers.list_offsets import EARLIEST, LATEST
from cordwood.cluster.kafka.leader_offsets import LeaderOffsets
from cordwood.cluster.metadata.cuts import Cut
from cordwood.cluster.metadata.image import Image
from cordwood.storage.types import TopicPartition

PATIENCE_S, PAUSE_S = 5.0, 0.1


class CutOffsets:
    """Requests of one broker to the leaders of the partitions of a cut."""

    def __init__(self, offsets: LeaderOffsets, cluster: ClusterClient, image: Callable[[], Image]) -> None:
        self._offsets, self._cluster, self._image = offsets, cluster, image

    async def starts(self, topics: Iterable[str]) -> Mapping[TopicPartition, int]:
        """Return the log start offset of every partition. Raises Refused."""
        return await self._list(topics, EARLIEST)

    async def stable_ends(self, topics: Iterable[str]) -> Mapping[TopicPartition, int]:
        """Return the last stable offset of every partition. Raises Refused."""
        return await self._list(topics, LATEST)

    async def pinned_everywhere(self, cut: Cut) -> None:
        """Wait until every broker in service has applied the cut. Raises Refused."""
        request, deadline = DescribeCutsRequest(names=(cut.name,)), _now() + PATIENCE_S
        while True:
            image = self._image()
            wanted = [broker_id for broker_id in image.brokers if image.is_in_service(broker_id)]
            answers = await self._cluster.ask_all(map(int, wanted), lambda _: request)
            missing = sorted(broker_id for broker_id, answer in answers.items() if not _has(answer, cut))
            if not missing:
                return
            if _now() > deadline:
                names = ", ".join(map(str, missing))
                raise Refused(ErrorCode.request_timed_out, f"Broker {names} does not know the cut yet: try again.")
            await asyncio.sleep(PAUSE_S)

    async def _list(self, topics: Iterable[str], timestamp: int) -> Mapping[TopicPartition, int]:
        image = self._image()
        places = [TopicPartition(name, index) for name in topics for index in range(_partitions(image, name))]
        return await self._offsets.listed(places, timestamp, READ_COMMITTED, PATIENCE_S)


def _partitions(image: Image, name: str) -> int:
    topic = image.topics_by_name.get(name)
    if topic is None:
        raise Refused(ErrorCode.unknown_topic_or_partition, f"There is no topic {name!r}.")
    return len(topic.partitions)


def _has(answer: Any, cut: Cut) -> bool:
    return answer is not None and any(one.created_ms == cut.created_ms for one in answer.cuts)


def _now() -> float:
    return asyncio.get_running_loop().time()
