"""Offsets of a new cut, from the leaders of its partitions, and the wait until every broker has pinned them."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any

from kio.schema.errors import ErrorCode
from kio.schema.list_offsets.v11.request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

from cordwood.client.cut_messages import DescribeCutsRequest
from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.kafka.cluster_client import ANSWER_S, ClusterClient
from cordwood.cluster.kafka.fetch_request import READ_COMMITTED
from cordwood.cluster.kafka.handlers.list_offsets import CONSUMER, EARLIEST, LATEST
from cordwood.cluster.metadata.cuts import Cut
from cordwood.cluster.metadata.image import NO_LEADER, Image, TopicImage

PATIENCE_S, PAUSE_S = 5.0, 0.1

Offsets = Mapping[tuple[str, int], int]
"""Offsets by topic and partition."""


class CutOffsets:
    """Requests of one broker to the leaders of the partitions of a cut."""

    def __init__(self, cluster: ClusterClient, image: Callable[[], Image]) -> None:
        self._cluster, self._image = cluster, image

    async def starts(self, topics: Iterable[str]) -> Offsets:
        """Return the log start offset of every partition. Raises Refused."""
        return await self._list([*topics], EARLIEST)

    async def stable_ends(self, topics: Iterable[str]) -> Offsets:
        """Return the last stable offset of every partition. Raises Refused."""
        return await self._list([*topics], LATEST)

    async def pinned_everywhere(self, cut: Cut) -> None:
        """Wait until every broker in service knows the cut. Raises Refused."""
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

    async def _list(self, topics: list[str], timestamp: int) -> Offsets:
        deadline = _now() + PATIENCE_S
        while True:
            try:
                return await self._list_now(topics, timestamp)
            except Refused:
                # A leader has failed or moved: the next image has another one.
                if _now() > deadline:
                    raise
            await asyncio.sleep(PAUSE_S)

    async def _list_now(self, names: list[str], timestamp: int) -> Offsets:
        requests = self._requests(names, timestamp)
        # All leaders are asked at the same moment.
        answers = await self._cluster.ask_all(requests, requests.__getitem__)
        found: dict[tuple[str, int], int] = {}
        for broker_id, answer in answers.items():
            if answer is None:
                raise Refused(ErrorCode.broker_not_available, f"Broker {broker_id} did not answer: try again later.")
            for topic in answer.topics:
                for row in topic.partitions:
                    if row.error_code is not ErrorCode.none:
                        raise Refused(row.error_code, f"The leader of {topic.name}-{row.partition_index} refused.")
                    found[topic.name, row.partition_index] = row.offset
        return found

    def _requests(self, names: list[str], timestamp: int) -> dict[int, ListOffsetsRequest]:
        """Return the request to each leader. Raises Refused if a partition has none."""
        image = self._image()
        led: defaultdict[int, dict[str, tuple[ListOffsetsPartition, ...]]] = defaultdict(dict)
        for name in names:
            for leader, rows in _by_leader(_topic(image, name), timestamp).items():
                led[leader][name] = rows
        return {
            leader: ListOffsetsRequest(
                replica_id=CONSUMER,
                isolation_level=READ_COMMITTED,
                topics=tuple([ListOffsetsTopic(name=name, partitions=rows) for name, rows in topics.items()]),
                timeout=timedelta(seconds=ANSWER_S),
            )
            for leader, topics in led.items()
        }


def _by_leader(topic: TopicImage, timestamp: int) -> dict[int, tuple[ListOffsetsPartition, ...]]:
    rows: defaultdict[int, list[ListOffsetsPartition]] = defaultdict(list)
    for index, partition in enumerate(topic.partitions):
        if partition.leader == NO_LEADER:
            message = f"Partition {index} of {topic.name!r} has no leader now: try again later."
            raise Refused(ErrorCode.leader_not_available, message)
        rows[int(partition.leader)].append(ListOffsetsPartition(partition_index=index, timestamp=timestamp))
    return {leader: tuple(of_leader) for leader, of_leader in rows.items()}


def _topic(image: Image, name: str) -> TopicImage:
    topic = image.topics_by_name.get(name)
    if topic is None:
        raise Refused(ErrorCode.unknown_topic_or_partition, f"There is no topic {name!r}.")
    return topic


def _has(answer: Any, cut: Cut) -> bool:
    return answer is not None and any(one.created_ms == cut.created_ms for one in answer.cuts)


def _now() -> float:
    return asyncio.get_running_loop().time()
