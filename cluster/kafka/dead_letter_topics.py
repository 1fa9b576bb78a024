"""Topics of dead-letter queues: which may be used, their creation, and appends by Produce requests (KIP-1191)."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from kio.schema.create_topics.v7.request import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kio.schema.errors import ErrorCode
from kio.schema.produce.v12.request import PartitionProduceData, ProduceRequest, TopicProduceData

from cordwood.cluster.config import topic_configs
from cordwood.cluster.config.rows import broker_config
from cordwood.cluster.config.settings import Settings
from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.kafka.cluster_client import ClusterClient, Unanswered
from cordwood.cluster.metadata.image import NO_LEADER, Image, TopicImage
from cordwood.cluster.proposals.topics import DEFAULT, INTERNAL_TOPICS, check_name

ANSWER_S = 30.0
ALL_REPLICAS = -1
CONFIGS = {
    topic_configs.DEAD_LETTERS: "true",
    "cleanup.policy": "delete",
    "message.timestamp.type": "CreateTime",
}
"""Configs of a dead-letter queue that is created; the policy because a compacted topic is none."""


class DeadLetterProducer:
    """The dead-letter queues of all share groups, in the name of this broker."""

    def __init__(self, settings: Settings, client: ClusterClient, image: Callable[[], Image]) -> None:
        self._settings, self._client, self._image = settings, client, image

    def is_usable(self, topic: str) -> bool:
        """Return whether a topic has the prefix, and permits by its own config to be a dead-letter queue.

        A topic that does not exist is usable if it would be created. A compacted topic is none: the copy of a record
        without a key would be refused for ever.
        """
        if topic in INTERNAL_TOPICS or topic.startswith("__"):
            return False
        if not topic.startswith(self._settings.errors_deadletterqueue_topic_name_prefix):
            return False
        known = self._image().topics_by_name.get(topic)
        return self._may_be_created(topic) if known is None else self._permits(known)

    def _may_be_created(self, topic: str) -> bool:
        try:
            check_name(topic)
        except Refused:
            return False
        return self._settings.errors_deadletterqueue_auto_create_topics_enable

    def _permits(self, topic: TopicImage) -> bool:
        broker = broker_config(self._settings, self._image())
        policies = topic_configs.value_of("cleanup.policy", topic.configs, broker)
        assert isinstance(policies, tuple), "cleanup.policy is a list"
        return (
            "compact" not in policies
            and topic_configs.value_of(topic_configs.DEAD_LETTERS, topic.configs, broker) is True
        )

    def batch_bytes_max(self, topic: str) -> int:
        """Return the size of the largest batch that the topic takes."""
        image = self._image()
        known = image.topics_by_name.get(topic)
        configs = {} if known is None else known.configs
        size = topic_configs.value_of("max.message.bytes", configs, broker_config(self._settings, image))
        assert isinstance(size, int), "max.message.bytes is a number"
        return size

    async def append(self, topic: str, partition: int, batch: bytes) -> None:
        """Append a batch, and wait until it is committed. Creates the topic if it must be. Raises Refused."""
        if topic not in self._image().topics_by_name:
            await self._create(topic)
        known = self._image().topics_by_name.get(topic)
        if known is None:
            raise Refused(ErrorCode.unknown_topic_or_partition)
        index = partition % len(known.partitions)
        leader = known.partitions[index].leader
        if leader == NO_LEADER:
            raise Refused(ErrorCode.leader_not_available)
        data = PartitionProduceData(index=index, records=batch)
        request = ProduceRequest(
            acks=ALL_REPLICAS,
            timeout=timedelta(seconds=ANSWER_S),
            topic_data=(TopicProduceData(name=topic, partition_data=(data,)),),
        )
        partitions = (await self._ask(int(leader), request)).responses[0].partition_responses
        _check(partitions[0].error_code, partitions[0].error_message)

    async def _create(self, topic: str) -> None:
        """Create a topic with the defaults of the brokers. Raises Refused; not if another broker was faster."""
        configs = tuple(CreatableTopicConfig(name=key, value=value) for key, value in CONFIGS.items())
        wanted = CreatableTopic(
            name=topic, num_partitions=DEFAULT, replication_factor=DEFAULT, assignments=(), configs=configs
        )
        request = CreateTopicsRequest(topics=(wanted,), timeout=timedelta(seconds=ANSWER_S))
        (created,) = (await self._ask(None, request)).topics
        if created.error_code is not ErrorCode.topic_already_exists:
            _check(created.error_code, created.error_message)

    async def _ask(self, broker_id: int | None, request: Any) -> Any:
        try:
            return await self._client.ask(broker_id, request, ANSWER_S)
        except Unanswered as error:
            raise Refused(ErrorCode.request_timed_out, str(error)) from error


def _check(code: int, message: str | None) -> None:
    if code:
        raise Refused(ErrorCode(code), message)
