"""Leader elections and partition reassignments over HTTP."""

import asyncio
from collections import defaultdict
from enum import Enum
from typing import Annotated

import msgspec
from kio.schema.alter_partition_reassignments.v1.request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kio.schema.elect_leaders.v2.request import ElectLeadersRequest, TopicPartitions
from kio.schema.errors import ErrorCode
from kio.schema.list_partition_reassignments.v0.request import ListPartitionReassignmentsRequest
from kio.schema.list_partition_reassignments.v0.response import OngoingPartitionReassignment

from cordwood.cluster.http.api.partitions import Replicas, replicas_of
from cordwood.cluster.http.api.topics import TIMEOUT, BrokerIds, Items, PartitionIndex
from cordwood.cluster.http.context import Context
from cordwood.cluster.http.refusal import check, refusal_of
from cordwood.cluster.http.route import ApiRequest, Nothing, Route
from cordwood.cluster.http.security.rights import ALTER_CLUSTER, DESCRIBE_CLUSTER
from cordwood.cluster.metadata.commands import Election
from cordwood.cluster.metadata.image import PartitionImage
from cordwood.cluster.operations.moves import MoveProgress, Place, minutes_left, progress_of
from cordwood.storage.types import TopicPartition


class ElectionType(Enum):
    """The kind of election."""

    PREFERRED = "preferred"
    """The first of the replicas, if it is in sync."""
    UNCLEAN = "unclean"
    """Any replica, if none is in sync. Records that only the others have are lost."""


