"""Cluster metadata for a reader: topics, partition leaders and offsets (Metadata, ListOffsets), with retries."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from kio.schema.describe_configs.v1 import DescribeConfigsRequest
from kio.schema.describe_configs.v1.request import DescribeConfigsResource
from kio.schema.errors import ErrorCode
from kio.schema.list_offsets.v5 import ListOffsetsRequest
from kio.schema.list_offsets.v5.request import ListOffsetsPartition, ListOffsetsTopic
from kio.schema.metadata.v8 import MetadataRequest
from kio.schema.metadata.v8.request import MetadataRequestTopic
from kio.schema.metadata.v12 import MetadataRequest as MetadataRequestWithIds
from kio.schema.metadata.v12.request import MetadataRequestTopic as TopicWithId

from cordwood.client.cut_messages import DescribeCutsRequest
from cordwood.spark.client.backoff import Backoff
from cordwood.spark.client.connection import ConnectionFailed
from cordwood.spark.client.pool import leased
from cordwood.spark.client.settings import Address, ClientSettings
from cordwood.spark.errors import RequestRefused
from cordwood.storage.types import TopicPartition

CONSUMER = -1
TOPIC_RESOURCE = 2

T = TypeVar("T")


class PartitionLeader(NamedTuple):
    """A partition's leader and leader epoch."""

    address: Address
    epoch: int


