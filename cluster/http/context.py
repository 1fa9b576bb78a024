"""What the routes of the HTTP API are given: this broker to look at, and the cluster to ask."""

from collections.abc import Callable
from dataclasses import dataclass

from kio.schema.errors import ErrorCode

from cordwood.cluster.config import Settings
from cordwood.cluster.decode_queue import DecodeQueue
from cordwood.cluster.http.bodies import Bodies, Streams
from cordwood.cluster.http.cluster_client import ClusterClient
from cordwood.cluster.http.records.accumulator import RecordAccumulator
from cordwood.cluster.http.refusal import HttpRefusal
from cordwood.cluster.http.watched import Watched
from cordwood.cluster.metadata.image import BrokerImage, Image, TopicImage
from cordwood.cluster.topics import INTERNAL_TOPICS

BATCHES_AT_ONCE_MAX = 64
"""That one broker has in hand for the HTTP clients of this one."""


@dataclass(frozen=True, slots=True)
class Context:
    """One broker's side of its HTTP API."""

    watched: Watched
    cluster: ClusterClient
    settings: Settings
    decoding: DecodeQueue
    wall_clock: Callable[[], int]
    """Milliseconds since 1970."""
    bodies: Bodies
    streams: Streams
    accumulator: RecordAccumulator

    @classmethod
    def of(
        cls,
        watched: Watched,
        cluster: ClusterClient,
        settings: Settings,
        decoding: DecodeQueue,
        wall_clock: Callable[[], int],
    ) -> "Context":
        """With nothing on its way yet."""
        accumulator = RecordAccumulator(cluster.apart(BATCHES_AT_ONCE_MAX), watched.quorum)
        bodies = Bodies(watched.memory.http_bodies)
        return cls(watched, cluster, settings, decoding, wall_clock, bodies, Streams(), accumulator)

    async def close(self) -> None:
        """Ask nobody any more. What is on its way may or may not be kept."""
        await self.accumulator.close()
        await self.cluster.close()

    @property
    def image(self) -> Image:
        """The newest metadata. Raises HttpRefusal before this broker knows any."""
        image = self.watched.quorum.image
        if not image.brokers:
            sentence = self.watched.why_not_ready() or "This broker has not joined its cluster."
            raise HttpRefusal(503, sentence, ErrorCode.broker_not_available)
        return image

    def topic(self, name: str) -> TopicImage:
        """Raises HttpRefusal."""
        topic = self.image.topics_by_name.get(name)
        if topic is None:
            raise HttpRefusal(404, f"There is no topic {name!r}.", ErrorCode.unknown_topic_or_partition)
        return topic

    def topics(self, *, internal: bool) -> list[TopicImage]:
        """By name; the broker's own only where they are asked for."""
        topics = self.image.topics_by_name
        return [topics[name] for name in sorted(topics) if internal or name not in INTERNAL_TOPICS]

    def broker(self, broker_id: str) -> BrokerImage:
        """By its number as a path has it. Raises HttpRefusal."""
        for broker in self.image.brokers.values():
            if str(broker.id) == broker_id:
                return broker
        known = ", ".join(map(str, sorted(self.image.brokers)))
        sentence = f"There is no broker {broker_id!r}: the cluster has {known}."
        raise HttpRefusal(404, sentence, ErrorCode.resource_not_found)
