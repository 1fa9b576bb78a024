"""The whole of the metadata at one point of the log, and how a command makes the next image from it. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import assert_never
from uuid import UUID

from kio.schema.errors import ErrorCode

from cordwood.cluster.metadata.acls import Acl
from cordwood.cluster.metadata.commands import (
    AllocateProducerIds,
    AlterConfigs,
    Assignment,
    BrokerId,
    Command,
    ConfigChange,
    CreateAcls,
    CreatePartitions,
    CreateTopic,
    DeleteAcls,
    DeleteTopic,
    Endpoint,
    FormatCluster,
    RegisterBroker,
    ResourceType,
)

EMPTY: Mapping[str, str] = MappingProxyType({})

ALL_BROKERS = ""
"""The name that dynamic configs for all brokers are kept under."""


class CommandRefused(Exception):
    """A command that does not fit the image it met. Nothing has changed."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


@dataclass(frozen=True, slots=True)
class PartitionImage:
    """Who holds a partition, and who leads it since which epoch."""

    replicas: Assignment
    isr: Assignment
    leader: BrokerId
    leader_epoch: int = 0
    partition_epoch: int = 0


@dataclass(frozen=True, slots=True)
class TopicImage:
    """A topic: its partitions by index, and the configs that were set for it."""

    id: UUID
    name: str
    partitions: tuple[PartitionImage, ...]
    configs: Mapping[str, str] = field(default_factory=lambda: EMPTY)


@dataclass(frozen=True, slots=True)
class BrokerImage:
    """A registered broker. `epoch` is the log index of the command by which this incarnation was first registered."""

    id: BrokerId
    incarnation: UUID
    epoch: int
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    log_dirs: tuple[str, ...] = ()

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

    def configs_of_broker(self, broker_id: int) -> Mapping[str, str]:
        """The dynamic configs set for this one broker."""
        return self.broker_configs.get(str(broker_id), EMPTY)

    @property
    def configs_of_all_brokers(self) -> Mapping[str, str]:
        return self.broker_configs.get(ALL_BROKERS, EMPTY)


def apply(image: Image, command: Command, index: int) -> Image:
    """The image after one command. Raises CommandRefused where the command does not fit."""
    draft = Draft(image)
    draft.apply(command, index)
    return draft.image()


def changed_topics(old: Image, new: Image) -> Iterator[tuple[TopicImage | None, TopicImage | None]]:
    """Every topic that differs, as it was and as it is; None on the side where it is not.

    Costs one look at each topic: unchanged ones are the same object in both images.
    """
    if old.topics_by_id is new.topics_by_id:
        return
    for topic_id, before in old.topics_by_id.items():
        after = new.topics_by_id.get(topic_id)
        if after is not before:
            yield before, after
    for topic_id in new.topics_by_id.keys() - old.topics_by_id.keys():
        yield None, new.topics_by_id[topic_id]


