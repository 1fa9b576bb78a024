"""Partition assignments: this broker's replicas and their roles (leader, follower), as the metadata image has them."""

from collections.abc import Callable, Iterator
from typing import Protocol
from uuid import UUID

import structlog

from cordwood.cluster.config import topic_configs
from cordwood.cluster.config.rows import BrokerConfig, broker_config
from cordwood.cluster.config.settings import Settings
from cordwood.cluster.metadata.image import MIN_ISR, Image, PartitionImage, TopicImage, changed_topics
from cordwood.replication.assignment import Assignment
from cordwood.replication.log_maintenance import LogMaintenance
from cordwood.replication.partition import Partition, PartitionRefused, TopicIdPartition
from cordwood.replication.replicas import Replicas
from cordwood.storage.config import LogConfig
from cordwood.storage.errors import StorageError

_events = structlog.get_logger("replicas")


class Following(Protocol):
    """The starter of replication from a partition's leader."""

    def follow(self, partition: Partition, leader: int) -> None:
        """Follow `leader` in the partition's current leader epoch."""
        ...


class Assignments:
    """The replicas of this broker, kept in step with the metadata image. `follow` is a listener of the quorum."""

    def __init__(
        self,
        replicas: Replicas,
        log_maintenance: LogMaintenance,
        following: Following,
        settings: Settings,
        wall_clock: Callable[[], int],
    ) -> None:
        self._replicas, self._log_maintenance, self._following = replicas, log_maintenance, following
        self._settings, self._wall_clock = settings, wall_clock

    def assigned(self, image: Image) -> Iterator[tuple[TopicIdPartition, LogConfig]]:
        """Yield the replicas that the image assigns to this broker, with their log configuration."""
        broker = broker_config(self._settings, image)
        for topic in image.topics_by_id.values():
            config = log_config(topic, broker)
            for index, partition in enumerate(topic.partitions):
                if self._settings.node_id in partition.replicas:
                    yield TopicIdPartition(topic.name, index, topic.id), config

    def begin(self, image: Image) -> None:
        """Open every replica that the image assigns to this broker, and take its role.

        Blocks on the disk for each log that has data and is not recovered yet. The image has this incarnation
        registered, so that no role belongs to the previous incarnation.
        """
        for topic in image.topics_by_id.values():
            _warn_of_ignored(None, topic)
            self._take_roles(None, topic, image)
        self._replicas.release_recovered()
        if not image.passed_over:
            found = self._replicas.found()
            self._log_maintenance.remove_orphans([row for row in found if not self._is_assigned(row[1], row[2], image)])

    def follow(self, old: Image, new: Image) -> None:
        """Apply a metadata change to the replicas. Raise nothing: a failed disk costs replicas, never the metadata."""
        for before, after in changed_topics(old, new):
            if after is None:
                assert before is not None, "a change has at least one side"
                self._remove(self._replicas.remove(before.name), before.name)
            else:
                _warn_of_ignored(before, after)
                self._take_roles(before, after, new)
        if old.brokers is not new.brokers:
            # A follower that has caught up may have waited only for its broker to be alive.
            for partition in self._replicas:
                partition.watch_followers()
        if old.broker_configs is not new.broker_configs:
            for topic in new.topics_by_id.values():
                self._take_roles(None, topic, new)

    def _is_assigned(self, topic_id: UUID, index: int, image: Image) -> bool:
        """Return True if the image assigns the replica to this broker, even if its log could not be opened."""
        partition = image.partition(topic_id, index)
        return partition is not None and self._settings.node_id in partition.replicas

    def open_more(self, image: Image) -> None:
        """Retry the replicas that could not be opened for lack of room, up to the first that still cannot be opened."""
        for name, index in self._replicas.not_opened():
            topic = image.topics_by_name.get(name)
            if topic is None or self._replicas.is_disk_lost(topic.id, index):
                continue
            self._take_roles(None, topic, image)
            if self._replicas.get(name, index) is None:
                return

    def _take_roles(self, before: TopicImage | None, topic: TopicImage, image: Image) -> None:
        """Take the roles in all partitions of a topic, or only in those that have changed since `before`."""
        broker = broker_config(self._settings, image)
        if before is not None and before.configs is not topic.configs:
            before = None
        config = log_config(topic, broker)
        self._replicas.configure(topic.name, config)
        min_isr = max(image.min_isr(topic), _min_isr(topic, broker))
        known = () if before is None else before.partitions
        for index, partition in enumerate(topic.partitions):
            if index < len(known) and known[index] is partition:
                continue
            if self._settings.node_id in partition.replicas:
                held = self._replicas.get(topic.name, index) or self._open(topic, index, config)
                if held is not None:
                    self._assign_within(held, partition, min_isr)
            elif (moved_away := self._replicas.remove_one(topic.name, index)) is not None:
                self._remove([moved_away], topic.name)

    def _assign_within(self, held: Partition, partition: PartitionImage, min_isr: int) -> None:
        """Do as `_assign`. An exception fails this replica and no other."""
        try:
            self._assign(held, partition, min_isr)
        except Exception as error:
            held.fail(error)

    def _assign(self, held: Partition, partition: PartitionImage, min_isr: int) -> None:
        must_follow = held.assigned(
            Assignment(
                partition.leader,
                partition.leader_epoch,
                partition.partition_epoch,
                partition.replicas,
                frozenset(partition.isr),
                min_isr,
            )
        )
        if must_follow:
            self._following.follow(held, partition.leader)

    def _remove(self, partitions: list[Partition], topic: str) -> None:
        try:
            self._log_maintenance.remove(partitions)
        except OSError as error:
            # The files that are left are orphans at the next start.
            _events.error("topic.not_removed", topic=topic, error=str(error))

    def _open(self, topic: TopicImage, index: int, config: LogConfig) -> Partition | None:
        try:
            damage = self._replicas.open(TopicIdPartition(topic.name, index, topic.id), config, self._wall_clock())
        except (PartitionRefused, StorageError, OSError) as error:
            # Replicas.open has taken the log directory offline before it raised an OSError.
            reason = str(error.__cause__ or error)
            _events.error("partition.offline", topic=topic.name, partition=index, reason=reason)
            return None
        held = self._replicas.get(topic.name, index)
        assert held is not None, "it has just been opened"
        for damaged in damage:
            held.report_damage(damaged)
        return held


def _warn_of_ignored(before: TopicImage | None, topic: TopicImage) -> None:
    if before is None or before.configs is not topic.configs:
        for sentence in topic_configs.ignored(topic.configs):
            _events.warning("config.ignored", topic=topic.name, reason=sentence)


def log_config(topic: TopicImage, broker: BrokerConfig) -> LogConfig:
    return topic_configs.log_config(topic.configs, broker)


def _min_isr(topic: TopicImage, broker: BrokerConfig) -> int:
    value = topic_configs.value_of(MIN_ISR, topic.configs, broker)
    assert isinstance(value, int), "min.insync.replicas is a number"
    return value
