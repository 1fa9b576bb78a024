"""Offsets of share groups: their start offsets, lag and records in flight, and changes of them."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from kio.schema.alter_share_group_offsets.v0.request import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from kio.schema.delete_share_group_offsets.v0.request import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from kio.schema.describe_share_group_offsets.v1.request import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from kio.schema.errors import ErrorCode

from cordwood.client.queue_messages import DescribedSharePartition, DescribeSharePartitionsRequest
from cordwood.cluster.cli.groups.client import GroupRequests, check, refused
from cordwood.storage.types import TopicPartition


class ShareOffsets(NamedTuple):
    """A share group's offsets in a partition. Unknown values are None."""

    start: int | None
    lag: int | None


def share_offsets(client: GroupRequests, group: str) -> dict[TopicPartition, ShareOffsets]:
    """Return the offsets of all partitions that the group has state for. Raises Failure."""
    request = DescribeShareGroupOffsetsRequest(
        groups=(DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=None),)
    )
    (found,) = client.ask(group, request, lambda answer: answer.groups[0].error_code).groups
    check(found.error_code, found.error_message)
    offsets = {}
    for topic in found.topics:
        for row in topic.partitions:
            check(row.error_code, row.error_message)
            place = TopicPartition(str(topic.topic_name), int(row.partition_index))
            offsets[place] = ShareOffsets(_known(row.start_offset), _known(row.lag))
    return offsets


def in_flight(
    client: GroupRequests, group: str, places: Iterable[TopicPartition]
) -> dict[TopicPartition, DescribedSharePartition]:
    """Return the states of the partitions at their leaders. A leader that does not answer is left out."""
    leaders = client.leaders(sorted({place.topic for place in places}))
    found: dict[TopicPartition, DescribedSharePartition] = {}
    for address in sorted(set(leaders.values())):
        try:
            answer = client.ask_at(address, DescribeSharePartitionsRequest(group_id=group))
        except OSError:
            # Brokers of version 0.2 do not know the request.
            continue
        if answer.error_code is ErrorCode.none:
            found |= {TopicPartition(row.topic_name, row.partition_index): row for row in answer.partitions}
    return found


def alter_share_offsets(client: GroupRequests, group: str, targets: Mapping[TopicPartition, int]) -> None:
    """Set the start offsets of partitions. Raises Failure."""
    by_topic: defaultdict[str, list[AlterShareGroupOffsetsRequestPartition]] = defaultdict(list)
    for place, offset in targets.items():
        by_topic[place.topic].append(
            AlterShareGroupOffsetsRequestPartition(partition_index=place.partition, start_offset=offset)
        )
    request = AlterShareGroupOffsetsRequest(
        group_id=group,
        topics=tuple(
            AlterShareGroupOffsetsRequestTopic(topic_name=name, partitions=tuple(rows))
            for name, rows in by_topic.items()
        ),
    )
    answer = client.ask(group, request, _code)
    check(answer.error_code, answer.error_message)
    for topic in answer.responses:
        for row in topic.partitions:
            if row.error_code is not ErrorCode.none:
                raise refused(row.error_code, row.error_message)


def delete_share_offsets(client: GroupRequests, group: str, topics: Iterable[str]) -> None:
    """Delete the group's state of topics. Raises Failure."""
    request = DeleteShareGroupOffsetsRequest(
        group_id=group, topics=tuple(DeleteShareGroupOffsetsRequestTopic(topic_name=topic) for topic in topics)
    )
    answer = client.ask(group, request, _code)
    check(answer.error_code, answer.error_message)
    for row in answer.responses:
        check(row.error_code, row.error_message)


def _code(answer: Any) -> ErrorCode:
    code: ErrorCode = answer.error_code
    return code


def _known(number: int) -> int | None:
    return None if number < 0 else int(number)
