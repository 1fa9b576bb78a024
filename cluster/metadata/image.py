"""The metadata image: all metadata at one index of the metadata log. `image_builder.py` applies commands to it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeVar
from uuid import UUID

from kio.schema.errors import ErrorCode

from cordwood.archive.manifest import PartitionArchive
from cordwood.cluster.metadata.acls import Acl
from cordwood.cluster.metadata.client_quotas import Entity
from cordwood.cluster.metadata.commands import NO_BROKER, Assignment, BrokerId, Endpoint
from cordwood.cluster.metadata.config_values import integer
from cordwood.cluster.metadata.credentials import DelegationToken, ScramCredential, ScramMechanism
from cordwood.cluster.metadata.cuts import Cut
from cordwood.cluster.metadata.features import FIRST_LEVEL, METADATA_VERSION, OF_FIRST_RELEASE, Levels
from cordwood.cluster.metadata.persistent_map import (
    PersistentMap,
    bits_of_id,
    bits_of_name,
    bits_of_place,
    differences,
)
from cordwood.cluster.metadata.recent import RecentEntries
from cordwood.cluster.metadata.voters import Voter

Place = tuple[UUID, int]
"""Topic id and partition index."""
V = TypeVar("V")

EMPTY: Mapping[str, str] = MappingProxyType({})

ALL_BROKERS = ""
"""The resource name of the cluster-wide dynamic broker configs."""

NO_LEADER = NO_BROKER
"""The leader of a partition that has no leader."""

MIN_ISR = "min.insync.replicas"
_MIN_ISR_TYPE = integer(1)


class CommandRefused(Exception):
    """A command that does not fit the current image. Nothing has changed."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


@dataclass(frozen=True, slots=True)
class PartitionImage:
    """A partition's replicas, in-sync set (ISR), leader and epochs.

    Every member of `isr` is alive, or the last one: the last replica that has every committed record stays in the ISR
    (KIP-966). `isr` is empty only if that replica lost its disk. `elr` is the set of eligible leader replicas: they
    left the ISR when it fell below min.insync.replicas, and still have every committed record. `adding` and `removing`
    are not empty while a reassignment is in progress (KIP-455).
    """

    replicas: Assignment
    isr: Assignment
    leader: BrokerId
    leader_epoch: int = 0
    partition_epoch: int = 0
    elr: Assignment = ()
    adding: Assignment = ()
    removing: Assignment = ()


@dataclass(frozen=True, slots=True)
class TopicImage:
    """A topic: its partitions by index, and its own configs."""

    id: UUID
    name: str
    partitions: tuple[PartitionImage, ...]
    configs: Mapping[str, str] = field(default_factory=lambda: EMPTY)


@dataclass(frozen=True, slots=True)
class BrokerImage:
    """A registered broker. `epoch` is the log index of the command that first registered this incarnation.

    A fenced broker leads nothing and joins no in-sync set: it has just started, or its session has timed out.
    """

    id: BrokerId
    incarnation: UUID
    epoch: int
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    log_dirs: tuple[str, ...] = ()
    is_fenced: bool = True
    is_shutting_down: bool = False
    min_isr: int = 1
    """The static min.insync.replicas of this broker."""
    levels: Levels = OF_FIRST_RELEASE
    """The metadata.version that it supports, if it has registered since level 2 was finalized."""

    @property
    def is_alive(self) -> bool:
        """True if the broker may lead and be in sync."""
        return not self.is_fenced and not self.is_shutting_down

    def endpoint(self, listener: str) -> Endpoint | None:
        """Return the advertised address of this broker for clients of `listener`, or None."""
        return next((endpoint for endpoint in self.endpoints if endpoint.listener == listener), None)


