"""Topics that a consumer group reads: by name and by regular expression, and a hash of what they are.

A group that reads other topics, or whose topics have changed, needs a new assignment: the hash shows that, also to the
next coordinator.
"""

from collections import Counter
from collections.abc import Iterable
from hashlib import blake2b
from uuid import UUID

from cordwood.cluster.groups.consumer.formats import ResolvedRegex
from cordwood.cluster.groups.consumer.member import ConsumerMember
from cordwood.cluster.groups.context import TopicMap
from cordwood.cluster.metadata.image import TopicImage

_MASK = (1 << 64) - 1
_SIGN = 1 << 63


class ReadTopics:
    """The topics that any member of one group reads."""

    __slots__ = ("_hashes", "_readers", "_sum", "resolved")

    def __init__(self) -> None:
        self._readers: Counter[str] = Counter()
        """For each topic, the members that subscribe to its name, and the expressions that match it."""
        self._hashes: dict[str, int] = {}
        """For each topic that is read and exists."""
        self._sum = 0
        self.resolved: dict[str, ResolvedRegex] = {}
        """The regular expressions that a member subscribes with, as far as they are resolved."""

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self._readers)

    @property
    def hash(self) -> int:
        """A hash of the existing topics that are read: an int64, 0 without any."""
        return self._sum if self._sum < _SIGN else self._sum - (1 << 64)

    def reads(self, name: str) -> bool:
        return name in self._readers

    def add(self, names: Iterable[str], topics: TopicMap) -> None:
        for name in names:
            self._readers[name] += 1
            if self._readers[name] == 1:
                self.refresh(name, topics)

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            self._readers[name] -= 1
            if not self._readers[name]:
                del self._readers[name]
                self._set(name, 0)

    def refresh(self, name: str, topics: TopicMap) -> None:
        """Follow a change of a topic."""
        if name in self._readers:
            topic = topics.by_name.get(name)
            self._set(name, 0 if topic is None else _hash_of(topic))

    def refresh_all(self, topics: TopicMap) -> None:
        for name in self._readers:
            self.refresh(name, topics)

    def resolve(self, regex: str, resolved: ResolvedRegex | None, topics: TopicMap) -> bool:
        """Set or drop the topics of an expression. Return whether they have changed."""
        old = self.resolved.pop(regex, None)
        before = frozenset() if old is None else old.topics
        after = frozenset() if resolved is None else resolved.topics
        if resolved is not None:
            self.resolved[regex] = resolved
        self.add(after - before, topics)
        self.remove(before - after)
        return before != after

    def subscribes(self, member: ConsumerMember, name: str) -> bool:
        """Return whether a member reads a topic."""
        if name in member.topics:
            return True
        resolved = self.resolved.get(member.regex)
        return resolved is not None and name in resolved.topics

    def _set(self, name: str, hash_: int) -> None:
        self._sum = (self._sum - self._hashes.pop(name, 0) + hash_) & _MASK
        if hash_:
            self._hashes[name] = hash_


def ids_of(names: Iterable[str], topics: TopicMap) -> frozenset[UUID]:
    """Return the ids of those topics that exist."""
    by_name = topics.by_name
    return frozenset(by_name[name].id for name in names if name in by_name)


def _hash_of(topic: TopicImage) -> int:
    content = topic.id.bytes + len(topic.partitions).to_bytes(4, "big") + topic.name.encode()
    return int.from_bytes(blake2b(content, digest_size=8).digest(), "big")
