"""Topics over HTTP: list, describe, CreateTopics and DeleteTopics, with the checks that Kafka clients get."""

from datetime import timedelta
from typing import Annotated

import msgspec
from aiohttp import web
from kio.schema.create_topics.v7.request import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from kio.schema.delete_topics.v6.request import DeleteTopicsRequest, DeleteTopicState

from cordwood.cluster.http.api.configs import ConfigValue, text_of
from cordwood.cluster.http.context import Context
from cordwood.cluster.http.refusal import check, json_response
from cordwood.cluster.http.route import ApiRequest, DryRun, Nothing, Route
from cordwood.cluster.http.security.rights import CREATE_TOPIC, DELETE_TOPIC, DESCRIBE_TOPIC, DESCRIBE_TOPIC_CONFIGS
from cordwood.cluster.metadata.elections import is_under_replicated, target_of
from cordwood.cluster.metadata.image import NO_LEADER, TopicImage
from cordwood.cluster.proposals.topics import DEFAULT, INTERNAL_TOPICS
from cordwood.storage.steps import Steps

TIMEOUT = timedelta(seconds=10)

INT32_MAX = (1 << 31) - 1
BrokerIds = Annotated[list[Annotated[int, msgspec.Meta(ge=0, le=INT32_MAX)]], msgspec.Meta(max_length=1000)]
PartitionIndex = Annotated[int, msgspec.Meta(ge=0, le=INT32_MAX)]
ITEMS_MAX = 10_000
"""The limit of a list in a request."""
Items = msgspec.Meta(max_length=ITEMS_MAX)
PartitionCount = Annotated[int, msgspec.Meta(ge=1, le=INT32_MAX)]


class Topic(msgspec.Struct, frozen=True):
    """A topic with a summary of its partitions."""

    name: str
    id: str
    is_internal: bool
    partition_count: int
    replication_factor: int
    under_replicated_partitions: int
    offline_partitions: int
    configs: dict[str, str]
    """The topic's own configs, none without the right to see them; `…/configs` has all."""


class Topics(msgspec.Struct, frozen=True):
    """Topics by name."""

    topics: list[Topic]


class TopicsQuery(msgspec.Struct, frozen=True):
    """The selection of topics."""

    internal: bool = False
    """Include internal topics."""


class NewTopic(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A topic to create. Counts left out are taken from the broker's configuration."""

    name: str
    partitions: PartitionCount | None = None
    replication_factor: Annotated[int, msgspec.Meta(ge=1, le=32767)] | None = None
    assignments: Annotated[list[BrokerIds], Items] | None = None
    """The replicas of each partition, the preferred leader first; instead of both counts."""
    configs: Annotated[dict[str, ConfigValue], Items] = {}


class CreatedTopic(msgspec.Struct, frozen=True):
    """The topic that was created, or would be."""

    name: str
    id: str | None
    """Null if nothing was created."""
    partition_count: int
    replication_factor: int


class DeletedTopic(msgspec.Struct, frozen=True):
    """The deleted topic."""

    name: str
    id: str | None


async def list_topics(asked: ApiRequest[TopicsQuery, Nothing]) -> Topics:
    """List the topics, each with a summary of its partitions."""
    turns, topics = asked.context.turns, await asked.context.topics(internal=asked.query.internal)
    return Topics([await turns.run(topic_of(topic, asked.context)) async for topic in turns.each(topics)])


async def describe_topic(asked: ApiRequest[Nothing, Nothing]) -> Topic:
    """Describe a topic."""
    return await asked.context.turns.run(topic_of(asked.context.topic(asked.path["topic"]), asked.context))


async def create_topic(asked: ApiRequest[DryRun, NewTopic]) -> web.Response:
    """Create a topic."""
    wanted = asked.body
    topic = CreatableTopic(
        name=wanted.name,
        num_partitions=DEFAULT if wanted.partitions is None else wanted.partitions,
        replication_factor=DEFAULT if wanted.replication_factor is None else wanted.replication_factor,
        assignments=tuple(
            CreatableReplicaAssignment(partition_index=index, broker_ids=tuple(brokers))
            for index, brokers in enumerate(wanted.assignments or ())
        ),
        configs=tuple(CreatableTopicConfig(name=name, value=text_of(value)) for name, value in wanted.configs.items()),
    )
    request = CreateTopicsRequest(topics=(topic,), timeout=TIMEOUT, validate_only=asked.query.dry_run)
    (result,) = (await asked.context.cluster.ask(None, request)).topics
    check(result.error_code, result.error_message)
    topic_id = None if result.topic_id is None else str(result.topic_id)
    created = CreatedTopic(result.name, topic_id, result.num_partitions, result.replication_factor)
    return json_response(created, 200 if asked.query.dry_run else 201)


async def delete_topic(asked: ApiRequest[Nothing, Nothing]) -> DeletedTopic:
    """Delete a topic with all its records."""
    name = asked.context.topic(asked.path["topic"]).name
    request = DeleteTopicsRequest(topics=(DeleteTopicState(name=name, topic_id=None),), timeout=TIMEOUT)
    (result,) = (await asked.context.cluster.ask(None, request)).responses
    check(result.error_code, result.error_message)
    return DeletedTopic(name, None if result.topic_id is None else str(result.topic_id))


def topic_of(topic: TopicImage, context: Context) -> Steps[Topic]:
    """Return a topic from the newest metadata, in steps."""
    under_replicated = offline = 0
    for partition in topic.partitions:
        under_replicated += is_under_replicated(partition)
        offline += partition.leader == NO_LEADER
        yield
    return Topic(
        name=topic.name,
        id=str(topic.id),
        is_internal=topic.name in INTERNAL_TOPICS,
        partition_count=len(topic.partitions),
        replication_factor=len(target_of(topic.partitions[0])),
        under_replicated_partitions=under_replicated,
        offline_partitions=offline,
        configs=dict(topic.configs) if context.access.sees(DESCRIBE_TOPIC_CONFIGS, topic.name) else {},
    )


ROUTES = (
    Route(
        "GET",
        "/v1/topics",
        list_topics,
        TopicsQuery,
        Nothing,
        Topics,
        requires=(),
        each=(DESCRIBE_TOPIC,),
        refusals=(503,),
    ),
    Route(
        "POST",
        "/v1/topics",
        create_topic,
        DryRun,
        NewTopic,
        CreatedTopic,
        requires=(),
        each=(CREATE_TOPIC,),
        statuses=(201, 200),
        refusals=(409, 503),
    ),
    Route(
        "GET",
        "/v1/topics/{topic}",
        describe_topic,
        Nothing,
        Nothing,
        Topic,
        requires=(DESCRIBE_TOPIC,),
        refusals=(404, 503),
    ),
    Route(
        "DELETE",
        "/v1/topics/{topic}",
        delete_topic,
        Nothing,
        Nothing,
        DeletedTopic,
        requires=(DELETE_TOPIC,),
        refusals=(404, 409, 503),
    ),
)
