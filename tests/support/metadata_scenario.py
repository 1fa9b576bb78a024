"""A cluster's metadata without brokers: registrations, fencing, and the elections and ISR changes of one partition."""

from uuid import UUID

from kio.schema.errors import ErrorCode

from cordwood.cluster.metadata.commands import (
    AlterConfigs,
    AlterPartitions,
    BeginControlledShutdown,
    BrokerId,
    Command,
    ConfigChange,
    CreateTopic,
    DropReplicas,
    Election,
    ElectLeaders,
    FenceBroker,
    IsrChange,
    ReassignPartition,
    RegisterBroker,
    ResourceType,
    UnfenceBroker,
)
from cordwood.cluster.metadata.features import FIRST_LEVEL, METADATA_VERSION, NEWEST_LEVEL, UpdateFeatures
from cordwood.cluster.metadata.image import MIN_ISR, BrokerImage, CommandRefused, Image, PartitionImage
from cordwood.cluster.metadata.image_builder import apply

TOPIC = UUID(int=1)
NAME = "flights"
DISKS = (str(UUID(int=1)),)
ANOTHER = (str(UUID(int=2)),)
"""Ids of log directories: a broker's own, and one that it has not had before."""


class MetadataScenario:
    """The metadata of `brokers` unfenced brokers and one topic. The methods concern its first partition."""

    def __init__(self, brokers: int = 3) -> None:
        self.image = Image()
        self._starts = 0
        for broker in range(1, brokers + 1):
            self.start(broker).unfence(broker)

    @property
    def partition(self) -> PartitionImage:
        return self.image.topics_by_id[TOPIC].partitions[0]

    def level(self, level: int) -> "MetadataScenario":
        """Finalize a metadata.version."""
        epochs = tuple((broker.id, broker.epoch) for broker in self.image.brokers.values())
        return self.apply(UpdateFeatures(((METADATA_VERSION, level),), epochs))

    def broker(self, broker: int) -> BrokerImage:
        return self.image.brokers[BrokerId(broker)]

    def apply(self, *commands: Command) -> "MetadataScenario":
        """Apply commands. Raises CommandRefused."""
        for command in commands:
            self.image = apply(self.image, command, self.image.index + 1)
        return self

    def refusal(self, command: Command) -> ErrorCode | None:
        """Return the error code of a refused command; None if it is applied."""
        try:
            self.apply(command)
        except CommandRefused as refused:
            return refused.code
        return None

    def create(self, *replicas: int, min_isr: int | None = 1, partitions: int = 1) -> "MetadataScenario":
        """Create the topic. With None, min.insync.replicas comes from the brokers."""
        configs = () if min_isr is None else ((MIN_ISR, str(min_isr)),)
        return self.apply(CreateTopic(TOPIC, NAME, (_ids(replicas),) * partitions, configs))

    def start(self, broker: int, log_dirs: tuple[str, ...] = DISKS, min_isr: int = 1) -> "MetadataScenario":
        """Register a new incarnation of a broker. It is fenced until `unfence`."""
        self._starts += 1
        incarnation, newest = UUID(int=self._starts), min(self.image.metadata_version, NEWEST_LEVEL)
        levels = (FIRST_LEVEL, newest)
        return self.apply(
            RegisterBroker(BrokerId(broker), incarnation, (), None, log_dirs, None, min_isr, levels=levels)
        )

    def restart(self, broker: int, log_dirs: tuple[str, ...] = DISKS) -> "MetadataScenario":
        return self.start(broker, log_dirs).unfence(broker)

    def fence(self, *brokers: int) -> "MetadataScenario":
        return self.apply(*(FenceBroker(BrokerId(broker), self.broker(broker).epoch) for broker in brokers))

    def unfence(self, *brokers: int) -> "MetadataScenario":
        return self.apply(*(UnfenceBroker(BrokerId(broker), self.broker(broker).epoch) for broker in brokers))

    def stop(self, broker: int) -> "MetadataScenario":
        """Begin a broker's controlled shutdown."""
        return self.apply(BeginControlledShutdown(BrokerId(broker), self.broker(broker).epoch))

    def in_sync(self, *members: int) -> "MetadataScenario":
        """Have the leader propose these members as ISR."""
        leader = self.broker(self.partition.leader)
        return self.apply(AlterPartitions(leader.id, leader.epoch, (self.proposal(*members),)))

    def proposal(self, *members: int) -> IsrChange:
        known = tuple((BrokerId(member), self.broker(member).epoch) for member in members)
        return IsrChange(TOPIC, 0, self.partition.leader_epoch, self.partition.partition_epoch, known)

    def lose(self, broker: int, *, is_gone: bool) -> "MetadataScenario":
        """Have a broker report its replica as damaged, or as gone."""
        return self.apply(DropReplicas(BrokerId(broker), self.broker(broker).epoch, ((TOPIC, 0),), is_gone))

    def elect(self, election: Election, candidate: int | None = None) -> "MetadataScenario":
        chosen = None if candidate is None else BrokerId(candidate)
        return self.apply(ElectLeaders(election, ((TOPIC, 0),), chosen))

    def move(self, *replicas: int) -> "MetadataScenario":
        return self.apply(ReassignPartition(TOPIC, 0, _ids(replicas)))

    def take_back(self) -> "MetadataScenario":
        return self.apply(ReassignPartition(TOPIC, 0, None))

    def set_min_isr(self, count: int) -> "MetadataScenario":
        now = self.image.topics_by_id[TOPIC].configs.get(MIN_ISR)
        return self.apply(AlterConfigs(ResourceType.TOPIC, NAME, (ConfigChange(MIN_ISR, now, str(count)),)))


def _ids(brokers: tuple[int, ...]) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, brokers))
