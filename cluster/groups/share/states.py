"""Share states of one group's partitions: initialized, being initialized, or being deleted.

A partition is assigned once its share state is initialized (share rule 8). The group's record has what may exist, so
that another coordinator that deletes the group finds it.
"""

from collections.abc import Iterable, Mapping
from uuid import UUID

from cordwood.cluster.groups.share.exchange import SharePartitionId
from cordwood.cluster.groups.share.formats import NamedPartitions, StatePartitions
from cordwood.cluster.metadata.image import TopicImage
from cordwood.storage.steps import Steps, portions

RETRY_MS = 1_000
"""How long a failed initialization waits for the next attempt."""


class ShareStates:
    """The share states of one group, by partition."""

    __slots__ = ("_deleting", "_deleting_now", "_initialized", "_initializing", "_names", "_running", "retry_at_ms")

    def __init__(self, saved: StatePartitions | None = None) -> None:
        saved = saved or StatePartitions()
        self._names: dict[UUID, str] = dict(saved.deleting)
        self._initializing: dict[UUID, set[int]] = {}
        self._initialized: dict[UUID, set[int]] = {}
        for topics, sets in ((saved.initializing, self._initializing), (saved.initialized, self._initialized)):
            for topic_id, topic in topics.items():
                self._names[topic_id] = topic.name
                sets[topic_id] = set(topic.partitions)
        self._deleting: set[UUID] = set(saved.deleting)
        self._deleting_now: set[UUID] = set()
        """Topics whose states are being deleted by this broker, now."""
        self._running: set[SharePartitionId] = set()
        """Partitions whose state is being initialized by this broker, now."""
        self.retry_at_ms = 0
        """The time before which nothing is initialized or deleted again, after a failure."""

    @property
    def is_empty(self) -> bool:
        return not (self._initializing or self._initialized or self._deleting)

    @property
    def is_busy(self) -> bool:
        """True while states are being initialized."""
        return bool(self._running)

    def initialized(self) -> Steps[Mapping[UUID, frozenset[int]]]:
        """Return the partitions that can be assigned."""
        found = {}
        for portion in portions(self._initialized.items()):
            for topic_id, indexes in portion:
                found[topic_id] = frozenset(indexes)
            yield
        return found

    @property
    def initialized_topics(self) -> Mapping[UUID, str]:
        """The names of the topics that have initialized states, by id."""
        return {topic_id: self._names[topic_id] for topic_id in self._initialized}

    def initialized_of(self, topic_id: UUID) -> frozenset[int]:
        return frozenset(self._initialized.get(topic_id, ()))

    def begin(self, topics: Iterable[TopicImage]) -> Steps[list[SharePartitionId]]:
        """Return the partitions of these topics whose state has to be initialized now, and note that it is."""
        begun = []
        for portion in portions(topics):
            for topic in portion:
                ready = self._initialized.get(topic.id, set())
                if len(ready) < len(topic.partitions) and topic.id not in self._deleting:
                    begun += [
                        (topic.id, index)
                        for index in range(len(topic.partitions))
                        if index not in ready and (topic.id, index) not in self._running
                    ]
                    self._names[topic.id] = topic.name
            yield
        yield from self.begin_again(begun)
        return begun

    def begin_again(
        self, partitions: Iterable[SharePartitionId], names: Mapping[UUID, str] | None = None
    ) -> Steps[None]:
        """Note that the states of these partitions are being initialized, also those that were initialized before."""
        self._names |= names or {}
        for portion in portions(partitions):
            for topic_id, index in portion:
                self._running.add((topic_id, index))
                self._initializing.setdefault(topic_id, set()).add(index)
                _remove(self._initialized, topic_id, index)
            yield

    def end(
        self, succeeded: Iterable[SharePartitionId], failed: Iterable[SharePartitionId], now_ms: int
    ) -> Steps[bool]:
        """Note the outcome of an initialization. Return whether more partitions can be assigned."""
        has_more = False
        for portion in portions(succeeded):
            for topic_id, index in portion:
                self._running.discard((topic_id, index))
                # The topic may have been deleted meanwhile.
                if index in self._initializing.get(topic_id, ()):
                    _remove(self._initializing, topic_id, index)
                    self._initialized.setdefault(topic_id, set()).add(index)
                    has_more = True
            yield
        for portion in portions(failed):
            self._running.difference_update(portion)
            self.retry_at_ms = now_ms + RETRY_MS
            yield
        return has_more

    def has(self, topic_id: UUID) -> bool:
        """Return whether a topic has states, or may have."""
        return topic_id in self._initializing or topic_id in self._initialized or topic_id in self._deleting

    def topic_ids(self) -> set[UUID]:
        """Return the ids of all topics that have states, or may have."""
        return self._initializing.keys() | self._initialized.keys() | self._deleting

    def delete(self, topic_id: UUID, partition_count: int = 0) -> list[SharePartitionId]:
        """Note that the states of a topic are being deleted. Return their partitions.

        A deletion that another coordinator began is done for all `partition_count` partitions of the topic.
        """
        indexes = self._initializing.pop(topic_id, set()) | self._initialized.pop(topic_id, set())
        if topic_id in self._deleting:
            indexes |= set(range(partition_count))
        elif indexes:
            self._deleting.add(topic_id)
        self._deleting_now.add(topic_id)
        return [(topic_id, index) for index in sorted(indexes)]

    def delete_again(self, topics: Iterable[TopicImage]) -> Steps[dict[UUID, list[SharePartitionId]]]:
        """Return, by topic, the partitions whose states have to be deleted now, and note that they are.

        Their deletion was begun, and has failed or ended with its coordinator: until it is done they cannot be
        initialized. Those that have a new start offset since are left out.
        """
        found = {}
        for portion in portions(topics):
            for topic in portion:
                if topic.id in self._deleting - self._deleting_now:
                    kept = self._initializing.get(topic.id, set()) | self._initialized.get(topic.id, set())
                    found[topic.id] = [(topic.id, one) for one in range(len(topic.partitions)) if one not in kept]
            yield
        self._deleting_now.update(found)
        return found

    def not_deleted(self, topic_id: UUID, now_ms: int) -> None:
        """Note that the deletion of a topic's states has failed."""
        self._deleting_now.discard(topic_id)
        self.retry_at_ms = now_ms + RETRY_MS

    def deleted(self, topic_id: UUID) -> None:
        """Note that a topic has no states any more."""
        self._deleting.discard(topic_id)
        self._deleting_now.discard(topic_id)
        self.retry_at_ms = 0
        if topic_id not in self._initializing and topic_id not in self._initialized:
            self._names.pop(topic_id, None)

    def saved(self) -> Steps[StatePartitions | None]:
        """Return the group's record; None if there is nothing to keep."""
        if self.is_empty:
            return None
        return StatePartitions(
            (yield from self._named(self._initializing)),
            (yield from self._named(self._initialized)),
            {topic_id: self._names[topic_id] for topic_id in self._deleting},
        )

    def _named(self, sets: Mapping[UUID, set[int]]) -> Steps[dict[UUID, NamedPartitions]]:
        named = {}
        for portion in portions(sets.items()):
            for topic_id, indexes in portion:
                named[topic_id] = NamedPartitions(self._names[topic_id], frozenset(indexes))
            yield
        return named


def _remove(sets: dict[UUID, set[int]], topic_id: UUID, index: int) -> None:
    indexes = sets.get(topic_id)
    if indexes is not None:
        indexes.discard(index)
        if not indexes:
            del sets[topic_id]
