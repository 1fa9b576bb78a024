"""Deletion of groups, and of their offsets of topics."""

from collections.abc import Sequence
from typing import Any

from kio.schema.delete_groups.v2.request import DeleteGroupsRequest
from kio.schema.errors import ErrorCode
from kio.schema.offset_delete.v0.request import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)

from cordwood.cluster.cli.exits import Failure
from cordwood.cluster.cli.groups.client import GroupRequests, check
from cordwood.cluster.cli.groups.description import Description, GroupType
from cordwood.cluster.cli.groups.shares import delete_share_offsets


def delete_group(client: GroupRequests, group: str) -> bool:
    """Delete a group. Return False if there is no such group. Raises Failure."""
    request = DeleteGroupsRequest(groups_names=(group,))
    (result,) = client.ask(group, request, lambda answer: answer.results[0].error_code).results
    if result.error_code is ErrorCode.group_id_not_found:
        return False
    if result.error_code is ErrorCode.non_empty_group:
        raise Failure(f"group {group!r} has running members: stop them, then delete it.")
    check(result.error_code)
    return True


def delete_offsets(client: GroupRequests, described: Description, topics: Sequence[str]) -> None:
    """Delete the offsets of topics that no member subscribes to. Raises Failure."""
    if described.type is GroupType.SHARE:
        delete_share_offsets(client, described.group, topics)
        return
    partitions = _partitions(client, topics)
    request = OffsetDeleteRequest(
        group_id=described.group,
        topics=tuple(
            OffsetDeleteRequestTopic(
                name=topic,
                partitions=tuple(OffsetDeleteRequestPartition(partition_index=index) for index in partitions[topic]),
            )
            for topic in topics
        ),
    )
    response: Any = client.ask(described.group, request, lambda answer: answer.error_code)
    check(response.error_code)
    for topic in response.topics:
        for row in topic.partitions:
            if row.error_code is ErrorCode.group_subscribed_to_topic:
                raise Failure(f"members of group {described.group!r} read {topic.name!r}: stop them first.")
            check(row.error_code)


def _partitions(client: GroupRequests, topics: Sequence[str]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {topic: [] for topic in topics}
    for topic, index in client.leaders(list(topics)):
        found[topic].append(index)
    for topic, indexes in found.items():
        if not indexes:
            raise Failure(f"there is no topic {topic!r}, or none of its partitions has a leader.")
    return found
