"""The whole of the metadata at one point of the log. `image_builder.py` says how a command makes the next image from
it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import compress, filterfalse
from operator import is_not
from types import MappingProxyType
from uuid import UUID

from kio.schema.errors import ErrorCode

from cordwood.cluster.config_values import integer
from cordwood.cluster.metadata.acls import Acl
from cordwood.cluster.metadata.commands import Assignment, BrokerId, Endpoint
from cordwood.cluster.metadata.recent import RecentEntries

EMPTY: Mapping[str, str] = MappingProxyType({})

ALL_BROKERS = ""
"""The name that dynamic configs for all brokers are kept under."""

NO_LEADER = BrokerId(-1)
"""In the place of a leader: nobody may lead the partition now."""

MIN_ISR = "min.insync.replicas"
_MIN_ISR_TYPE = integer(1)


class CommandRefused(Exception):
    """A command that does not fit the image it met. Nothing has changed."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


@dataclass(frozen=True, slots=True)
class PartitionImage:
    """Who holds a partition, and who leads it since which epoch.

    Every member of `isr` is alive, or the only one left: the last to have everything stays (KIP-966). It is empty only
    where that one has lost its disk. `elr` are replicas out of the in-sync set that still have all that is committed:
    they left it when it became too small to commit more. `adding` and `removing` tell of a move under way (KIP-455).
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
    """A topic: its partitions by index, and the configs that were set for it."""

    id: UUID
    name: str
    partitions: tuple[PartitionImage, ...]
    configs: Mapping[str, str] = field(default_factory=lambda: EMPTY)


@dataclass(frozen=True, slots=True)
class BrokerImage:
    """A registered broker. `epoch` is the log index of the command by which this incarnation was first registered.

    A fenced broker leads nothing and joins no in-sync set: it has only just started, or has fallen silent.
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
    """The min.insync.replicas that it was started with."""

    @property
    def is_alive(self) -> bool:
        """Whether it may lead and be in sync."""
        return not self.is_fenced and not self.is_shutting_down

    def endpoint(self, listener: str) -> Endpoint | None:
        """Where clients of that listener reach this broker."""
        return next((endpoint for endpoint in self.endpoints if endpoint.listener == listener), None)


@dataclass(frozen=True, slots=True)
class Image:
    """The metadata after the command at log index `index`. Its mappings are never changed in place."""

    index: int = 0
    cluster_id: str = ""
    brokers: Mapping[BrokerId, BrokerImage] = field(default_factory=dict)
    topics_by_name: Mapping[str, TopicImage] = field(default_factory=dict)
    topics_by_id: Mapping[UUID, TopicImage] = field(default_factory=dict)
    broker_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Dynamic broker configs by broker id as text; ALL_BROKERS for those that hold for all."""
    next_producer_id: int = 0
    acls: Mapping[UUID, Acl] = field(default_factory=dict)
    recent: RecentEntries = field(default_factory=RecentEntries)
    passed_over: int = 0
    """The first entry that this version does not know, and has passed over; 0 for none (docs/adr/0024).

    Such an image is for this broker alone: it is never written down, sent, or taken for a reason to remove anything.
    """

    def configs_of_broker(self, broker_id: int) -> Mapping[str, str]:
        """The dynamic configs set for this one broker."""
        return self.broker_configs.get(str(broker_id), EMPTY)

    @property
    def configs_of_all_brokers(self) -> Mapping[str, str]:
        return self.broker_configs.get(ALL_BROKERS, EMPTY)

    def partition(self, topic_id: UUID, index: int) -> PartitionImage | None:
        """None where there is no such topic or partition."""
        topic = self.topics_by_id.get(topic_id)
        return topic.partitions[index] if topic is not None and 0 <= index < len(topic.partitions) else None

    def has_partition(self, topic: str, index: int) -> bool:
        known = self.topics_by_name.get(topic)
        return known is not None and 0 <= index < len(known.partitions)

    def is_alive(self, broker_id: BrokerId) -> bool:
        """Whether the broker may lead and be in sync."""
        broker = self.brokers.get(broker_id)
        return broker is not None and broker.is_alive

    def is_in_service(self, broker_id: BrokerId) -> bool:
        """Whether the broker serves clients, be it that it is about to stop."""
        broker = self.brokers.get(broker_id)
        return broker is not None and not broker.is_fenced

    def min_isr(self, topic: TopicImage) -> int:
        """How small an in-sync set may be and still commit, as far as every broker knows it alike.

        A broker's own settings may ask for more, never for less: eligible leaders are chosen by this number.
        """
        set_for_topic, set_for_all = topic.configs.get(MIN_ISR), self.configs_of_all_brokers.get(MIN_ISR)
        return _min_isr(set_for_topic) or _min_isr(set_for_all) or self.least_min_isr

    @property
    def least_min_isr(self) -> int:
        """What every broker asks for by its settings, if not more."""
        return min((broker.min_isr for broker in self.brokers.values()), default=1)


def _min_isr(text: str | None) -> int | None:
    """None where it is not set, or to what is no min.insync.replicas: that is passed over, by every broker alike."""
    value = None if text is None else _MIN_ISR_TYPE.read(text)
    return value if isinstance(value, int) else None


def changed_topics(old: Image, new: Image) -> Iterator[tuple[TopicImage | None, TopicImage | None]]:
    """Every topic that differs, as it was and as it is; None on the side where it is not.

    Costs one look at each topic: unchanged ones are the same object in both images.
    """
    if old.topics_by_id is new.topics_by_id:
        return
    before, after = old.topics_by_name, new.topics_by_name
    # Without a line of Python for each topic: there may be tens of thousands, and this is asked at every change.
    for name in compress(before, map(is_not, before.values(), map(after.get, before))):
        was, is_now = before[name], after.get(name)
        if is_now is not None and is_now.id != was.id:
            yield was, None
            yield None, is_now
        else:
            yield was, is_now
    for name in filterfalse(before.__contains__, after):
        yield None, after[name]
