"""Partitions over HTTP: leader, replicas, offsets and lag; CreatePartitions."""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import msgspec
from kio.schema.create_partitions.v3.request import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from kio.schema.describe_log_dirs.v4.request import DescribableLogDirTopic, DescribeLogDirsRequest

from cordwood.cluster.http import offsets
from cordwood.cluster.http.api.topics import TIMEOUT, BrokerIds, Items, PartitionCount
from cordwood.cluster.http.context import Context
from cordwood.cluster.http.refusal import check
from cordwood.cluster.http.route import ApiRequest, DryRun, Nothing, Route
from cordwood.cluster.http.security.rights import ALTER_TOPIC, DESCRIBE_TOPIC
from cordwood.cluster.metadata.commands import BrokerId
from cordwood.cluster.metadata.elections import is_under_replicated
from cordwood.cluster.metadata.image import NO_LEADER, PartitionImage, TopicImage
from cordwood.cluster.metadata.leaders import Offsets
from cordwood.storage.types import TopicPartition


class ReplicaDescription(msgspec.Struct, frozen=True):
    """One replica of a partition. Values that its broker did not report, or was not asked for, are null."""

    broker_id: int
    is_in_sync: bool
    is_alive: bool
    lag_records: int | None
    """The committed records that the replica lacks."""
    size_bytes: int | None


class PartitionDescription(msgspec.Struct, frozen=True):
    """One partition. Offsets are half-open: an end is the next offset. Unknown offsets are null."""

    topic: str
    partition: int
    leader: int | None
    leader_epoch: int
    partition_epoch: int
    replicas: list[ReplicaDescription]
    """In the order of preference as leader."""
    isr: list[int]
    elr: list[int]
    """Eligible leader replicas: not in sync, but with every committed record (KIP-966)."""
    adding: list[int]
    removing: list[int]
    is_under_replicated: bool
    log_start: int | None
    high_watermark: int | None
    """The end of the committed records, up to which consumers read."""
    log_end: int | None


class Partitions(msgspec.Struct, frozen=True):
    """Partitions by topic and index."""

    partitions: list[PartitionDescription]


class PartitionsQuery(msgspec.Struct, frozen=True):
    """The level of detail."""

    offsets: bool = True
    """Request offsets from the leaders, and lag and size from all brokers."""


class AllPartitionsQuery(msgspec.Struct, frozen=True):
    """The selection of partitions, and the level of detail."""

    offsets: bool = False
    """Request offsets from the leaders, and lag and size from all brokers."""
    internal: bool = False
    """Include internal topics."""


