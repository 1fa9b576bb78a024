"""Metadata (3): the brokers, and the leader, replicas and in-sync replicas of each partition of the requested topics.

A missing topic is created if both the request and `auto.create.topics.enable` allow it; the same response has its
leaders. Internal topics are not created here: their coordinators create them on first use.

Version notes: in 0 an empty topic list means all topics; 6 adds LISTENER_NOT_FOUND in place of LEADER_NOT_AVAILABLE; 8
to 10 have the authorized operations of the cluster (KIP-430); 12 takes topics by id (KIP-516).
"""

from collections.abc import Container, Iterable, Mapping
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple
from uuid import UUID

from kio.schema.errors import ErrorCode
from kio.schema.metadata.v13.request import MetadataRequest, MetadataRequestTopic
from kio.schema.metadata.v13.response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

from cordwood.cluster.config.rows import broker_config
from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.kafka import codec
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.authorized import NOT_ASKED, cluster_operations
from cordwood.cluster.kafka.call import NO_THROTTLE, Call
from cordwood.cluster.kafka.client_endpoints import controller_for, offline_replicas, reachable
from cordwood.cluster.kafka.named_topics import topic_name
from cordwood.cluster.kafka.proposals import propose
from cordwood.cluster.kafka.rights import CLUSTER, CREATE, DESCRIBE, TOPIC, Right, Rights, refusal_of
from cordwood.cluster.kafka.rows import rows
from cordwood.cluster.metadata.image import NO_LEADER, Image, TopicImage
from cordwood.cluster.proposals.topics import INTERNAL_TOPICS, PARTITIONS_PER_REQUEST_MAX, check_name, new_topic
from cordwood.storage.steps import distinct

KEY = ApiKey.METADATA
RIGHTS: Rights = (
    Right(DESCRIBE, TOPIC, "other topics are left out of a list of all"),
    Right(CREATE, CLUSTER, "to create a missing topic, or CREATE on the topic"),
    Right(CREATE, TOPIC, "to create a missing topic, or CREATE on the cluster"),
    Right(DESCRIBE, CLUSTER, "for the cluster's authorized operations, of which there are none without it"),
)

AUTO_CREATED_MAX = 100
"""Maximum number of topics that one request creates. Clients retry the rest."""

_FIRST_WITH_LISTENER_ERROR = 6
_FIRST_BY_TOPIC_ID = 12
_WITH_CLUSTER_OPERATIONS = range(8, 11)


class _WithOperations(NamedTuple):
    """A response of version 8 to 10 with the authorized operations of the cluster."""

    response: MetadataResponse
    cluster_operations: int


def upgrade_request(request: Any, version: int) -> Any:
    """Upgrade a request. In version 0 an empty list means all topics; in later versions, none."""
    upgraded: MetadataRequest = codec.upgrade_request(KEY, version, KEY.versions[-1])(request)
    if version in _WITH_CLUSTER_OPERATIONS and request.include_cluster_authorized_operations:
        return SimpleNamespace(
            topics=upgraded.topics,
            allow_auto_topic_creation=upgraded.allow_auto_topic_creation,
            include_topic_authorized_operations=upgraded.include_topic_authorized_operations,
            include_cluster_authorized_operations=True,
        )
    return replace(upgraded, topics=None) if version == 0 and not upgraded.topics else upgraded


def downgrade_response(response: MetadataResponse | _WithOperations, version: int) -> Any:
    """Add the authorized operations of the cluster in versions 8 to 10; later they are part of DescribeCluster."""
    if version not in _WITH_CLUSTER_OPERATIONS:
        return response
    operations = NOT_ASKED
    if isinstance(response, _WithOperations):
        response, operations = response
    return SimpleNamespace(
        throttle_time=response.throttle_time,
        brokers=response.brokers,
        cluster_id=response.cluster_id,
        controller_id=response.controller_id,
        topics=response.topics,
        cluster_authorized_operations=operations,
    )


async def handle(request: MetadataRequest, call: Call) -> MetadataResponse | _WithOperations:
    hidden: frozenset[str] = frozenset()
    refused: dict[str, Refused] = {}
    if request.topics is not None:
        hidden = await _hidden(request.topics, call)
        if request.allow_auto_topic_creation:
            refused = await _create_missing(request.topics, hidden, call)
    image = call.services.quorum.image
    brokers = reachable(image, call.listener)
    answer = _Answer(image, refused, hidden, frozenset(brokers), call.version)
    response = MetadataResponse(
        throttle_time=NO_THROTTLE,
        brokers=tuple(
            MetadataResponseBroker(
                node_id=broker_id, host=endpoint.host, port=endpoint.port, rack=image.brokers[broker_id].rack
            )
            for broker_id, endpoint in brokers.items()
        ),
        cluster_id=image.cluster_id,
        controller_id=controller_for(call, brokers),
        topics=await answer.topics(request, call),
        error_code=ErrorCode.none,
    )
    if getattr(request, "include_cluster_authorized_operations", False):
        return _WithOperations(response, cluster_operations(call, True))
    return response


async def _hidden(topics: tuple[MetadataRequestTopic, ...], call: Call) -> frozenset[str]:
    """Return the names of those requested topics that the client may not describe. They may not exist at all."""
    image = call.services.quorum.image
    hidden = set()
    async for topic in call.turns.each(topics):
        name = topic.name if topic.topic_id is None else topic_name(image, topic.topic_id)
        if name is not None and not call.may(DESCRIBE, TOPIC, name):
            hidden.add(name)
    return frozenset(hidden)


