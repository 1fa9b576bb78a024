"""Partition assignments: this broker's replicas and their roles (leader, follower), as the metadata image has them."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from itertools import compress, count, islice
from operator import is_not
from uuid import UUID

import structlog

from cordwood.cluster.broker.pins import Pins
from cordwood.cluster.broker.role_queue import RoleQueue, Urgency
from cordwood.cluster.broker.throttle_rates import charges
from cordwood.cluster.config import topic_configs
from cordwood.cluster.config.rows import BrokerConfig, broker_config
from cordwood.cluster.config.settings import Settings
from cordwood.cluster.metadata.commands import BrokerId
from cordwood.cluster.metadata.elections import commit_size
from cordwood.cluster.metadata.image import MIN_ISR, BrokerImage, Image, PartitionImage, TopicImage, changed_topics
from cordwood.cluster.tiering.archived_topics import COORDINATED, is_archived
from cordwood.replication.assignment import Assignment
from cordwood.replication.file_removal import FileRemoval
from cordwood.replication.partition import Partition, TopicIdPartition
from cordwood.replication.refusal import PartitionRefused
from cordwood.replication.replicas import Replicas
from cordwood.replication.throttle import Charge
from cordwood.storage.config import LogConfig
from cordwood.storage.errors import StorageError

ROOM_PER_STEP = 256
"""Cost of the roles that are taken in one event-loop iteration, as `role_queue.COSTS` counts: some 4 ms."""
COMPARED_PER_UNIT = 64
"""Partitions of a changed topic that are compared at the cost of one unit."""
CONFIGS_MAX = 64

_events = structlog.get_logger("replicas")


class Assignments:
    """The replicas of this broker, kept in step with the metadata image. `follow` is a listener of the quorum.

    Of many replicas that a change concerns, some take their role per event-loop iteration, those that lead from now on
    first, and those that have to be opened last. Until then a replica has its former role, as if this broker had learnt
    of the change later. The replicas of deleted topics, whose roles end in steps too, are out of service immediately.
    """

    def __init__(
        self,
        replicas: Replicas,
        file_removal: FileRemoval,
        follow_leader: Callable[[Partition, int], None],
        settings: Settings,
        wall_clock: Callable[[], int],
        on_caught_up: Callable[[], None] = lambda: None,
    ) -> None:
        """`follow_leader` starts replication from a partition's leader in the current leader epoch.

        `on_caught_up` is called when the last queued partition has its role.
        """
        self._replicas, self._file_removal, self._follow_leader = replicas, file_removal, follow_leader
        self._settings, self._wall_clock, self._on_caught_up = settings, wall_clock, on_caught_up
        self._image, self._pins = Image(), Pins(replicas)
        self._configured: tuple[object, object] = None, None
        """Configs and brokers of the image that the known configs are of."""
        self._known_configs: dict[tuple[str, tuple[tuple[str, str], ...]], tuple[LogConfig, int]] = {}
        """Log configuration and min.insync.replicas, by the configs of a topic."""
        self._changed: deque[tuple[TopicImage | None, UUID]] = deque()
        """Topics with changed partitions that are not in `_queue` yet, as they were before."""
        self._to_configure: Iterator[TopicImage] | None = None
        """Topics whose replicas are still to take changed configs of brokers."""
        self._queue = RoleQueue()
        """Queued partitions. They take their roles from the newest image."""
        self._deleted: deque[tuple[list[Partition], Iterator[Partition]]] = deque()
        """Partitions of deleted topics, and those of them whose role has not ended yet."""
        self._to_watch: deque[Partition] = deque()
        """Partitions whose leaders are still to look for ISR changes, once all roles are taken."""
        self._next_step: asyncio.Handle | None = None

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
        self._image = image
        self._pins.follow(image.cuts)
        for topic in image.topics_by_id.values():
            self._enqueue(None, topic)
        while self._queue:
            self._take_some(ROOM_PER_STEP)
        self._replicas.release_recovered()
        if not image.passed_over:
            found = self._replicas.found()
            self._file_removal.remove_orphans([row for row in found if not self._is_assigned(row[1], row[2], image)])

    def follow(self, old: Image, new: Image) -> None:
        """Apply a metadata change to the replicas. Raise nothing: a failed disk costs replicas, never the metadata."""
        self._image = new
        if old.cuts is not new.cuts:
            self._pins.follow(new.cuts)
        for before, after in changed_topics(old, new):
            if after is None:
                assert before is not None, "a change has at least one side"
                removed = self._replicas.remove(before.name)
                self._deleted.append((removed, iter(removed)))
            else:
                self._changed.append((before, after.id))
        if old.broker_configs is not new.broker_configs:
            self._to_configure = iter(new.topics_by_id.values())
        if old.brokers is not new.brokers and _has_returned(old.brokers, new.brokers):
            # A follower that has caught up may have waited only for its broker to be alive.
            self._to_watch = deque(self._replicas)
        if self._next_step is None:
            self._step()

    def close(self) -> None:
        """Drop the queued partitions. The files of deleted ones are orphans at the next start."""
        for queued in (self._changed, self._queue, self._deleted, self._to_watch):
            queued.clear()
        self._to_configure = None
        if self._next_step is not None:
            self._next_step.cancel()

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
            self._take_role(topic, index, *self._configs(topic))
            if self._replicas.get(name, index) is None:
                return

    def _enqueue(self, before: TopicImage | None, topic: TopicImage) -> int:
        """Queue the replicas of this broker that have changed since `before`. Return the number compared."""
        _warn_of_ignored(before, topic)
        me, partitions = self._settings.node_id, topic.partitions
        known, opened = () if before is None else before.partitions, self._replicas.indexes(topic.name)
        by_urgency: dict[Urgency, list[int]] = {urgency: [] for urgency in Urgency}
        # No Python bytecode for each partition that is as it was.
        for index in compress(count(), map(is_not, known, partitions)):
            was, partition = known[index], partitions[index]
            if me not in partition.replicas:
                if me in was.replicas:
                    by_urgency[Urgency.IS_OPEN].append(index)
            elif index not in opened:
                by_urgency[Urgency.IS_TO_BE_OPENED].append(index)
            elif partition.leader == me and partition.leader_epoch != was.leader_epoch:
                by_urgency[Urgency.LEADS].append(index)
            else:
                by_urgency[Urgency.IS_OPEN].append(index)
        for urgency, indexes in by_urgency.items():
            if indexes:
                self._queue.add(urgency, topic.id, indexes)
        if len(known) < len(partitions):
            added = (index for index in range(len(known), len(partitions)) if me in partitions[index].replicas)
            self._queue.add(Urgency.IS_TO_BE_OPENED, topic.id, added)
        if before is not None and before.configs is not topic.configs:
            self._enqueue_open(topic)
        return len(partitions)

    def _enqueue_open(self, topic: TopicImage) -> None:
        """Queue all replicas of a topic that are open, for changed configs."""
        get, name = self._replicas.get, topic.name
        self._queue.add(
            Urgency.IS_OPEN, topic.id, (index for index in range(len(topic.partitions)) if get(name, index) is not None)
        )

    def _enqueue_configured(self) -> bool:
        """Queue the next topic whose replicas take changed configs of brokers. Return False if there is none."""
        topic = None if self._to_configure is None else next(self._to_configure, None)
        if topic is None:
            self._to_configure = None
            return False
        self._enqueue_open(topic)
        return True

    @property
    def _has_queued(self) -> bool:
        return bool(self._changed or self._queue or self._deleted or self._to_configure is not None)

    def _step(self) -> None:
        """Take the roles of the first queued partitions, and schedule the next step if more are queued."""
        self._next_step = None
        try:
            room = self._take_some(ROOM_PER_STEP)
            if room:
                self._watch_some(room)
        finally:
            if self._has_queued or self._to_watch:
                self._next_step = asyncio.get_running_loop().call_soon(self._later_step)

    def _later_step(self) -> None:
        had_queued = self._has_queued
        self._step()
        if had_queued and not self._has_queued:
            self._on_caught_up()

    def _watch_some(self, room: int) -> None:
        for _ in range(min(room, len(self._to_watch))):
            partition = self._to_watch.popleft()
            if partition.leading is not None:
                partition.leading.watch_followers()

    def _take_some(self, room: int) -> int:
        """Take queued roles. Return the room that is left: above 0 only if nothing is queued any more."""
        while room > 0 and self._deleted:
            of_topic, left = self._deleted[0]
            for partition in islice(left, room):
                self._replicas.forget(partition)
                room -= 1
            if room:
                self._deleted.popleft()
                self._remove(of_topic)
        while room > 0:
            if self._changed and not self._queue.has(Urgency.LEADS):
                before, topic_id = self._changed.popleft()
                topic = self._image.topics_by_id.get(topic_id)
                if topic is not None:
                    room -= 1 + self._enqueue(before, topic) // COMPARED_PER_UNIT
            elif (taken := self._queue.take(room)) is not None:
                topic_id, indexes, cost = taken
                self._take_roles(topic_id, indexes)
                room -= cost
            elif self._enqueue_configured():
                room -= 1
            else:
                break
        return max(room, 0)

    def _take_roles(self, topic_id: UUID, indexes: list[int]) -> None:
        topic = self._image.topics_by_id.get(topic_id)
        if topic is not None:
            # Otherwise the topic was deleted while its partitions were queued.
            configs = self._configs(topic)
            for index in indexes:
                self._take_role(topic, index, *configs)

    def _configs(self, topic: TopicImage) -> tuple[LogConfig, int]:
        """Return the topic's log configuration and its min.insync.replicas. Topics with the same configs share them."""
        image = self._image
        if self._configured[0] is not image.broker_configs or self._configured[1] is not image.brokers:
            self._configured = image.broker_configs, image.brokers
            self._known_configs.clear()
        key = topic.name if topic.name in COORDINATED else "", tuple(topic.configs.items())
        known = self._known_configs.get(key)
        if known is None:
            if len(self._known_configs) == CONFIGS_MAX:
                self._known_configs.clear()
            broker = broker_config(self._settings, image)
            known = log_config(topic, broker), max(image.min_isr(topic), _min_isr(topic, broker))
            self._known_configs[key] = known
        return known

    def _take_role(self, topic: TopicImage, index: int, config: LogConfig, min_isr: int) -> None:
        """Take the role that the image gives this broker in one partition. Remove the replica if it has none."""
        partition = topic.partitions[index]
        if self._settings.node_id in partition.replicas:
            held = self._replicas.get(topic.name, index)
            if held is None:
                held = self._open(topic, index, config)
            elif held.log.config is not config and held.log.config != config:
                held.configure(config)
            if held is not None:
                size = commit_size(partition, min_isr, self._image.metadata_version)
                self._assign_within(held, partition, size, charges(topic, index, partition))
        elif (moved_away := self._replicas.remove_one(topic.name, index)) is not None:
            self._remove([moved_away])

    def _assign_within(
        self, held: Partition, partition: PartitionImage, min_isr: int, charged: Mapping[int, Charge]
    ) -> None:
        """Do as `_assign`. An exception fails this replica and no other."""
        try:
            self._assign(held, partition, min_isr, charged)
        except Exception as error:
            held.fail(error)

    def _assign(self, held: Partition, partition: PartitionImage, min_isr: int, charged: Mapping[int, Charge]) -> None:
        must_follow = held.assigned(
            Assignment(
                partition.leader,
                partition.leader_epoch,
                partition.partition_epoch,
                partition.replicas,
                _members(partition.isr),
                min_isr,
                len(partition.removing),
                charged,
            )
        )
        if must_follow:
            self._follow_leader(held, partition.leader)

    def _remove(self, partitions: list[Partition]) -> None:
        try:
            self._file_removal.remove(partitions)
        except OSError as error:
            # The files that are left are orphans at the next start.
            _events.error("topic.not_removed", topic=partitions[0].topic, error=str(error))

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
        self._pins.pin(held)
        for damaged in damage:
            held.report_damage(damaged)
        return held