@dataclass(frozen=True, slots=True)
class Image:
    """The metadata after the command at log index `index`. Its mappings are never changed in place.

    Those that grow with the partitions are persistent maps once a command has changed them.
    """

    index: int = 0
    cluster_id: str = ""
    brokers: Mapping[BrokerId, BrokerImage] = field(default_factory=dict)
    topics_by_name: Mapping[str, TopicImage] = field(default_factory=dict)
    topics_by_id: Mapping[UUID, TopicImage] = field(default_factory=dict)
    broker_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Dynamic broker configs by broker id as text; ALL_BROKERS for the cluster-wide ones."""
    next_producer_id: int = 0
    acls: Mapping[UUID, Acl] = field(default_factory=dict)
    recent: RecentEntries = field(default_factory=RecentEntries)
    scram_credentials: Mapping[tuple[str, ScramMechanism], ScramCredential] = field(default_factory=dict)
    """By user and mechanism."""
    delegation_tokens: Mapping[str, DelegationToken] = field(default_factory=dict)
    """By token id. An expired token stays until it is removed: its readers compare its expiry."""
    archives: Mapping[tuple[UUID, int], PartitionArchive] = field(default_factory=dict)
    """By topic id and partition. An archive stays after its topic, until its objects are deleted."""
    cuts: Mapping[str, Cut] = field(default_factory=dict)
    """By name. An expired cut stays until it is removed: its readers compare its expiry."""
    features: Mapping[str, int] = field(default_factory=dict)
    """Finalized feature levels by name."""
    client_quotas: Mapping[Entity, Mapping[str, float]] = field(default_factory=dict)
    """Limits by entity and by key."""
    directories: Mapping[BrokerId, Mapping[tuple[UUID, int], str]] = field(default_factory=dict)
    """Ids of log directories by broker and replica, of brokers with several log directories."""
    voters: Mapping[BrokerId, Voter] = field(default_factory=dict)
    """The voters of the metadata quorum; empty while controller.quorum.voters of every broker names them."""
    client_metrics: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Configs of client metrics subscriptions, by name (KIP-714)."""
    group_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Dynamic configs of groups, by group id."""
    passed_over: int = 0
    """The index of the first entry that this version does not know and has passed over; 0 for none (docs/adr/0024).

    Such an image is valid for this broker alone: it is never written to a snapshot, sent to a peer, or a reason to
    remove anything.
    """

    @property
    def metadata_version(self) -> int:
        """The finalized metadata.version."""
        return self.features.get(METADATA_VERSION, FIRST_LEVEL)

    def configs_of_broker(self, broker_id: int) -> Mapping[str, str]:
        """Return the dynamic configs of this one broker."""
        return self.broker_configs.get(str(broker_id), EMPTY)

    @property
    def configs_of_all_brokers(self) -> Mapping[str, str]:
        return self.broker_configs.get(ALL_BROKERS, EMPTY)

    def partition(self, topic_id: UUID, index: int) -> PartitionImage | None:
        """Return the partition, or None if there is no such topic or partition."""
        topic = self.topics_by_id.get(topic_id)
        return topic.partitions[index] if topic is not None and 0 <= index < len(topic.partitions) else None

    def has_partition(self, topic: str, index: int) -> bool:
        known = self.topics_by_name.get(topic)
        return known is not None and 0 <= index < len(known.partitions)

    def is_elsewhere(self, topic: str, index: int, broker_id: int) -> bool:
        """Return whether a partition exists, without a replica on this broker."""
        known = self.topics_by_name.get(topic)
        if known is None or not 0 <= index < len(known.partitions):
            return False
        return broker_id not in known.partitions[index].replicas

    def is_alive(self, broker_id: BrokerId) -> bool:
        """Return whether the broker may lead and be in sync."""
        broker = self.brokers.get(broker_id)
        return broker is not None and broker.is_alive

    def is_in_service(self, broker_id: BrokerId) -> bool:
        """Return whether the broker serves clients. A broker in controlled shutdown still does."""
        broker = self.brokers.get(broker_id)
        return broker is not None and not broker.is_fenced

    def min_isr(self, topic: TopicImage) -> int:
        """Return the smallest in-sync set of `topic` that may commit. Every broker computes the same value.

        A broker's static configuration may require more, never less: eligible leader replicas are chosen by this
        number.
        """
        set_for_topic, set_for_all = topic.configs.get(MIN_ISR), self.configs_of_all_brokers.get(MIN_ISR)
        return _min_isr(set_for_topic) or _min_isr(set_for_all) or self.least_min_isr

    @property
    def least_min_isr(self) -> int:
        """The smallest static min.insync.replicas of all registered brokers; 1 if there are none."""
        return min((broker.min_isr for broker in self.brokers.values()), default=1)


def _min_isr(text: str | None) -> int | None:
    """Return the number, or None if it is unset or invalid. Every broker ignores invalid text."""
    value = None if text is None else _MIN_ISR_TYPE.read(text)
    return value if isinstance(value, int) else None


def changed_topics(old: Image, new: Image) -> Iterator[tuple[TopicImage | None, TopicImage | None]]:
    """Yield every topic that differs, before and after; None on the side where the topic does not exist.

    The cost is that of the changes: what both images share is not visited.
    """
    if old.topics_by_id is new.topics_by_id:
        return
    for _, was, is_now in differences(old.topics_by_name, new.topics_by_name):
        if was is not None and is_now is not None and was.id != is_now.id:
            yield was, None
            yield None, is_now
        else:
            yield was, is_now


def by_name(topics: Mapping[str, TopicImage]) -> PersistentMap[str, TopicImage]:
    """Return the mapping as a persistent map; itself if it is one."""
    return topics if isinstance(topics, PersistentMap) else PersistentMap(bits_of_name, topics.items())


def by_id(topics: Mapping[UUID, TopicImage]) -> PersistentMap[UUID, TopicImage]:
    """Return topics by their id, as `by_name`."""
    return topics if isinstance(topics, PersistentMap) else PersistentMap(bits_of_id, topics.items())


def by_place(replicas: Mapping[Place, V]) -> PersistentMap[Place, V]:
    """Return values of partitions as a persistent map; itself if it is one."""
    return replicas if isinstance(replicas, PersistentMap) else PersistentMap(bits_of_place, replicas.items())
