"""The changes of uncommitted commands on top of a metadata image. The new image shares the rest with it."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from itertools import chain
from typing import TypeVar
from uuid import UUID

from kio.schema.errors import ErrorCode

from cordwood.cluster.metadata import elections
from cordwood.cluster.metadata.commands import Assignment, BrokerId
from cordwood.cluster.metadata.image import (
    BrokerImage,
    CommandRefused,
    Image,
    PartitionImage,
    TopicImage,
    by_id,
    by_name,
)
from cordwood.cluster.metadata.persistent_map import REMOVED, Removed
from cordwood.cluster.metadata.recent import RecentEntries
from cordwood.storage.steps import Steps

K = TypeVar("K")
Change = Callable[[PartitionImage, int], PartitionImage]
"""A change of one partition, given its topic's min.insync.replicas. Returns the same object if nothing changes."""


PARTITIONS_PER_PART = 256
"""Partitions changed in one step of a command, and topics looked at: some 3 ms."""


class ImageDelta:
    """Topics, brokers and `rest`: the image in everything but topics."""

    def __init__(self, image: Image) -> None:
        self._before = image
        self._by_name: dict[str, TopicImage | None] = {}
        self._by_id: dict[UUID, TopicImage | None] = {}
        """The topics that have changed, by name and by id; None for those that are deleted."""
        self.rest = image
        self._rest_at_mark = image
        self._topics_since_mark: dict[UUID, TopicImage | None] = {}
        self._changes_in_part = 0

    def mark(self) -> None:
        """Set the point to which `undo` returns."""
        self._rest_at_mark = self.rest
        self._topics_since_mark.clear()

    def undo(self) -> None:
        """Undo all changes since the mark, so that a refused command has no effect."""
        self.rest = self._rest_at_mark
        for topic_id, before in self._topics_since_mark.items():
            if (topic := self.topic(topic_id)) is not None:
                self._remove(topic)
            if before is not None:
                self._put(before)

    def image(self, index: int, recent: RecentEntries) -> Image:
        """Return the resulting image. Do not use the delta afterwards."""
        if not self._by_id:
            return replace(self.rest, index=index, recent=recent)
        return replace(
            self.rest,
            index=index,
            recent=recent,
            topics_by_name=by_name(self._before.topics_by_name).updated(_changes(self._by_name)),
            topics_by_id=by_id(self._before.topics_by_id).updated(_changes(self._by_id)),
        )

    def topic(self, topic_id: UUID) -> TopicImage | None:
        if topic_id in self._by_id:
            return self._by_id[topic_id]
        return self._before.topics_by_id.get(topic_id)

    def topic_named(self, name: str) -> TopicImage | None:
        if name in self._by_name:
            return self._by_name[name]
        return self._before.topics_by_name.get(name)

    def known_topic(self, topic_id: UUID) -> TopicImage:
        """Return the topic. Raises CommandRefused if the id is unknown."""
        topic = self.topic(topic_id)
        if topic is None:
            raise CommandRefused(ErrorCode.unknown_topic_id, f"No topic has the id {topic_id}.")
        return topic

    def all_topics(self) -> list[TopicImage]:
        before, changed = self._before.topics_by_id, self._by_id
        if not changed:
            return list(before.values())
        kept = (changed.get(topic.id, topic) for topic in before.values())
        added = (topic for topic in changed.values() if topic is not None and topic.id not in before)
        return [topic for topic in chain(kept, added) if topic is not None]

    def put_topic(self, topic: TopicImage) -> None:
        self._topics_since_mark.setdefault(topic.id, self.topic(topic.id))
        self._put(topic)

    def remove_topic(self, topic: TopicImage) -> None:
        self._topics_since_mark.setdefault(topic.id, topic)
        self._remove(topic)

    def partition(self, topic_id: UUID, index: int) -> PartitionImage | None:
        topic = self.topic(topic_id)
        return topic.partitions[index] if topic is not None and 0 <= index < len(topic.partitions) else None

    def change_all(self, change: Change) -> Steps[None]:
        """Apply the change to every partition."""
        for topic in self.all_topics():
            if self._is_part_full():
                yield
            yield from self.change_topic(topic, change)

    def _is_part_full(self) -> bool:
        """Count a partition to change, or a topic. Return whether the step ends before it."""
        self._changes_in_part = (self._changes_in_part + 1) % PARTITIONS_PER_PART
        return not self._changes_in_part

    def change_topic(self, topic: TopicImage, change: Change) -> Steps[None]:
        """Apply the change to every partition of a topic. Equal partitions change once, and share the new object."""
        least = self.rest.min_isr(topic)
        changed: dict[PartitionImage, PartitionImage | None] = {}
        # Most equal partitions are one object, whose hash is computed once.
        by_identity = dict(zip(map(id, topic.partitions), topic.partitions, strict=True))
        for identity, partition in by_identity.items():
            after = changed.get(partition, partition)
            if after is partition:
                if self._is_part_full():
                    yield
                after = self._changed(partition, change, least)
                changed[partition] = after = None if after is partition else after
            by_identity[identity] = after or partition
        if any(changed.values()):
            partitions = tuple(map(by_identity.__getitem__, map(id, topic.partitions)))
            self.put_topic(replace(topic, partitions=partitions))

    def change(self, topic_id: UUID, changes: Iterable[tuple[int, Change]]) -> Steps[None]:
        """Apply changes to partitions of a topic, by index. Unknown topics and partitions are passed over."""
        topic = self.topic(topic_id)
        if topic is None:
            return
        partitions, least, is_changed = list(topic.partitions), self.rest.min_isr(topic), False
        for index, change in changes:
            if 0 <= index < len(partitions):
                if self._is_part_full():
                    yield
                before = partitions[index]
                partitions[index] = self._changed(before, change, least)
                is_changed |= partitions[index] is not before
        if is_changed:
            self.put_topic(replace(topic, partitions=tuple(partitions)))

    def _changed(self, before: PartitionImage, change: Change, min_isr: int) -> PartitionImage:
        level = self.rest.metadata_version
        after = change(before, elections.commit_size(before, min_isr, level))
        if after is before:
            return after
        if after.elr and elections.may_commit_without_eligible(after, min_isr, level):
            after = replace(after, elr=())
        assert after.leader_epoch >= before.leader_epoch, "rule 3: leader epochs never regress"
        assert after.partition_epoch > before.partition_epoch, "rule 7: a change has its own epoch"
        return after

    def broker(self, broker_id: BrokerId) -> BrokerImage:
        """Return the broker. Raises CommandRefused if the broker is not registered."""
        broker = self.rest.brokers.get(broker_id)
        if broker is None:
            raise CommandRefused(ErrorCode.broker_id_not_registered, f"Broker {broker_id} is not registered.")
        return broker

    def put_broker(self, broker: BrokerImage) -> None:
        self.rest = replace(self.rest, brokers={**self.rest.brokers, broker.id: broker})

    def remove_broker(self, broker: BrokerImage) -> None:
        others = {broker_id: other for broker_id, other in self.rest.brokers.items() if broker_id != broker.id}
        self.rest = replace(self.rest, brokers=others)

    def is_alive(self, broker_id: BrokerId) -> bool:
        """Return whether the broker may lead and be in sync."""
        return self.rest.is_alive(broker_id)

    def check_assignments(self, assignments: Collection[Assignment]) -> None:
        """Raise CommandRefused if an assignment is empty, or has a broker twice or one that is not registered."""
        for assignment in set(assignments):
            if not assignment or len(set(assignment)) < len(assignment):
                message = "Each partition needs at least one broker, and each broker at most once."
                raise CommandRefused(ErrorCode.invalid_replica_assignment, message)
        for broker_id in {broker_id for assignment in assignments for broker_id in assignment}:
            if broker_id not in self.rest.brokers:
                message = f"Broker {broker_id} is assigned a partition, but no such broker is registered."
                raise CommandRefused(ErrorCode.invalid_replica_assignment, message)

    def _put(self, topic: TopicImage) -> None:
        self._by_name[topic.name] = self._by_id[topic.id] = topic

    def _remove(self, topic: TopicImage) -> None:
        self._by_name[topic.name] = self._by_id[topic.id] = None


def _changes(topics: Mapping[K, TopicImage | None]) -> Mapping[K, TopicImage | Removed]:
    return {key: REMOVED if topic is None else topic for key, topic in topics.items()}