def _has_returned(old: Mapping[BrokerId, BrokerImage], new: Mapping[BrokerId, BrokerImage]) -> bool:
    """Return whether a broker is alive that was not, or that is another incarnation."""
    return any(
        broker.is_alive and ((was := old.get(broker.id)) is None or not was.is_alive or was.epoch != broker.epoch)
        for broker in new.values()
    )


def _warn_of_ignored(before: TopicImage | None, topic: TopicImage) -> None:
    if before is None or before.configs is not topic.configs:
        for sentence in topic_configs.ignored(topic.configs):
            _events.warning("config.ignored", topic=topic.name, reason=sentence)


def log_config(topic: TopicImage, broker: BrokerConfig) -> LogConfig:
    """Return the log configuration of a topic. The coordinators' topics are archived if there is an archive."""
    config = topic_configs.log_config(topic.configs, broker)
    if topic.name not in COORDINATED or not is_archived(topic, broker):
        return config
    return replace(config, is_archived=True, segment_ms=min(config.segment_ms, broker.settings.archive_roll_ms))


@lru_cache(maxsize=1024)
def _members(isr: tuple[int, ...]) -> frozenset[int]:
    """Return the in-sync set, one object for all partitions with the same."""
    return frozenset(isr)


def _min_isr(topic: TopicImage, broker: BrokerConfig) -> int:
    value = topic_configs.value_of(MIN_ISR, topic.configs, broker)
    assert isinstance(value, int), "min.insync.replicas is a number"
    return value