async def _create_missing(
    topics: tuple[MetadataRequestTopic, ...], hidden: Container[str], call: Call
) -> dict[str, Refused]:
    """Create missing topics, at most AUTO_CREATED_MAX. Return the errors by topic name."""
    settings = call.services.settings
    refused: dict[str, Refused] = {}
    if not settings.auto_create_topics_enable:
        return refused
    image = call.services.quorum.image
    broker = broker_config(settings, image)
    missing = {
        topic.name: None
        async for topic in call.turns.each(topics)
        if topic.name is not None
        and topic.topic_id is None
        and topic.name not in hidden
        and topic.name not in image.topics_by_name
        and topic.name not in INTERNAL_TOPICS
    }

    may_create_all = not missing or call.may_see(CREATE, CLUSTER)

    async def create(name: str) -> None:
        try:
            if not may_create_all:
                call.require(CREATE, TOPIC, name)
            command = await call.turns.run(new_topic(name, image, broker, call.services.rng))
            await propose(command, call)
        except Refused as refusal:
            # With an unknown outcome the client retries.
            is_open = refusal.code is ErrorCode.request_timed_out
            refused[name] = Refused(ErrorCode.leader_not_available, refusal.message) if is_open else refusal

    at_once = min(AUTO_CREATED_MAX, PARTITIONS_PER_REQUEST_MAX // settings.num_partitions)
    await call.turns.gather(create, list(missing)[:at_once])
    return refused


class _Answer:
    """The topics of one response, from one metadata image."""

    def __init__(
        self,
        image: Image,
        refused: Mapping[str, Refused],
        hidden: Container[str],
        reachable: frozenset[int],
        version: int,
    ) -> None:
        self._image, self._refused, self._hidden = image, refused, hidden
        self._reachable = reachable
        self._operations: dict[str, int] = {}
        """The authorized operations on each topic, if the request asks for them."""
        self._version = version

    async def topics(self, request: MetadataRequest, call: Call) -> tuple[MetadataResponseTopic, ...]:
        if request.topics is None:
            topics = self._image.topics_by_name.values()
            known = [topic async for topic in call.turns.each(topics) if call.may_see(DESCRIBE, TOPIC, topic.name)]
            await self._authorize(request, known, call)
            return rows(self._known, known)
        wanted = await call.turns.run(distinct(request.topics))
        await self._authorize(request, map(self._found, wanted), call)
        return rows(self._wanted, wanted)

    async def _authorize(self, request: MetadataRequest, topics: Iterable[TopicImage | None], call: Call) -> None:
        if request.include_topic_authorized_operations:
            async for topic in call.turns.each(topics):
                if topic is not None:
                    self._operations[topic.name] = call.operations(TOPIC, topic.name)

    def _found(self, topic: MetadataRequestTopic) -> TopicImage | None:
        if topic.topic_id is None:
            # A client may name neither an id nor a name.
            return None if topic.name is None else self._image.topics_by_name.get(topic.name)
        return self._image.topics_by_id.get(topic.topic_id)

    def _wanted(self, topic: MetadataRequestTopic) -> MetadataResponseTopic:
        try:
            return self._known(self._find(topic.name, topic.topic_id))
        except Refused as refusal:
            return MetadataResponseTopic(
                error_code=refusal.code,
                name=topic.name if topic.name is not None or self._version >= _FIRST_BY_TOPIC_ID else "",
                topic_id=topic.topic_id,
                is_internal=topic.name in INTERNAL_TOPICS and topic.name not in self._hidden,
                partitions=(),
            )

    def _find(self, name: str | None, topic_id: UUID | None) -> TopicImage:
        if self._version < _FIRST_BY_TOPIC_ID and (name is None or topic_id is not None):
            raise Refused(ErrorCode.invalid_request, "Topic ids require version 12 or newer.")
        if topic_id is not None:
            known = self._image.topics_by_id.get(topic_id)
            if known is None:
                raise Refused(ErrorCode.unknown_topic_id)
            if known.name in self._hidden:
                raise refusal_of(TOPIC)
            return known
        if name is None:
            raise Refused(ErrorCode.invalid_request, "Neither topic name nor id were specified.")
        if name in self._hidden:
            raise refusal_of(TOPIC)
        known = self._image.topics_by_name.get(name)
        if known is None:
            check_name(name)
            raise self._refused.get(name) or Refused(ErrorCode.unknown_topic_or_partition)
        return known

    def _known(self, topic: TopicImage) -> MetadataResponseTopic:
        return MetadataResponseTopic(
            error_code=ErrorCode.none,
            name=topic.name,
            topic_id=topic.id,
            is_internal=topic.name in INTERNAL_TOPICS,
            partitions=rows(partial(self._partition, topic), range(len(topic.partitions))),
            topic_authorized_operations=self._operations.get(topic.name, NOT_ASKED),
        )

    def _partition(self, topic: TopicImage, index: int) -> MetadataResponsePartition:
        partition = topic.partitions[index]
        code, leader = ErrorCode.none, int(partition.leader)
        if leader not in self._reachable:
            is_there = leader in self._image.brokers and self._version >= _FIRST_WITH_LISTENER_ERROR
            code = ErrorCode.listener_not_found if is_there else ErrorCode.leader_not_available
            leader = NO_LEADER
        return MetadataResponsePartition(
            error_code=code,
            partition_index=index,
            leader_id=leader,
            leader_epoch=partition.leader_epoch,
            replica_nodes=partition.replicas,
            isr_nodes=partition.isr,
            offline_replicas=offline_replicas(partition, self._image),
        )