class Draft:
    """An image in the making. Several commands share one copy of each mapping, which keeps a replay linear."""

    def __init__(self, image: Image) -> None:
        self._before = image
        self._index = image.index
        self._by_name: dict[str, TopicImage] | None = None
        self._by_id: dict[UUID, TopicImage] | None = None
        self._rest = image

    def apply(self, command: Command, index: int) -> None:
        """Raises CommandRefused and changes nothing but the index, which counts refused commands too."""
        self._index = index
        match command:
            case CreateTopic():
                self._create_topic(command)
            case DeleteTopic():
                self._delete_topic(command)
            case CreatePartitions():
                self._create_partitions(command)
            case AlterConfigs():
                self._alter_configs(command)
            case AllocateProducerIds():
                self._allocate_producer_ids(command)
            case RegisterBroker():
                self._register_broker(command, index)
            case CreateAcls():
                self._create_acls(command)
            case DeleteAcls():
                self._delete_acls(command)
            case FormatCluster():
                self._format(command)
            case _:
                assert_never(command)

    def image(self) -> Image:
        """What has become of it. The draft is not to be used after."""
        if self._by_name is None or self._by_id is None:
            return replace(self._rest, index=self._index)
        return replace(self._rest, index=self._index, topics_by_name=self._by_name, topics_by_id=self._by_id)

    def _format(self, command: FormatCluster) -> None:
        if self._rest.cluster_id not in ("", command.cluster_id):
            raise CommandRefused(ErrorCode.inconsistent_cluster_id, f"the cluster's id is {self._rest.cluster_id}")
        self._rest = replace(self._rest, cluster_id=command.cluster_id)

    def _register_broker(self, command: RegisterBroker, index: int) -> None:
        known = self._rest.brokers.get(command.broker_id)
        same = known is not None and known.incarnation == command.incarnation
        broker = BrokerImage(
            command.broker_id,
            command.incarnation,
            known.epoch if known is not None and same else index,
            command.listeners,
            command.rack,
            command.log_dirs,
        )
        self._rest = replace(self._rest, brokers={**self._rest.brokers, broker.id: broker})

    def _create_topic(self, command: CreateTopic) -> None:
        known = self._topic_named(command.name)
        if known is not None and known.id == command.topic_id:
            return
        if known is not None or self._topic(command.topic_id) is not None:
            raise CommandRefused(ErrorCode.topic_already_exists, f"Topic '{command.name}' already exists.")
        self._check_brokers(command.assignments)
        configs = dict(command.configs) if command.configs else EMPTY
        self._put(TopicImage(command.topic_id, command.name, _new_partitions(command.assignments), configs))

    def _delete_topic(self, command: DeleteTopic) -> None:
        topic = self._known(command.topic_id)
        by_name, by_id = self._topics()
        del by_name[topic.name]
        del by_id[topic.id]

    def _create_partitions(self, command: CreatePartitions) -> None:
        topic = self._known(command.topic_id)
        count, wanted = len(topic.partitions), command.expected_count + len(command.assignments)
        held = tuple(partition.replicas for partition in topic.partitions[command.expected_count :])
        if count == wanted and held == command.assignments:
            return
        if count != command.expected_count:
            raise CommandRefused(ErrorCode.invalid_partitions, f"Topic '{topic.name}' has {count} partitions by now.")
        self._check_brokers(command.assignments)
        self._put(replace(topic, partitions=topic.partitions + _new_partitions(command.assignments)))

    def _alter_configs(self, command: AlterConfigs) -> None:
        match command.resource_type:
            case ResourceType.TOPIC:
                topic = self._topic_named(command.name)
                if topic is None:
                    raise CommandRefused(ErrorCode.unknown_topic_or_partition, f"Topic '{command.name}' is unknown.")
                self._put(replace(topic, configs=_changed(topic.configs, command.changes)))
            case ResourceType.BROKER:
                configs = dict(self._rest.broker_configs)
                configs[command.name] = _changed(configs.get(command.name, EMPTY), command.changes)
                if not configs[command.name]:
                    del configs[command.name]
                self._rest = replace(self._rest, broker_configs=configs)
            case _:
                assert_never(command.resource_type)

    def _allocate_producer_ids(self, command: AllocateProducerIds) -> None:
        if command.expected_next != self._rest.next_producer_id:
            message = f"The next producer id is {self._rest.next_producer_id} by now."
            raise CommandRefused(ErrorCode.invalid_update_version, message)
        self._rest = replace(self._rest, next_producer_id=command.expected_next + command.count)

    def _create_acls(self, command: CreateAcls) -> None:
        acls = dict(self._rest.acls)
        known = set(acls.values())
        for acl_id, acl in command.acls:
            if acl not in known:
                acls[acl_id] = acl
                known.add(acl)
        self._rest = replace(self._rest, acls=acls)

    def _delete_acls(self, command: DeleteAcls) -> None:
        gone = set(command.ids)
        kept = {acl_id: acl for acl_id, acl in self._rest.acls.items() if acl_id not in gone}
        self._rest = replace(self._rest, acls=kept)

    def _check_brokers(self, assignments: Iterable[Assignment]) -> None:
        for broker_id in {broker_id for assignment in assignments for broker_id in assignment}:
            if broker_id not in self._rest.brokers:
                message = f"Broker {broker_id} is assigned a partition, but no such broker is registered."
                raise CommandRefused(ErrorCode.invalid_replica_assignment, message)

    def _topic(self, topic_id: UUID) -> TopicImage | None:
        return (self._before.topics_by_id if self._by_id is None else self._by_id).get(topic_id)

    def _topic_named(self, name: str) -> TopicImage | None:
        return (self._before.topics_by_name if self._by_name is None else self._by_name).get(name)

    def _known(self, topic_id: UUID) -> TopicImage:
        topic = self._topic(topic_id)
        if topic is None:
            raise CommandRefused(ErrorCode.unknown_topic_id, f"No topic has the id {topic_id}.")
        return topic

    def _put(self, topic: TopicImage) -> None:
        by_name, by_id = self._topics()
        by_name[topic.name] = by_id[topic.id] = topic

    def _topics(self) -> tuple[dict[str, TopicImage], dict[UUID, TopicImage]]:
        if self._by_name is None or self._by_id is None:
            self._by_name, self._by_id = dict(self._before.topics_by_name), dict(self._before.topics_by_id)
        return self._by_name, self._by_id


def _new_partitions(assignments: Iterable[Assignment]) -> tuple[PartitionImage, ...]:
    # Partitions that start alike are one object: a thousand of them on one broker cost a thousand pointers.
    alike: dict[Assignment, PartitionImage] = {}
    partitions = []
    for replicas in assignments:
        assert replicas, "a partition has at least one replica"
        partition = alike.get(replicas)
        if partition is None:
            partition = alike[replicas] = PartitionImage(replicas, replicas, replicas[0])
        partitions.append(partition)
    return tuple(partitions)


def _changed(configs: Mapping[str, str], changes: Iterable[ConfigChange]) -> Mapping[str, str]:
    changed = dict(configs)
    for change in changes:
        if configs.get(change.key) not in (change.expected, change.value):
            message = f"'{change.key}' has been changed by someone else meanwhile."
            raise CommandRefused(ErrorCode.invalid_update_version, message)
        if change.value is None:
            changed.pop(change.key, None)
        else:
            changed[change.key] = change.value
    return changed
