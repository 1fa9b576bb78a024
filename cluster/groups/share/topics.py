"""Topics that the members of a share group subscribe to, and a hash of them.

A group whose topics have changed needs a new assignment: the hash shows that, also to the next coordinator.
"""

from collections import Counter
from collections.abc import Iterable
from hashlib import blake2b

from cordwood.cluster.groups.context import GroupContext
from cordwood.cluster.metadata.image import TopicImage
from cordwood.storage.steps import Steps, portions


class SubscribedTopics:
    """The topics that any member of one group subscribes to."""

    __slots__ = ("_context", "_subscribers", "hash", "is_stale")

    def __init__(self, context: GroupContext) -> None:
        self._context = context
        self._subscribers: Counter[str] = Counter()
        self.hash = 0
        """That of the last `refresh`: an int64."""
        self.is_stale = True
        """Whether topics may have changed since the last `refresh`."""

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self._subscribers)

    def __contains__(self, name: str) -> bool:
        return name in self._subscribers

    def change(self, after: frozenset[str], before: frozenset[str]) -> Steps[None]:
        """Change the subscription of one member."""
        subscribers = self._subscribers
        for portion in portions(after - before):
            for name in portion:
                subscribers[name] += 1
                self.is_stale |= subscribers[name] == 1
            yield
        for portion in portions(before - after):
            for name in portion:
                subscribers[name] -= 1
                if not subscribers[name]:
                    del subscribers[name]
                    self.is_stale = True
            yield

    def note_changed(self, names: frozenset[str]) -> None:
        """Note topics that were created, changed or deleted."""
        if not self.is_stale and not names.isdisjoint(self._subscribers):
            self.is_stale = True

    def refresh(self) -> Steps[list[TopicImage]]:
        """Return the topics as `existing` does, and set their hash."""
        self.is_stale = False
        topics = yield from self.existing()
        self.hash = yield from _hash_of(topics)
        return topics

    def existing(self) -> Steps[list[TopicImage]]:
        """Return the topics that exist, in the order of their names."""
        by_name = self._context.topics().by_name
        topics = []
        for portion in portions(sorted(self._subscribers)):
            topics += [topic for topic in map(by_name.get, portion) if topic is not None]
            yield
        return topics


def _hash_of(topics: Iterable[TopicImage]) -> Steps[int]:
    digest = blake2b(digest_size=8)
    for portion in portions(topics):
        for topic in portion:
            digest.update(topic.id.bytes + len(topic.partitions).to_bytes(4, "big") + topic.name.encode())
        yield
    return int.from_bytes(digest.digest(), "big", signed=True)