class PartitionName(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A topic partition."""

    topic: str
    partition: PartitionIndex


class NewElections(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The partitions that are to get another leader."""

    type: ElectionType = ElectionType.PREFERRED
    partitions: Annotated[list[PartitionName], Items] | None = None
    """If left out, all partitions that are not led as requested."""


class PartitionOutcome(msgspec.Struct, frozen=True):
    """The result for one partition."""

    topic: str
    partition: int
    is_done: bool
    code: str
    """NONE on success, otherwise the name of the Kafka error code."""
    error: str | None


class Outcomes(msgspec.Struct, frozen=True):
    """The results of all partitions."""

    partitions: list[PartitionOutcome]


class Move(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A partition to be reassigned to other brokers."""

    topic: str
    partition: PartitionIndex
    replicas: BrokerIds | None
    """The new replicas, the preferred leader first; null cancels a reassignment in progress."""


class NewMoves(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Partitions to be reassigned."""

    moves: Annotated[list[Move], Items]


class OngoingMove(msgspec.Struct, frozen=True):
    """A reassignment in progress. It is complete when no replica is being added or removed."""

    topic: str
    partition: int
    replicas: list[int]
    adding: list[int]
    removing: list[int]
    bytes_total: int | None
    """The size of the added replicas once they are complete; null if no broker reports it."""
    bytes_left: int | None
    """The bytes that are still to be copied."""
    bytes_per_second: float | None
    """The rate since this broker was asked before, over at most 30 s; null at the first time."""
    minutes_left: float | None
    """The expected time; null if it is not known or nothing is copied."""


class OngoingMoves(msgspec.Struct, frozen=True):
    """All reassignments in progress."""

    moves: list[OngoingMove]


async def elect_leaders(asked: ApiRequest[Nothing, NewElections]) -> Outcomes:
    """Elect leaders: the preferred replicas, or any in an unclean election."""
    wanted = asked.body.partitions
    election = Election.PREFERRED if asked.body.type is ElectionType.PREFERRED else Election.UNCLEAN
    by_topic: defaultdict[str, list[int]] = defaultdict(list)
    for name in wanted or ():
        by_topic[name.topic].append(name.partition)
    topics = tuple(TopicPartitions(topic=topic, partitions=tuple(indexes)) for topic, indexes in by_topic.items())
    request = ElectLeadersRequest(
        election_type=int(election), topic_partitions=None if wanted is None else topics, timeout=TIMEOUT
    )
    answer = await asked.context.cluster.ask(None, request)
    results = answer.replica_election_results
    if not results:
        check(answer.error_code)
    return Outcomes(
        [
            _outcome(topic.topic, row.partition_id, row.error_code, row.error_message)
            for topic in results
            for row in topic.partition_result
        ]
    )


async def list_moves(asked: ApiRequest[Nothing, Nothing]) -> OngoingMoves:
    """List the partition reassignments in progress, with their progress in bytes and minutes."""
    context = asked.context
    answer = await context.cluster.ask(None, ListPartitionReassignmentsRequest(timeout=TIMEOUT, topics=None))
    check(answer.error_code, answer.error_message)
    found = {
        TopicPartition(topic.name, row.partition_index): row for topic in answer.topics for row in topic.partitions
    }
    images = {place: partition for place in found if (partition := _partition(place, context)) is not None}
    held = await replicas_of(images, context)
    progress = {place: _progress(place, row, held) for place, row in found.items()}
    left: dict[Place, int | None] = {place: each.bytes_left for place, each in progress.items()}
    rates = context.move_rates.observe(left, asyncio.get_running_loop().time())
    return OngoingMoves([_ongoing(place, row, progress[place], rates[place]) for place, row in found.items()])


def _partition(place: TopicPartition, context: Context) -> PartitionImage | None:
    topic = context.image.topics_by_name.get(place.topic)
    return None if topic is None else context.image.partition(topic.id, place.partition)


def _progress(place: TopicPartition, row: OngoingPartitionReassignment, held: Replicas) -> MoveProgress:
    sizes = {int(replica): held[place, int(replica)][1] for replica in row.replicas if (place, int(replica)) in held}
    return progress_of(map(int, row.replicas), row.adding_replicas, sizes)


def _ongoing(
    place: TopicPartition, row: OngoingPartitionReassignment, progress: MoveProgress, rate: float | None
) -> OngoingMove:
    return OngoingMove(
        place.topic,
        place.partition,
        list(map(int, row.replicas)),
        list(map(int, row.adding_replicas)),
        list(map(int, row.removing_replicas)),
        progress.bytes_total,
        progress.bytes_left,
        rate,
        minutes_left(progress.bytes_left, rate),
    )


async def move_partitions(asked: ApiRequest[Nothing, NewMoves]) -> Outcomes:
    """Begin or cancel partition reassignments. They continue after the response."""
    by_topic: defaultdict[str, list[ReassignablePartition]] = defaultdict(list)
    for move in asked.body.moves:
        replicas = None if move.replicas is None else tuple(move.replicas)
        by_topic[move.topic].append(ReassignablePartition(partition_index=move.partition, replicas=replicas))
    request = AlterPartitionReassignmentsRequest(
        timeout=TIMEOUT,
        topics=tuple(ReassignableTopic(name=name, partitions=tuple(rows)) for name, rows in by_topic.items()),
    )
    answer = await asked.context.cluster.ask(None, request)
    check(answer.error_code, answer.error_message)
    return Outcomes(
        [
            _outcome(topic.name, row.partition_index, row.error_code, row.error_message)
            for topic in answer.responses
            for row in topic.partitions
        ]
    )


def _outcome(topic: str, partition: int, code: ErrorCode, message: str | None) -> PartitionOutcome:
    is_done = code is ErrorCode.none
    return PartitionOutcome(
        topic, partition, is_done, code.name.upper(), None if is_done else refusal_of(code, message).sentence
    )


ROUTES = (
    Route(
        "POST",
        "/v1/elections",
        elect_leaders,
        Nothing,
        NewElections,
        Outcomes,
        requires=(ALTER_CLUSTER,),
        refusals=(503,),
    ),
    Route(
        "GET",
        "/v1/reassignments",
        list_moves,
        Nothing,
        Nothing,
        OngoingMoves,
        requires=(DESCRIBE_CLUSTER,),
        refusals=(503,),
    ),
    Route(
        "POST",
        "/v1/reassignments",
        move_partitions,
        Nothing,
        NewMoves,
        Outcomes,
        requires=(ALTER_CLUSTER,),
        refusals=(503,),
    ),
)
