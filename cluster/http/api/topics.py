"""Topics: which there are, created and deleted with the checks that Kafka clients meet."""

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

from cordwood.cluster.http.api.cluster import is_under_replicated
from cordwood.cluster.http.api.configs import ConfigValue, text_of
from cordwood.cluster.http.refusal import check, json_response
from cordwood.cluster.http.route import Asked, Nothing, Route
from cordwood.cluster.metadata.image import NO_LEADER, TopicImage
from cordwood.cluster.topics import DEFAULT, INTERNAL_TOPICS

TIMEOUT = timedelta(seconds=10)

INT32_MAX = (1 << 31) - 1
BrokerIds = Annotated[list[Annotated[int, msgspec.Meta(ge=0, le=INT32_MAX)]], msgspec.Meta(max_length=1000)]
PartitionIndex = Annotated[int, msgspec.Meta(ge=0, le=INT32_MAX)]
ITEMS_MAX = 10_000
"""Of a list in a request."""
Items = msgspec.Meta(max_length=ITEMS_MAX)
PartitionCount = Annotated[int, msgspec.Meta(ge=1, le=INT32_MAX)]


class Topic(msgspec.Struct, frozen=True):
    """A topic, and how well its partitions are."""

    name: str
    id: str
    is_internal: bool
    partition_count: int
    replication_factor: int
    under_replicated_partitions: int
    offline_partitions: int
    configs: dict[str, str]
    """Only what was set for this topic; `…/configs` has all."""


class Topics(msgspec.Struct, frozen=True):
    """Topics by name."""

    topics: list[Topic]


class TopicsQuery(msgspec.Struct, frozen=True):
    """Which topics."""

    internal: bool = False
    """Also those that belong to the broker itself."""


class NewTopic(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A topic to be created. Without counts it gets those of the broker's settings."""

    name: str
    partitions: PartitionCount | None = None
    replication_factor: Annotated[int, msgspec.Meta(ge=1, le=32767)] | None = None
    assignments: Annotated[list[BrokerIds], Items] | None = None
    """The brokers of each partition, the preferred leader first; in place of both counts."""
    configs: Annotated[dict[str, ConfigValue], Items] = {}


class DryRun(msgspec.Struct, frozen=True):
    """Whether it is only to be looked at."""

    dry_run: bool = False
    """Say whether it could be done, and do nothing."""


class CreatedTopic(msgspec.Struct, frozen=True):
    """What has been created, or would be."""

    name: str
    id: str | None
    """None where nothing was created."""
    partition_count: int
    replication_factor: int


class DeletedTopic(msgspec.Struct, frozen=True):
    """What is gone."""

    name: str
    id: str | None


async def list_topics(asked: Asked[TopicsQuery, Nothing]) -> Topics:
    """The topics, each with the state of its partitions."""
    return Topics([topic_of(topic) for topic in asked.context.topics(internal=asked.query.internal)])


async def describe_topic(asked: Asked[Nothing, Nothing]) -> Topic:
    """One topic."""
    return topic_of(asked.context.topic(asked.path["topic"]))


async def create_topic(asked: Asked[DryRun, NewTopic]) -> web.Response:
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


async def delete_topic(asked: Asked[Nothing, Nothing]) -> DeletedTopic:
    """Delete a topic with all its records."""
    name = asked.context.topic(asked.path["topic"]).name
    request = DeleteTopicsRequest(topics=(DeleteTopicState(name=name, topic_id=None),), timeout=TIMEOUT)
    (result,) = (await asked.context.cluster.ask(None, request)).responses
    check(result.error_code, result.error_message)
    return DeletedTopic(name, None if result.topic_id is None else str(result.topic_id))


def topic_of(topic: TopicImage) -> Topic:
    """As the newest metadata has it."""
    return Topic(
        name=topic.name,
        id=str(topic.id),
        is_internal=topic.name in INTERNAL_TOPICS,
        partition_count=len(topic.partitions),
        replication_factor=len(topic.partitions[0].replicas) - len(topic.partitions[0].removing),
        under_replicated_partitions=sum(map(is_under_replicated, topic.partitions)),
        offline_partitions=sum(partition.leader == NO_LEADER for partition in topic.partitions),
        configs=dict(topic.configs),
    )


ROUTES = (
    Route("GET", "/v1/topics", list_topics, TopicsQuery, Nothing, Topics, refusals=(503,)),
    Route("POST", "/v1/topics", create_topic, DryRun, NewTopic, CreatedTopic, statuses=(201, 200), refusals=(409, 503)),
    Route("GET", "/v1/topics/{topic}", describe_topic, Nothing, Nothing, Topic, refusals=(404, 503)),
    Route("DELETE", "/v1/topics/{topic}", delete_topic, Nothing, Nothing, DeletedTopic, refusals=(404, 409, 503)),
)
