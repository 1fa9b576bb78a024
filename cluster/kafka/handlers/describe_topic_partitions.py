"""DescribeTopicPartitions (75): topics in name order with their partitions, in pages (KIP-966).

Java's admin client describes topics with it, and follows `next_cursor` to the last page.
"""

from collections.abc import Iterator, Mapping, Sequence

from kio.schema.describe_topic_partitions.v0.request import DescribeTopicPartitionsRequest
from kio.schema.describe_topic_partitions.v0.response import (
    Cursor,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from kio.schema.errors import ErrorCode

from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.authorized import NOT_ASKED
from cordwood.cluster.kafka.call import NO_THROTTLE, Call
from cordwood.cluster.kafka.client_endpoints import offline_replicas, reachable
from cordwood.cluster.kafka.rights import DESCRIBE, TOPIC, Right, Rights
from cordwood.cluster.kafka.rows import generated, rows
from cordwood.cluster.metadata.image import NO_LEADER, Image, PartitionImage, TopicImage
from cordwood.cluster.proposals.topics import INTERNAL_TOPICS, check_name
from cordwood.storage.steps import Steps, in_order

KEY = ApiKey.DESCRIBE_TOPIC_PARTITIONS
RIGHTS: Rights = (Right(DESCRIBE, TOPIC, "other topics are left out of a list of all"),)

PARTITIONS_PER_PAGE_MAX = 2000
"""Maximum number of partitions in a page: the default of Kafka's max.request.partition.size.limit."""


async def handle(request: DescribeTopicPartitionsRequest, call: Call) -> DescribeTopicPartitionsResponse:
    image, cursor = call.services.quorum.image, request.cursor
    asked = {topic.name: None async for topic in call.turns.each(request.topics)}
    first, start = ("", 0) if cursor is None else (cursor.topic_name, cursor.partition_index)
    if start < 0 or (asked and cursor is not None and first not in asked):
        # As in Kafka, the refusal has a row for each topic that the request names.
        topics = rows(lambda name: _topic(name, ErrorCode.invalid_request, None, ()), asked)
        return DescribeTopicPartitionsResponse(throttle_time=NO_THROTTLE, topics=topics, next_cursor=None)
    may = call.may if asked else call.may_see
    hidden: list[str] = []
    operations: dict[str, int] = {}
    async for name in call.turns.each(asked or image.topics_by_name):
        if name >= first:
            if may(DESCRIBE, TOPIC, name):
                operations[name] = call.operations(TOPIC, name)
            elif asked:
                hidden.append(name)
    # With an empty page the client would request the same page forever.
    limit = max(1, min(request.response_partition_limit, PARTITIONS_PER_PAGE_MAX))
    page = _Page(image, call.listener, limit, operations, hidden)
    names = await call.turns.run(in_order(operations, str))
    return await call.turns.run(page.of(names, {first: start}))


class _Page:
    """One page: a response with a limited number of partitions."""

    def __init__(
        self, image: Image, listener: str, limit: int, operations: Mapping[str, int], hidden: Sequence[str]
    ) -> None:
        self._image, self._room, self._operations, self._hidden = image, limit, operations, hidden
        self._reachable = reachable(image, listener)

    def of(self, names: list[str], starts: dict[str, int]) -> Steps[DescribeTopicPartitionsResponse]:
        """Fill the page with topics, each from its partition in `starts` (default 0), and return the response."""
        topics, cursor = [], None
        for name in names:
            yield
            start = starts.get(name, 0)
            if self._room == 0:
                cursor = Cursor(topic_name=name, partition_index=start)
                break
            known = self._image.topics_by_name.get(name)
            if known is None:
                topics.append(_topic(name, _why_unknown(name), None, (), self._operations[name]))
                continue
            page = known.partitions[start : start + self._room]
            self._room -= len(page)
            partitions = rows(self._partition, list(enumerate(page, start)))
            topics.append(_topic(name, ErrorCode.none, known, partitions, self._operations[name]))
            if start + len(page) < len(known.partitions):
                cursor = Cursor(topic_name=name, partition_index=start + len(page))
                break

        def all_topics() -> Iterator[DescribeTopicPartitionsResponseTopic]:
            yield from topics
            # As in Kafka, the response does not show whether the topics that the client may not describe exist.
            for name in self._hidden:
                yield _topic(name, ErrorCode.topic_authorization_failed, None, ())

        rows_of_all = generated(all_topics, len(topics) + len(self._hidden))
        return DescribeTopicPartitionsResponse(throttle_time=NO_THROTTLE, topics=rows_of_all, next_cursor=cursor)

    def _partition(self, place: tuple[int, PartitionImage]) -> DescribeTopicPartitionsResponsePartition:
        index, partition = place
        return DescribeTopicPartitionsResponsePartition(
            error_code=ErrorCode.none,
            partition_index=index,
            leader_id=int(partition.leader) if partition.leader in self._reachable else NO_LEADER,
            leader_epoch=partition.leader_epoch,
            replica_nodes=partition.replicas,
            isr_nodes=partition.isr,
            eligible_leader_replicas=partition.elr,
            # Empty rather than null, as in Kafka: no election here uses the last known ELR.
            last_known_elr=(),
            offline_replicas=offline_replicas(partition, self._image),
        )


def _why_unknown(name: str) -> ErrorCode:
    try:
        check_name(name)
    except Refused as refusal:
        return refusal.code
    return ErrorCode.unknown_topic_or_partition


def _topic(
    name: str,
    code: ErrorCode,
    known: TopicImage | None,
    partitions: tuple[DescribeTopicPartitionsResponsePartition, ...],
    operations: int = NOT_ASKED,
) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=code,
        name=name,
        topic_id=None if known is None else known.id,
        is_internal=known is not None and name in INTERNAL_TOPICS,
        partitions=partitions,
        topic_authorized_operations=operations,
    )