class ClusterReader:
    """The metadata client. Queries are retried across elections and restarts, up to `retry_timeout_ms`.

    After that they raise Unavailable. They raise RequestRefused for an error that is not retriable.
    """

    def __init__(self, settings: ClientSettings) -> None:
        """Take the settings. Do not connect yet."""
        self.settings = settings
        self._brokers: dict[int, Address] = {}
        self._leaders: dict[TopicPartition, PartitionLeader] = {}
        self._near: dict[TopicPartition, Address] = {}
        """The preferred read replicas that leaders have named."""
        self._only_leaders: set[TopicPartition] = set()
        """Partitions whose preferred read replica has failed."""

    def brokers(self) -> list[Address]:
        """Return the addresses of the running brokers."""
        self._patiently("list the brokers", lambda: self._metadata([]))
        return [*self._brokers.values()]

    def topics(self) -> list[str]:
        """Return the names of all topics but internal ones, sorted."""
        return sorted(self.partitions(None))

    def partitions(self, topics: Iterable[str] | None) -> dict[str, int]:
        """Return the partition counts of topics; None means all but internal topics. Unknown topics are left out."""
        names = None if topics is None else sorted(set(topics))
        if names == []:
            return {}
        what = f"find the partitions of {', '.join(names)}" if names else "list the topics"
        return self._patiently(what, lambda: self._count_partitions(names))

    def identities(self, topics: Iterable[str]) -> tuple[str, dict[str, UUID]]:
        """Return the cluster's id, and the ids of those topics that exist. Kafka has them since 3.1."""
        request = MetadataRequestWithIds(
            topics=tuple(TopicWithId(topic_id=None, name=name) for name in sorted(topics)),
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=False,
        )
        answer = self._patiently("find the ids of topics", lambda: self._ask_anybody(request))
        return answer.cluster_id or "", {topic.name: topic.topic_id for topic in answer.topics if topic.topic_id}

    def cut(self, name: str) -> dict[TopicPartition, tuple[int, int]] | None:
        """Return the first and the end offset of each partition of a cut; None if there is no cut of this name."""
        answer = self._patiently("find a cut", lambda: self._ask_anybody(DescribeCutsRequest(names=(name,))))
        check_code(answer.error_code, f"to describe the cut {name}")
        for cut in answer.cuts:
            return {
                TopicPartition(topic.name, one.partition_index): (one.start, one.end)
                for topic in cut.topics
                for one in topic.partitions
            }
        return None

    def uncompacted(self, topics: Iterable[str]) -> set[str]:
        """Return those topics that are known to have no compaction."""
        resources = tuple(
            DescribeConfigsResource(
                resource_type=TOPIC_RESOURCE, resource_name=name, configuration_keys=("cleanup.policy",)
            )
            for name in sorted(topics)
        )
        request = DescribeConfigsRequest(resources=resources)
        answer = self._patiently("find the policies of topics", lambda: self._ask_anybody(request))
        return {
            one.resource_name
            for one in answer.results
            if any("compact" not in (each.value or "").split(",") for each in one.configs)
        }

    def offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return for each partition the offset of EARLIEST, LATEST, or the first record at or after a time in ms.

        LATEST is the end that the isolation level makes visible. The offset is NO_OFFSET if no record is that late.
        """
        found: dict[TopicPartition, int] = {}
        self._patiently(
            f"find offsets of {', '.join(sorted({place.topic for place in wanted}))}",
            lambda: self._look_up({place: at for place, at in wanted.items() if place not in found}, found),
        )
        return found

    def leader(self, place: TopicPartition) -> PartitionLeader:
        """Return the partition's leader, from the cache or by a Metadata request, without retries.

        Raises ConnectionFailed if there is no leader, and RequestRefused.
        """
        if place not in self._leaders:
            for topic in self._metadata([place.topic]).topics:
                check_code(topic.error_code, f"topic {topic.name}")
        if place not in self._leaders:
            raise ConnectionFailed(f"{place} has no leader")
        return self._leaders[place]

    def source(self, place: TopicPartition) -> PartitionLeader:
        """Return the replica to read from: the preferred read replica if there is one, or the leader. As `leader`."""
        leader = self.leader(place)
        near = self._near.get(place)
        return leader if near is None else leader._replace(address=near)

    def rack_for(self, place: TopicPartition) -> str:
        """Return the rack to read the partition in; "" for its leader."""
        return "" if place in self._only_leaders else self.settings.rack

    def prefer(self, place: TopicPartition, broker_id: int) -> None:
        """Read the partition from this replica, as its leader proposes (KIP-392); from the leader if it is unknown."""
        if broker_id not in self._brokers:
            self._metadata([place.topic])
        if broker_id in self._brokers:
            self._near[place] = self._brokers[broker_id]
        else:
            self._only_leaders.add(place)

    def leave_near(self, place: TopicPartition) -> bool:
        """Read the partition from its leader from now on. Return False if it was read there already."""
        self._only_leaders.add(place)
        return self._near.pop(place, None) is not None

    def forget(self, place: TopicPartition) -> None:
        """Drop the partition's leader from the cache, after it proved wrong."""
        self._leaders.pop(place, None)

    def _patiently(self, what: str, attempt: Callable[[], T]) -> T:
        backoff = Backoff(what, self.settings.retry_timeout_ms)
        while True:
            try:
                return attempt()
            except ConnectionFailed as failure:
                self._leaders.clear()
                backoff.wait(failure)

    def _metadata(self, names: list[str] | None) -> Any:
        """Return the metadata of topics, or of all, from the first reachable broker. Cache the leaders."""
        topics = None if names is None else tuple(MetadataRequestTopic(name=name) for name in names)
        request = MetadataRequest(
            topics=topics,
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=False,
        )
        answer = self._ask_anybody(request)
        self._brokers = {broker.node_id: Address(broker.host, broker.port) for broker in answer.brokers}
        for topic in answer.topics:
            self._remember_leaders(topic)
        return answer

    def _remember_leaders(self, topic: Any) -> None:
        for partition in topic.partitions:
            place = TopicPartition(topic.name, partition.partition_index)
            self._leaders.pop(place, None)
            if partition.leader_id in self._brokers:
                self._leaders[place] = PartitionLeader(self._brokers[partition.leader_id], partition.leader_epoch)

    def _ask_anybody(self, request: Any) -> Any:
        failures: list[str] = []
        for address in dict.fromkeys((*self._brokers.values(), *self.settings.bootstrap)):
            try:
                with leased(address, self.settings) as connection:
                    return connection.ask(request)
            except ConnectionFailed as failure:
                failures.append(str(failure))
        raise ConnectionFailed("; ".join(failures))

    def _count_partitions(self, names: list[str] | None) -> dict[str, int]:
        counts = {}
        for topic in self._metadata(names).topics:
            if topic.error_code is ErrorCode.unknown_topic_or_partition or (names is None and topic.is_internal):
                continue
            check_code(topic.error_code, f"topic {topic.name}")
            counts[topic.name] = len(topic.partitions)
        return counts

    def _look_up(self, wanted: Mapping[TopicPartition, int], found: dict[TopicPartition, int]) -> None:
        """Send one ListOffsets request per leader. Keep the found offsets even if another leader is unreachable."""
        by_leader: dict[Address, list[TopicPartition]] = defaultdict(list)
        unknown = {place.topic for place in wanted if place not in self._leaders}
        if unknown:
            self._metadata(sorted(unknown))
        for place in wanted:
            by_leader[self.leader(place).address].append(place)
        for address, places in by_leader.items():
            with leased(address, self.settings) as connection:
                answer = connection.ask(self._list_offsets({place: wanted[place] for place in places}))
            for topic in answer.topics:
                for partition in topic.partitions:
                    place = TopicPartition(topic.name, partition.partition_index)
                    check_code(partition.error_code, str(place))
                    found[place] = partition.offset

    def _list_offsets(self, wanted: Mapping[TopicPartition, int]) -> Any:
        by_topic: dict[str, list[Any]] = defaultdict(list)
        for place, at in wanted.items():
            epoch = self._leaders[place].epoch
            by_topic[place.topic].append(
                ListOffsetsPartition(partition_index=place.partition, current_leader_epoch=epoch, timestamp=at)
            )
        topics = tuple(ListOffsetsTopic(name=name, partitions=tuple(asked)) for name, asked in by_topic.items())
        return ListOffsetsRequest(replica_id=CONSUMER, isolation_level=self.settings.isolation, topics=topics)


def check_code(code: Any, what: str) -> None:
    """Check a Kafka error code. Raises ConnectionFailed for a retriable error, RequestRefused for any other."""
    if code is ErrorCode.none:
        return
    if code.retriable:
        raise ConnectionFailed(f"{what}: {code.name}")
    raise RequestRefused(f"the broker refuses {what}: {code.name}")
