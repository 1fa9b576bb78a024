"""The dependencies of HTTP API handlers: this broker's state and a client of the cluster."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from kio.schema.errors import ErrorCode

from cordwood.cluster.config.settings import Settings
from cordwood.cluster.http.bodies import Bodies, Streams
from cordwood.cluster.http.queues.member import QueueContext
from cordwood.cluster.http.queues.members import QueueMembers
from cordwood.cluster.http.records.accumulator import RecordAccumulator
from cordwood.cluster.http.refusal import HttpRefusal
from cordwood.cluster.http.security.access import Access, AccessControl
from cordwood.cluster.http.security.rights import DESCRIBE_TOPIC, RouteRight
from cordwood.cluster.http.watched import Watched
from cordwood.cluster.kafka.cluster_client import ClusterClient
from cordwood.cluster.metadata.image import BrokerImage, Image, TopicImage
from cordwood.cluster.operations.moves import MoveRates
from cordwood.cluster.proposals.topics import INTERNAL_TOPICS
from cordwood.cluster.resources.decode_queue import DecodeQueue
from cordwood.cluster.resources.turns import Turns

BATCHES_AT_ONCE_MAX = 64
"""Produce requests in flight to one broker for the HTTP clients of this broker."""


@dataclass(frozen=True, slots=True)
class Context:
    """The dependencies of one broker's HTTP API."""

    watched: Watched
    cluster: ClusterClient
    """Sends requests on behalf of the client."""
    settings: Settings
    decoding: DecodeQueue
    wall_clock: Callable[[], int]
    """Milliseconds since 1970."""
    bodies: Bodies
    streams: Streams
    accumulator: RecordAccumulator
    queues: QueueMembers
    access_control: AccessControl
    move_rates: MoveRates = field(default_factory=MoveRates)
    _access: Access | None = None

    @classmethod
    def of(
        cls,
        watched: Watched,
        cluster: ClusterClient,
        settings: Settings,
        decoding: DecodeQueue,
        wall_clock: Callable[[], int],
        access_control: AccessControl,
        random_bytes: Callable[[int], bytes],
    ) -> "Context":
        """Construct a context with no requests in flight. A request is handled in one that is `under` its access."""
        accumulator = RecordAccumulator(cluster.apart(BATCHES_AT_ONCE_MAX), watched.quorum)
        bodies = Bodies(watched.memory.http_bodies)
        streams = Streams()
        of_queues = QueueContext(watched.broker_id, lambda: watched.quorum.image, decoding, streams, random_bytes)
        queues = QueueMembers(cluster, of_queues, watched.queues)
        return cls(
            watched, cluster, settings, decoding, wall_clock, bodies, streams, accumulator, queues, access_control
        )

    def under(self, access: Access) -> "Context":
        """Return the context of a request: all that it asks brokers for is on behalf of its sender."""
        return replace(self, cluster=self.cluster.on_behalf_of(access.identity), _access=access)

    @property
    def access(self) -> Access:
        """The rights of the request."""
        assert self._access is not None, "the context of a request is under its access"
        return self._access

    async def close(self) -> None:
        """Close all connections. Records in flight may or may not be appended."""
        await self.queues.close()
        await self.accumulator.close()
        await self.cluster.close()

    @property
    def turns(self) -> Turns:
        """The event-loop time that answers about thousands of partitions share with requests."""
        return self.watched.turns

    @property
    def image(self) -> Image:
        """The newest metadata image. Raises HttpRefusal before this broker has joined a cluster."""
        image = self.watched.quorum.image
        if not image.brokers:
            sentence = self.watched.why_not_ready() or "This broker has not joined its cluster yet: try again later."
            raise HttpRefusal(503, sentence, ErrorCode.broker_not_available)
        return image

    def topic(self, name: str, right: RouteRight | None = None) -> TopicImage:
        """Return a topic by name. `right` is checked first, if the route has not done so. Raises HttpRefusal."""
        if right is not None:
            self.access.check(right, name)
        topic = self.image.topics_by_name.get(name)
        if topic is None:
            raise HttpRefusal(404, f"There is no topic {name!r}.", ErrorCode.unknown_topic_or_partition)
        return topic

    @staticmethod
    def check_partition(topic: TopicImage, partition: int) -> None:
        """Raise HttpRefusal if the topic has no such partition."""
        count = len(topic.partitions)
        if partition >= count:
            sentence = f"Topic {topic.name!r} has partitions 0 to {count - 1}: there is no partition {partition}."
            raise HttpRefusal(404, sentence, ErrorCode.unknown_topic_or_partition)

    async def topics(self, *, internal: bool) -> list[TopicImage]:
        """Return the topics by name that the client may describe; internal topics only if requested."""
        topics, sees = self.image.topics_by_name, self.access.sees
        names = [name for name in sorted(topics) if internal or name not in INTERNAL_TOPICS]
        return [topics[name] async for name in self.turns.each(names) if sees(DESCRIBE_TOPIC, name)]

    def broker(self, broker_id: str) -> BrokerImage:
        """Return a broker by its id in the path. Raises HttpRefusal."""
        for broker in self.image.brokers.values():
            if str(broker.id) == broker_id:
                return broker
        known = ", ".join(map(str, sorted(self.image.brokers)))
        sentence = f"There is no broker {broker_id!r}: the cluster has {known}."
        raise HttpRefusal(404, sentence, ErrorCode.resource_not_found)
