"""Metadata (3): the brokers, and the leader, replicas and in-sync replicas of each partition of the requested topics.

A missing topic is created if both the request and `auto.create.topics.enable` allow it; the same response has its
leaders. Internal topics are not created here: the group coordinator creates them when it needs them.

Version notes: in 0 an empty topic list means all topics; 6 adds LISTENER_NOT_FOUND in place of LEADER_NOT_AVAILABLE; 8
to 10 have the authorized operations of the cluster (KIP-430); 12 takes topics by id (KIP-516).
"""

from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any
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
from cordwood.cluster.kafka.authorized import NOT_ASKED, ON_CLUSTER, ON_TOPIC
from cordwood.cluster.kafka.call import NO_THROTTLE, Call
from cordwood.cluster.kafka.client_endpoints import NOBODY, controller_for, offline_replicas, reachable
from cordwood.cluster.kafka.proposals import propose
from cordwood.cluster.kafka.rows import rows
from cordwood.cluster.metadata.image import Image, TopicImage
from cordwood.cluster.proposals.topics import INTERNAL_TOPICS, PARTITIONS_PER_REQUEST_MAX, check_name, new_topic
from cordwood.cluster.resources.turns import distinct

KEY, VERSIONS = ApiKey.METADATA, range(14)

AUTO_CREATED_MAX = 100
"""Maximum number of topics that one request creates. Clients retry the rest."""

_FIRST_WITH_LISTENER_ERROR = 6
_FIRST_BY_TOPIC_ID = 12
_WITH_CLUSTER_OPERATIONS = range(8, 11)


def upgrade_request(request: Any, version: int) -> MetadataRequest:
    """Upgrade a request. In version 0 an empty list means all topics; in later versions, none."""
    lifted: MetadataRequest = codec.upgrade_request(KEY, version, VERSIONS[-1])(request)
    return replace(lifted, topics=None) if version == 0 and not lifted.topics else lifted


def downgrade_response(response: MetadataResponse, version: int) -> Any:
    """Add the authorized operations of the cluster in versions 8 to 10; later they are part of DescribeCluster.

    The field is set even if the request did not ask for it: its value is the same for all clients.
    """
    if version not in _WITH_CLUSTER_OPERATIONS:
        return response
    return SimpleNamespace(
        throttle_time=response.throttle_time,
        brokers=response.brokers,
        cluster_id=response.cluster_id,
        controller_id=response.controller_id,
        topics=response.topics,
        cluster_authorized_operations=ON_CLUSTER,
    )


async def handle(request: MetadataRequest, call: Call) -> MetadataResponse:
    refused: dict[str, Refused] = {}
    if request.topics is not None and request.allow_auto_topic_creation:
        refused = await _create_missing(request.topics, call)
    image = call.services.quorum.image
    brokers = reachable(image, call.listener)
    operations = ON_TOPIC if request.include_topic_authorized_operations else NOT_ASKED
    answer = _Answer(image, refused, frozenset(brokers), operations, call.version)
    return MetadataResponse(
        throttle_time=NO_THROTTLE,
        brokers=tuple(
            MetadataResponseBroker(
                node_id=broker_id, host=endpoint.host, port=endpoint.port, rack=image.brokers[broker_id].rack
            )
            for broker_id, endpoint in brokers.items()
        ),
        cluster_id=image.cluster_id,
        controller_id=controller_for(call, brokers),
        topics=await answer.topics(request.topics, call),
        error_code=ErrorCode.none,
    )


async def _create_missing(topics: tuple[MetadataRequestTopic, ...], call: Call) -> dict[str, Refused]:
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
        and topic.name not in image.topics_by_name
        and topic.name not in INTERNAL_TOPICS
    }

    async def create(name: str) -> None:
        try:
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
        self, image: Image, refused: dict[str, Refused], reachable: frozenset[int], operations: int, version: int
    ) -> None:
        self._image, self._refused = image, refused
        self._reachable = reachable
        self._operations = operations
        self._version = version

    async def topics(
        self, wanted: tuple[MetadataRequestTopic, ...] | None, call: Call
    ) -> tuple[MetadataResponseTopic, ...]:
        if wanted is None:
            return rows(self._known, self._image.topics_by_name.values())
        return rows(self._wanted, await call.turns.run(distinct(wanted)))

    def _wanted(self, topic: MetadataRequestTopic) -> MetadataResponseTopic:
        try:
            return self._known(self._find(topic.name, topic.topic_id))
        except Refused as refusal:
            return MetadataResponseTopic(
                error_code=refusal.code,
                name=topic.name if topic.name is not None or self._version >= _FIRST_BY_TOPIC_ID else "",
                topic_id=topic.topic_id,
                is_internal=topic.name in INTERNAL_TOPICS,
                partitions=(),
            )

    def _find(self, name: str | None, topic_id: UUID | None) -> TopicImage:
        if self._version < _FIRST_BY_TOPIC_ID and (name is None or topic_id is not None):
            raise Refused(ErrorCode.invalid_request, "Topic ids require version 12 or newer.")
        if topic_id is not None:
            known = self._image.topics_by_id.get(topic_id)
            if known is None:
                raise Refused(ErrorCode.unknown_topic_id)
            return known
        if name is None:
            raise Refused(ErrorCode.invalid_request, "Neither topic name nor id were specified.")
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
            topic_authorized_operations=self._operations,
        )

    def _partition(self, topic: TopicImage, index: int) -> MetadataResponsePartition:
        partition = topic.partitions[index]
        code, leader = ErrorCode.none, int(partition.leader)
        if leader not in self._reachable:
            is_there = leader in self._image.brokers and self._version >= _FIRST_WITH_LISTENER_ERROR
            code = ErrorCode.listener_not_found if is_there else ErrorCode.leader_not_available
            leader = NOBODY
        return MetadataResponsePartition(
            error_code=code,
            partition_index=index,
            leader_id=leader,
            leader_epoch=partition.leader_epoch,
            replica_nodes=partition.replicas,
            isr_nodes=partition.isr,
            offline_replicas=offline_replicas(partition, self._image),
        )
