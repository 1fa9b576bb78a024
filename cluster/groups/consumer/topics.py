"""Topics that a consumer group reads, by name and by regular expression, and a hash of them.

A group that reads other topics, or whose topics have changed, needs a new assignment: the hash shows that, also to the
next coordinator. Regular expressions match whole names; the coordinator resolves them (KIP-848).
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import NamedTuple
from uuid import UUID

from cordwood.cluster.coordination.patterns import compile_pattern
from cordwood.cluster.groups.consumer.formats import ResolvedRegex
from cordwood.cluster.groups.consumer.member import ConsumerMember
from cordwood.cluster.groups.context import GroupContext, TopicMap
from cordwood.cluster.metadata.image import TopicImage
from cordwood.storage.steps import Steps, portions

REGEX_INTERVAL_MS_MIN = 10_000
"""Time between two resolutions of all expressions of a group, however many topics are created."""
REGEX_MATCHES_AT_ONCE_MAX = 500
"""Matches of expressions with topics that are tried within a request."""
MATCHES_PER_STEP = 50

_MASK = (1 << 64) - 1
_SIGN = 1 << 63


class ResolvedRegexes(NamedTuple):
    """The topics that regular expressions match, as of one metadata image."""

    found: Mapping[str, frozenset[str]]
    version: int


class ReadTopics:
    """The topics that any member of one group reads."""

    __slots__ = (
        "_changed",
        "_context",
        "_hashes",
        "_is_stale",
        "_must_refresh_all",
        "_readers",
        "_resolved_ms",
        "_sum",
        "resolved",
        "unresolved",
    )

    def __init__(self, context: GroupContext) -> None:
        self._context = context
        self._readers: Counter[str] = Counter()
        """For each topic, the members that subscribe to its name, and the expressions that match it."""
        self._hashes: dict[str, int] = {}
        """For each topic that is read and exists."""
        self._sum = 0
        self._changed: set[str] = set()
        """Topics that were changed since the last `refresh`."""
        self._must_refresh_all = True
        self.resolved: dict[str, ResolvedRegex] = {}
        """The regular expressions that a member subscribes with, as far as they are resolved."""
        self.unresolved: dict[str, None] = {}
        """The regular expressions to resolve, for the first time or again."""
        self._is_stale = False
        """Whether topics have changed since all expressions were resolved."""
        self._resolved_ms = -REGEX_INTERVAL_MS_MIN

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self._readers)

    def each(self) -> Iterator[str]:
        return iter(self._readers)

    @property
    def hash(self) -> int:
        """A hash of the existing topics that are read: an int64, 0 without any."""
        return self._sum if self._sum < _SIGN else self._sum - (1 << 64)

    @property
    def resolution_is_large(self) -> bool:
        return len(self.unresolved) * len(self._context.topics().by_name) > REGEX_MATCHES_AT_ONCE_MAX

    def reads(self, name: str) -> bool:
        return name in self._readers

    def subscribes(self, member: ConsumerMember, name: str) -> bool:
        """Return whether a member reads a topic."""
        if name in member.topics:
            return True
        resolved = self.resolved.get(member.regex)
        return resolved is not None and name in resolved.topics

    def add(self, names: Iterable[str]) -> Steps[None]:
        readers, by_name = self._readers, self._context.topics().by_name
        for portion in portions(names):
            for name in portion:
                readers[name] += 1
                if readers[name] == 1 and (topic := by_name.get(name)) is not None:
                    self._set(name, _hash_of(topic))
            yield

    def remove(self, names: Iterable[str]) -> Steps[None]:
        for portion in portions(names):
            for name in portion:
                self._readers[name] -= 1
                if not self._readers[name]:
                    del self._readers[name]
                    if name in self._hashes:
                        self._set(name, 0)
            yield

    def add_regex(self, regex: str) -> None:
        """Have an expression resolved, unless it is."""
        if regex not in self.resolved:
            self.unresolved[regex] = None

    def remove_regex(self, regex: str) -> Steps[None]:
        self.unresolved.pop(regex, None)
        yield from self.resolve(regex, None)

    def note_changed(self, names: frozenset[str]) -> None:
        """Note topics that were created, changed or deleted, for the next `refresh`."""
        self._changed |= names

    def refresh(self, regexes: Iterable[str], now_ms: int) -> Steps[None]:
        """Follow the changes of topics. Have the group's expressions resolved again if that is due.

        That is after topics were created or deleted, and from time to time: rights may change.
        """
        changed, self._changed = self._changed, set()
        self._is_stale |= self._must_refresh_all or bool(changed)
        names = self._readers if self._must_refresh_all else changed
        self._must_refresh_all = False
        for portion in portions(names):
            for name in portion:
                self._refresh(name)
            yield
        age_ms = now_ms - self._resolved_ms
        is_due = self._is_stale and age_ms >= REGEX_INTERVAL_MS_MIN
        if is_due or age_ms >= self._context.settings.consumer_regex_refresh_interval_ms:
            self.unresolved |= dict.fromkeys(regexes)
            self._resolved_ms, self._is_stale = now_ms, False

    def resolution(self, may_describe: Callable[[str], bool]) -> Steps[ResolvedRegexes]:
        """Resolve the unresolved expressions, without the topics that may not be described."""
        regexes, topics = tuple(self.unresolved), self._context.topics()
        self.unresolved.clear()
        found = yield from _resolve(regexes, topics.by_name, may_describe)
        return ResolvedRegexes(found, topics.version)

    def resolve(self, regex: str, resolved: ResolvedRegex | None) -> Steps[bool]:
        """Set or drop the topics of an expression. Return whether they have changed."""
        old = self.resolved.pop(regex, None)
        before = frozenset() if old is None else old.topics
        after = frozenset() if resolved is None else resolved.topics
        if resolved is not None:
            self.resolved[regex] = resolved
        yield from self.add(after - before)
        yield from self.remove(before - after)
        return before != after

    def _refresh(self, name: str) -> None:
        if name in self._readers:
            topic = self._context.topics().by_name.get(name)
            self._set(name, 0 if topic is None else _hash_of(topic))

    def _set(self, name: str, hash_: int) -> None:
        self._sum = (self._sum - self._hashes.pop(name, 0) + hash_) & _MASK
        if hash_:
            self._hashes[name] = hash_


def ids_of(names: Iterable[str], topics: TopicMap) -> Steps[frozenset[UUID]]:
    """Return the ids of those topics that exist."""
    ids = set()
    for portion in portions(names):
        for name in portion:
            if (topic := topics.by_name.get(name)) is not None:
                ids.add(topic.id)
        yield
    return frozenset(ids)


def _resolve(
    regexes: Iterable[str], names: Iterable[str], may_describe: Callable[[str], bool]
) -> Steps[dict[str, frozenset[str]]]:
    compiled = {}
    for regex in regexes:
        compiled[regex] = compile_pattern(regex)
        yield
    found: dict[str, set[str]] = {regex: set() for regex in compiled}
    matched = 0
    for name in names:
        matching = [regex for regex, matches in compiled.items() if matches(name)]
        if matching and may_describe(name):
            for regex in matching:
                found[regex].add(name)
        matched += len(compiled)
        if matched >= MATCHES_PER_STEP:
            matched = 0
            yield
    return {regex: frozenset(topics) for regex, topics in found.items()}


def _hash_of(topic: TopicImage) -> int:
    content = topic.id.bytes + len(topic.partitions).to_bytes(4, "big") + topic.name.encode()
    return int.from_bytes(blake2b(content, digest_size=8).digest(), "big")