class MorePartitions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The new number of partitions of a topic."""

    count: PartitionCount
    """The total, not the number of added partitions."""
    assignments: Annotated[list[BrokerIds], Items] | None = None
    """The replicas of each added partition, the preferred leader first."""


class GrownTopic(msgspec.Struct, frozen=True):
    """A topic with more partitions, or that could have them."""

    topic: str
    partition_count: int


Replicas = dict[tuple[TopicPartition, int], tuple[int, int]]
"""Lag in records and size in bytes of replicas, by partition and broker."""


async def list_all_partitions(asked: ApiRequest[AllPartitionsQuery, Nothing]) -> Partitions:
    """List the partitions of all topics."""
    topics = await asked.context.topics(internal=asked.query.internal)
    return Partitions(await partitions_of(topics, asked.context, with_offsets=asked.query.offsets))


async def list_partitions(asked: ApiRequest[PartitionsQuery, Nothing]) -> Partitions:
    """List the partitions of a topic."""
    topic = asked.context.topic(asked.path["topic"])
    return Partitions(await partitions_of([topic], asked.context, with_offsets=asked.query.offsets))


async def add_partitions(asked: ApiRequest[DryRun, MorePartitions]) -> GrownTopic:
    """Add partitions to a topic.

    Keys are distributed over all partitions from then on: new records of a key may go to another partition than older
    ones.
    """
    name, wanted = asked.context.topic(asked.path["topic"]).name, asked.body
    rows = wanted.assignments
    assignments = (
        None if rows is None else tuple(CreatePartitionsAssignment(broker_ids=tuple(brokers)) for brokers in rows)
    )
    topic = CreatePartitionsTopic(name=name, count=wanted.count, assignments=assignments)
    request = CreatePartitionsRequest(topics=(topic,), timeout=TIMEOUT, validate_only=asked.query.dry_run)
    (result,) = (await asked.context.cluster.ask(None, request)).results
    check(result.error_code, result.error_message)
    return GrownTopic(name, wanted.count)


async def partitions_of(
    topics: Iterable[TopicImage], context: Context, *, with_offsets: bool
) -> list[PartitionDescription]:
    """Return partitions from the newest metadata, and with offsets as their brokers report them if requested."""
    turns = context.turns
    found = {
        TopicPartition(topic.name, index): partition
        async for topic, (index, partition) in turns.within((topic, enumerate(topic.partitions)) for topic in topics)
    }
    if not with_offsets:
        nothing: tuple[Offsets, Offsets, Offsets] = ({}, {}, {})
        return [_partition(*row, context, nothing, {}) async for row in turns.each(found.items())]
    begins, watermarks, ends, held = await asyncio.gather(
        offsets.starts(context, found),
        offsets.committed_ends(context, found),
        offsets.log_ends(context, found),
        replicas_of(found, context),
    )
    places = (begins, watermarks, ends)
    return [_partition(*row, context, places, held) async for row in turns.each(found.items())]


async def replicas_of(partitions: Mapping[TopicPartition, PartitionImage], context: Context) -> Replicas:
    """Return the lag and size of replicas on running brokers. Missing reports are left out."""
    turns = context.turns
    wanted: dict[int, dict[str, list[int]]] = {}
    async for place, partition in turns.each(partitions.items()):
        for replica in filter(context.image.is_in_service, partition.replicas):
            wanted.setdefault(int(replica), {}).setdefault(place.topic, []).append(place.partition)
    answers = await context.cluster.ask_all(wanted, lambda broker_id: _describe_log_dirs(wanted[broker_id]))
    return {
        (TopicPartition(topic.name, row.partition_index), broker_id): (row.offset_lag, row.partition_size)
        for broker_id, answer in answers.items()
        async for topic, row in turns.within((topic, topic.partitions) for topic in _topics_in(answer))
        # The copy of a replica that moves to another log directory is not a replica yet.
        if not row.is_future_key
    }


def _topics_in(answer: Any) -> Iterable[Any]:
    return () if answer is None else (topic for directory in answer.results for topic in directory.topics)


def _describe_log_dirs(wanted: Mapping[str, list[int]]) -> DescribeLogDirsRequest:
    return DescribeLogDirsRequest(
        topics=tuple(DescribableLogDirTopic(topic=name, partitions=tuple(indexes)) for name, indexes in wanted.items())
    )


def _partition(
    place: TopicPartition,
    partition: PartitionImage,
    context: Context,
    known: tuple[Offsets, Offsets, Offsets],
    held: Replicas,
) -> PartitionDescription:
    begins, watermarks, ends = known
    return PartitionDescription(
        topic=place.topic,
        partition=place.partition,
        leader=None if partition.leader == NO_LEADER else int(partition.leader),
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        replicas=[_replica(place, replica, partition, context, held) for replica in partition.replicas],
        isr=sorted(map(int, partition.isr)),
        elr=sorted(map(int, partition.elr)),
        adding=list(map(int, partition.adding)),
        removing=list(map(int, partition.removing)),
        is_under_replicated=is_under_replicated(partition),
        log_start=begins.get(place),
        high_watermark=watermarks.get(place),
        log_end=ends.get(place),
    )


def _replica(
    place: TopicPartition, broker_id: BrokerId, partition: PartitionImage, context: Context, held: Replicas
) -> ReplicaDescription:
    lag_records, size_bytes = held.get((place, int(broker_id)), (None, None))
    return ReplicaDescription(
        broker_id=int(broker_id),
        is_in_sync=broker_id in partition.isr,
        is_alive=context.image.is_in_service(broker_id),
        lag_records=lag_records,
        size_bytes=size_bytes,
    )


_ONE_TOPIC = "/v1/topics/{topic}/partitions"

ROUTES = (
    Route(
        "GET",
        "/v1/partitions",
        list_all_partitions,
        AllPartitionsQuery,
        Nothing,
        Partitions,
        requires=(),
        each=(DESCRIBE_TOPIC,),
        refusals=(503,),
    ),
    Route(
        "GET",
        _ONE_TOPIC,
        list_partitions,
        PartitionsQuery,
        Nothing,
        Partitions,
        requires=(DESCRIBE_TOPIC,),
        refusals=(404, 503),
    ),
    Route(
        "POST",
        _ONE_TOPIC,
        add_partitions,
        DryRun,
        MorePartitions,
        GrownTopic,
        requires=(ALTER_TOPIC,),
        refusals=(404, 409, 503),
    ),
)
