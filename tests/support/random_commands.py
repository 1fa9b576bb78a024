"""Random metadata commands of level 1 that mostly fit the image, for a comparison of what two releases make of them."""

import random
from collections.abc import Callable, Iterator
from uuid import UUID

from cordwood.cluster.metadata.commands import (
    AllocateProducerIds,
    AlterConfigs,
    AlterPartitions,
    BeginControlledShutdown,
    BrokerId,
    Command,
    ConfigChange,
    CreatePartitions,
    CreateTopic,
    DeleteTopic,
    DropReplicas,
    Election,
    ElectLeaders,
    Endpoint,
    FenceBroker,
    FormatCluster,
    IsrChange,
    ReassignPartition,
    RegisterBroker,
    ReportUnflushed,
    ResourceType,
    UnfenceBroker,
    UnregisterBroker,
)
from cordwood.cluster.metadata.cuts import CreateCut, CutPartition, DropCut
from cordwood.cluster.metadata.image import MIN_ISR, Image
from cordwood.cluster.metadata.image_builder import ImageBuilder
from cordwood.cluster.metadata.quorum import attempt

BROKERS = tuple(map(BrokerId, range(1, 6)))
TOPICS = tuple(UUID(int=number) for number in range(1, 4))
DISKS = tuple(str(UUID(int=number)) for number in range(100, 104))

Place = tuple[UUID, int]


class History:
    """A cluster whose commands are chosen at random: brokers come and go, topics are created, moved and deleted."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self._image = Image()
        self._kinds: tuple[Callable[[], Command], ...] = (
            *(self._register, self._unfence, self._alter_isr, self._reassign) * 3,
            *(self._unfence, self._alter_isr) * 3,
            *(self._create_topic, self._fence, self._elect) * 2,
            self._stop,
            self._create_partitions,
            self._drop_replicas,
            self._report_unflushed,
            self._alter_configs,
            self._unregister,
            self._delete_topic,
            self._create_cut,
            self._drop_cut,
            self._allocate,
        )

    def commands(self, count: int) -> Iterator[Command]:
        """Yield commands, each for the image after those before it."""
        yield self._applied(FormatCluster("cluster"))
        for broker in BROKERS:
            yield self._applied(self._register(broker))
        for _ in range(count):
            yield self._applied(self._rng.choice(self._kinds)())

    def _applied(self, command: Command) -> Command:
        builder = ImageBuilder(self._image)
        attempt(builder, command, self._image.index + 1)
        self._image = builder.image()
        return command

    def _broker(self) -> BrokerId:
        return self._rng.choice(BROKERS)

    def _epoch_of(self, broker: BrokerId) -> int:
        known = self._image.brokers.get(broker)
        return known.epoch if known is not None and self._rng.random() < 0.95 else self._rng.randrange(40)

    def _place(self) -> Place:
        topics = [*self._image.topics_by_id.values()]
        if not topics or self._rng.random() < 0.03:
            return self._rng.choice(TOPICS), self._rng.randrange(4)
        topic = self._rng.choice(topics)
        return topic.id, self._rng.randrange(len(topic.partitions))

    def _replicas(self) -> tuple[BrokerId, ...]:
        return tuple(self._rng.sample(BROKERS, self._rng.randint(1, 4)))

    def _register(self, broker: BrokerId | None = None) -> Command:
        listeners = (Endpoint("PLAINTEXT", "host", 9092),)
        disks = tuple(self._rng.sample(DISKS, self._rng.choice((1, 2, 2, 2))))
        start, min_isr = UUID(int=self._rng.getrandbits(100)), self._rng.choice((1, 1, 2))
        return RegisterBroker(broker or self._broker(), start, listeners, "rack", disks, min_isr=min_isr)

    def _unfence(self) -> Command:
        fenced = [broker.id for broker in self._image.brokers.values() if broker.is_fenced]
        broker = self._rng.choice(fenced or BROKERS)
        return UnfenceBroker(broker, self._epoch_of(broker))

    def _fence(self) -> Command:
        broker = self._broker()
        return FenceBroker(broker, self._epoch_of(broker))

    def _stop(self) -> Command:
        broker = self._broker()
        return BeginControlledShutdown(broker, self._epoch_of(broker))

    def _unregister(self) -> Command:
        return UnregisterBroker(self._broker())

    def _create_topic(self) -> Command:
        topic, width = self._rng.choice(TOPICS), self._rng.randint(1, 3)
        configs = ((MIN_ISR, str(self._rng.randint(1, 3))),) if self._rng.random() < 0.7 else ()
        assignments = tuple(self._replicas() for _ in range(width))
        return CreateTopic(topic, f"topic-{topic.int}", assignments, configs)

    def _delete_topic(self) -> Command:
        return DeleteTopic(self._place()[0])

    def _create_partitions(self) -> Command:
        topic = self._image.topics_by_id.get(self._place()[0])
        count = 0 if topic is None else len(topic.partitions)
        return CreatePartitions(TOPICS[0] if topic is None else topic.id, count, (self._replicas(),))

    def _alter_isr(self) -> Command:
        topic_id, index = self._place()
        partition = self._image.partition(topic_id, index)
        if partition is None or partition.leader not in self._image.brokers:
            return self._unfence()
        leader = partition.leader
        others = [broker for broker in partition.replicas if broker != leader and self._rng.random() < 0.7]
        isr = tuple((broker, self._epoch_of(broker)) for broker in (leader, *others))
        change = IsrChange(topic_id, index, partition.leader_epoch, partition.partition_epoch, isr)
        return AlterPartitions(leader, self._epoch_of(leader), (change,))

    def _reassign(self) -> Command:
        return ReassignPartition(*self._place(), self._replicas() if self._rng.random() < 0.8 else None)

    def _elect(self) -> Command:
        election = self._rng.choice(list(Election))
        candidate = self._broker() if self._rng.random() < 0.3 else None
        return ElectLeaders(election, (self._place(), self._place()), candidate)

    def _drop_replicas(self) -> Command:
        broker = self._broker()
        return DropReplicas(broker, self._epoch_of(broker), (self._place(),), self._rng.random() < 0.5)

    def _report_unflushed(self) -> Command:
        broker = self._broker()
        return ReportUnflushed(broker, self._epoch_of(broker), (self._place(),))

    def _alter_configs(self) -> Command:
        topic = self._image.topics_by_id.get(self._place()[0])
        if topic is None:
            return AlterConfigs(ResourceType.BROKER, "", (ConfigChange(MIN_ISR, None, str(self._rng.randint(1, 3))),))
        before = topic.configs.get(MIN_ISR)
        change = ConfigChange(MIN_ISR, before, self._rng.choice((None, "1", "2", "3")))
        return AlterConfigs(ResourceType.TOPIC, topic.name, (change,))

    def _allocate(self) -> Command:
        return AllocateProducerIds(self._broker(), self._image.next_producer_id, 1000)

    def _create_cut(self) -> Command:
        topic_id, index = self._place()
        return CreateCut(f"cut-{self._rng.randrange(2)}", 5, -1, (CutPartition(topic_id, index, 0, 9),))

    def _drop_cut(self) -> Command:
        return DropCut(f"cut-{self._rng.randrange(2)}", 5)
