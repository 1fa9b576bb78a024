"""Share states of one group's partitions: initialized, being initialized, or being deleted.

A partition is assigned once its share state is initialized (share rule 8). The group's record has what may exist, so
that another coordinator that deletes the group finds it.
"""

from collections.abc import Iterable, Mapping
from uuid import UUID

from cordwood.cluster.groups.share.exchange import SharePartitionId
from cordwood.cluster.groups.share.formats import NamedPartitions, StatePartitions
from cordwood.cluster.metadata.image import TopicImage

RETRY_MS = 1_000
"""How long a failed initialization waits for the next attempt."""


class ShareStates:
    """The share states of one group, by partition."""

    __slots__ = ("_deleting", "_initialized", "_initializing", "_names", "_running", "retry_at_ms")

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
        self._running: set[SharePartitionId] = set()
        """Partitions whose state is being initialized by this broker, now."""
        self.retry_at_ms = 0
        """The time before which nothing is initialized again, after a failure."""

    @property
    def is_empty(self) -> bool:
        return not (self._initializing or self._initialized or self._deleting)

    @property
    def is_busy(self) -> bool:
        """True while states are being initialized."""
        return bool(self._running)

    @property
    def initialized(self) -> Mapping[UUID, frozenset[int]]:
        """The partitions that can be assigned."""
        return {topic_id: frozenset(indexes) for topic_id, indexes in self._initialized.items() if indexes}

    @property
    def initialized_topics(self) -> Mapping[UUID, str]:
        """The names of the topics that have initialized states, by id."""
        return {topic_id: self._names[topic_id] for topic_id in self._initialized}

    def initialized_of(self, topic_id: UUID) -> frozenset[int]:
        return frozenset(self._initialized.get(topic_id, ()))

    def begin(self, topics: Iterable[TopicImage]) -> list[SharePartitionId]:
        """Return the partitions of these topics whose state has to be initialized now, and note that it is."""
        begun = []
        for topic in topics:
            ready = self._initialized.get(topic.id, set())
            if len(ready) < len(topic.partitions) and topic.id not in self._deleting:
                begun += [
                    (topic.id, index)
                    for index in range(len(topic.partitions))
                    if index not in ready and (topic.id, index) not in self._running
                ]
                self._names[topic.id] = topic.name
        self.begin_again(begun)
        return begun

    def begin_again(self, partitions: Iterable[SharePartitionId], names: Mapping[UUID, str] | None = None) -> None:
        """Note that the states of these partitions are being initialized, also those that were initialized before."""
        self._names |= names or {}
        for topic_id, index in partitions:
            self._running.add((topic_id, index))
            self._initializing.setdefault(topic_id, set()).add(index)
            _remove(self._initialized, topic_id, index)

    def end(self, succeeded: Iterable[SharePartitionId], failed: Iterable[SharePartitionId], now_ms: int) -> bool:
        """Note the outcome of an initialization. Return whether more partitions can be assigned."""
        has_more = False
        for topic_id, index in succeeded:
            self._running.discard((topic_id, index))
            # The topic may have been deleted meanwhile.
            if index in self._initializing.get(topic_id, ()):
                _remove(self._initializing, topic_id, index)
                self._initialized.setdefault(topic_id, set()).add(index)
                has_more = True
        for partition in failed:
            self._running.discard(partition)
            self.retry_at_ms = now_ms + RETRY_MS
        return has_more

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
        return [(topic_id, index) for index in sorted(indexes)]

    def deleted(self, topic_id: UUID) -> None:
        """Note that a topic has no states any more."""
        self._deleting.discard(topic_id)
        if topic_id not in self._initializing and topic_id not in self._initialized:
            self._names.pop(topic_id, None)

    def saved(self) -> StatePartitions | None:
        """Return the group's record; None if there is nothing to keep."""
        if self.is_empty:
            return None
        return StatePartitions(
            self._named(self._initializing),
            self._named(self._initialized),
            {topic_id: self._names[topic_id] for topic_id in self._deleting},
        )

    def _named(self, sets: Mapping[UUID, set[int]]) -> dict[UUID, NamedPartitions]:
        return {
            topic_id: NamedPartitions(self._names[topic_id], frozenset(indexes)) for topic_id, indexes in sets.items()
        }


def _remove(sets: dict[UUID, set[int]], topic_id: UUID, index: int) -> None:
    indexes = sets.get(topic_id)
    if indexes is not None:
        indexes.discard(index)
        if not indexes:
            del sets[topic_id]
