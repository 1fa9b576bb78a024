"""DescribeShareGroupOffsets (90): the start offsets and lags of share groups on partitions (KIP-932, KIP-1226).

Version notes: 1 adds the lag: the records from the start offset on that are not delivered and done.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

from kio.schema.describe_share_group_offsets.v1.request import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from kio.schema.describe_share_group_offsets.v1.response import (
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from kio.schema.errors import ErrorCode

from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.groups.share.state_requests import StateSummary
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import NO_THROTTLE, Call
from cordwood.cluster.kafka.fetch_request import READ_UNCOMMITTED
from cordwood.cluster.kafka.handlers.list_offsets import LATEST
from cordwood.cluster.kafka.named_partitions import by_topic
from cordwood.cluster.kafka.rights import DESCRIBE, GROUP, TOPIC, Right, Rights, refusal_of
from cordwood.cluster.kafka.rows import rows
from cordwood.storage.types import TopicPartition

KEY = ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS
RIGHTS: Rights = (Right(DESCRIBE, GROUP), Right(DESCRIBE, TOPIC, "left out of a list of all topics"))
ITEMS_MAX = 10_000
"""Each partition is one request to a share coordinator, and one to the partition's leader."""

UNKNOWN = -1
_FIRST_WITH_LAG = 1


class _Place(NamedTuple):
    """The answer about one partition."""

    start_offset: int = UNKNOWN
    leader_epoch: int = 0
    lag: int = UNKNOWN
    code: ErrorCode = ErrorCode.none
    message: str | None = None


async def handle(request: DescribeShareGroupOffsetsRequest, call: Call) -> DescribeShareGroupOffsetsResponse:
    async def described(group: DescribeShareGroupOffsetsRequestGroup) -> DescribeShareGroupOffsetsResponseGroup:
        code, message, topics = ErrorCode.none, None, ()
        try:
            call.require(DESCRIBE, GROUP, group.group_id)
            topics = await _topics(group, call)
        except Refused as refusal:
            code, message = refusal.code, refusal.message
        return DescribeShareGroupOffsetsResponseGroup(
            group_id=group.group_id, topics=topics, error_code=code, error_message=message
        )

    groups = await call.turns.gather(described, request.groups)
    return DescribeShareGroupOffsetsResponse(throttle_time=NO_THROTTLE, groups=tuple(groups))


async def _topics(
    group: DescribeShareGroupOffsetsRequestGroup, call: Call
) -> tuple[DescribeShareGroupOffsetsResponseTopic, ...]:
    """Describe the topics that the request names; all topics that the group has read for a request without names."""
    is_all = group.topics is None
    asked = await call.turns.run(by_topic(_all(group.group_id, call) if is_all else _named(group)))
    permitted = await call.permitted(DESCRIBE, TOPIC, asked)
    shown_topics = ((name, asked[name]) for name in asked if name in permitted)
    wanted = [TopicPartition(name, index) async for name, index in call.turns.within(shown_topics)]
    # A request of many groups: the places of a group are a step of their own.
    await call.turns.turn()
    shown = await _places(group.group_id, wanted, call)
    refused = refusal_of(TOPIC)
    hidden = _Place(code=refused.code, message=refused.message)
    topics = [name for name in asked if not is_all or name in permitted]
    return rows(partial(_row, call, asked, lambda place: shown.get(place, hidden)), topics)


def _named(group: DescribeShareGroupOffsetsRequestGroup) -> Iterator[tuple[str, Iterable[int]]]:
    return ((topic.topic_name, topic.partitions) for topic in group.topics or ())


def _all(group_id: str, call: Call) -> Iterator[tuple[str, Iterable[int]]]:
    states = call.services.groups.shares.group(group_id).states
    known = call.services.quorum.image.topics_by_id
    return (
        (name, sorted(states.initialized_of(id_))) for id_, name in states.initialized_topics.items() if id_ in known
    )


async def _places(group_id: str, wanted: list[TopicPartition], call: Call) -> dict[TopicPartition, _Place]:
    summaries = await call.services.groups.shares.summaries(group_id, wanted)
    begun = [place async for place, summary in call.turns.each(summaries.items()) if _start_of(summary) != UNKNOWN]
    offsets, has_lag = call.services.leader_offsets, call.version >= _FIRST_WITH_LAG
    ends = await offsets.known(begun, LATEST, READ_UNCOMMITTED) if has_lag else {}
    return {place: _place(summary, ends.get(place)) async for place, summary in call.turns.each(summaries.items())}


def _start_of(summary: StateSummary | Refused | None) -> int:
    return UNKNOWN if summary is None or isinstance(summary, Refused) else summary.start_offset


def _place(summary: StateSummary | Refused | None, end_offset: int | None) -> _Place:
    if summary is None:
        return _Place()
    if isinstance(summary, Refused):
        return _Place(code=summary.code, message=summary.message)
    lag = UNKNOWN
    if end_offset is not None and summary.delivery_complete_count >= 0:
        lag = max(end_offset - summary.start_offset - summary.delivery_complete_count, 0)
    return _Place(summary.start_offset, summary.leader_epoch, lag)


def _row(
    call: Call, asked: Mapping[str, Iterable[int]], place_of: Any, name: str
) -> DescribeShareGroupOffsetsResponseTopic:
    topic = call.services.quorum.image.topics_by_name.get(name)

    def partition_row(index: int) -> DescribeShareGroupOffsetsResponsePartition:
        place = place_of((name, index))
        return DescribeShareGroupOffsetsResponsePartition(
            partition_index=index,
            start_offset=place.start_offset,
            leader_epoch=place.leader_epoch,
            lag=place.lag,
            error_code=place.code,
            error_message=place.message,
        )

    return DescribeShareGroupOffsetsResponseTopic(
        topic_name=name, topic_id=None if topic is None else topic.id, partitions=rows(partition_row, list(asked[name]))
    )
