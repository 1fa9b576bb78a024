"""Topics of dead-letter queues, and appends to them by Produce requests to their leaders (KIP-1191)."""

from collections.abc import Callable
from datetime import timedelta

from kio.schema.errors import ErrorCode
from kio.schema.produce.v12.request import PartitionProduceData, ProduceRequest, TopicProduceData

from cordwood.cluster.config import topic_configs
from cordwood.cluster.config.rows import broker_config
from cordwood.cluster.config.settings import Settings
from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.kafka.cluster_client import ClusterClient, Unanswered
from cordwood.cluster.metadata.image import NO_LEADER, Image
from cordwood.cluster.proposals.topics import INTERNAL_TOPICS

ANSWER_S = 30.0
ALL_REPLICAS = -1


class DeadLetterProducer:
    """The dead-letter queues of all share groups, in the name of this broker."""

    def __init__(self, settings: Settings, client: ClusterClient, image: Callable[[], Image]) -> None:
        self._settings, self._client, self._image = settings, client, image

    def is_usable(self, topic: str) -> bool:
        """Return whether a topic exists, has the prefix, and permits by its own config to be a dead-letter queue.

        A compacted topic is none: the copy of a record without a key would be refused for ever.
        """
        known = self._image().topics_by_name.get(topic)
        if known is None or topic in INTERNAL_TOPICS or topic.startswith("__"):
            return False
        if not topic.startswith(self._settings.errors_deadletterqueue_topic_name_prefix):
            return False
        broker = broker_config(self._settings, self._image())
        policies = topic_configs.value_of("cleanup.policy", known.configs, broker)
        assert isinstance(policies, tuple), "cleanup.policy is a list"
        return (
            "compact" not in policies
            and topic_configs.value_of(topic_configs.DEAD_LETTERS, known.configs, broker) is True
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
        """Append a batch, and wait until it is committed. Raises Refused."""
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
        try:
            response = await self._client.ask(int(leader), request, ANSWER_S)
        except Unanswered as error:
            raise Refused(ErrorCode.request_timed_out, str(error)) from error
        code = ErrorCode(response.responses[0].partition_responses[0].error_code)
        if code:
            raise Refused(code, response.responses[0].partition_responses[0].error_message)
