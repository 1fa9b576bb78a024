"""Members of a consumer group, and what follows from them: owners, readers and counts, kept up to date by each change.

No change costs more than the member that changes: a group may have thousands.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain
from uuid import UUID

from cordwood.cluster.groups.consumer.member import ConsumerMember
from cordwood.cluster.groups.consumer.reconciliation import places_in
from cordwood.storage.steps import Steps, portions

SETS_KEPT = 64
"""Number of unused sets of topics above which they are looked for."""


class ConsumerMembers:
    """The members by id."""

    __slots__ = (
        "_topic_sets",
        "assignors",
        "by_id",
        "classic_count",
        "classic_protocols",
        "owners",
        "readers",
        "regexes",
        "static_ids",
        "subscription_bytes",
    )

    def __init__(self) -> None:
        self.by_id: dict[str, ConsumerMember] = {}
        self.static_ids: dict[str, str] = {}
        """Member ids by instance id."""
        self.owners: dict[UUID, dict[int, str]] = {}
        """The member that holds a partition, be it to revoke it."""
        self.readers: Counter[str] = Counter()
        """How many members subscribe to each topic by its name."""
        self.regexes: Counter[str] = Counter()
        """How many members subscribe with each regular expression."""
        self.assignors: Counter[str] = Counter()
        self.classic_count = 0
        self.classic_protocols: Counter[str] = Counter()
        """How many members with the classic protocol support each of its assignment protocols."""
        self.subscription_bytes = 0
        """An estimate of the memory that the subscriptions of all members take."""
        self._topic_sets: dict[frozenset[str], frozenset[str]] = {}
        """One object for equal sets: most members of a group subscribe to the same topics."""

    def __len__(self) -> int:
        return len(self.by_id)

    def __iter__(self) -> Iterator[ConsumerMember]:
        return iter(self.by_id.values())

    def owner_of(self, topic_id: UUID, index: int) -> str | None:
        owned = self.owners.get(topic_id)
        return None if owned is None else owned.get(index)

    def static(self, instance_id: str) -> ConsumerMember | None:
        member_id = self.static_ids.get(instance_id)
        return None if member_id is None else self.by_id[member_id]

    def shared(self, topics: Iterable[str]) -> frozenset[str]:
        """Return the set of topics, as one object for all members that subscribe to the same."""
        wanted = frozenset(topics)
        if len(self._topic_sets) > 2 * len(self.by_id) + SETS_KEPT:
            self._topic_sets = {member.topics: member.topics for member in self}
        return self._topic_sets.setdefault(wanted, wanted)

    def put(self, member: ConsumerMember) -> Steps[None]:
        """Add a member, or replace the one of its id."""
        old = self.by_id.get(member.id)
        if old is None or not old.has_same_metadata(member):
            if old is not None:
                self._count(old, -1)
            self._count(member, 1)
        if old is not None and (old.assigned is not member.assigned or old.revoking is not member.revoking):
            yield from self._release(old)
        self.by_id[member.id] = member
        if old is None or old.assigned is not member.assigned or old.revoking is not member.revoking:
            yield from self._own(member)

    def remove(self, member_id: str) -> Steps[ConsumerMember]:
        member = self.by_id.pop(member_id)
        self._count(member, -1)
        yield from self._release(member)
        return member

    def _own(self, member: ConsumerMember) -> Steps[None]:
        for portion in portions(chain(places_in(member.assigned), places_in(member.revoking))):
            for topic_id, index in portion:
                owner = self.owners.setdefault(topic_id, {}).setdefault(index, member.id)
                assert owner == member.id, "group rule 1: a partition is assigned after its release"
            yield

    def _release(self, member: ConsumerMember) -> Steps[None]:
        for portion in portions(chain(member.assigned.items(), member.revoking.items())):
            for topic_id, indexes in portion:
                owned = self.owners[topic_id]
                for index in indexes:
                    owned.pop(index, None)
                if not owned:
                    del self.owners[topic_id]
            yield

    def _count(self, member: ConsumerMember, times: int) -> None:
        _add(self.readers, member.topics, times)
        _add(self.regexes, (member.regex,) if member.regex else (), times)
        _add(self.assignors, () if member.assignor is None else (member.assignor,), times)
        self.subscription_bytes += times * _bytes_of(member)
        if member.classic is not None:
            self.classic_count += times
            _add(self.classic_protocols, {protocol.name for protocol in member.classic.protocols}, times)
        if member.instance_id is not None:
            if times > 0:
                self.static_ids[member.instance_id] = member.id
            elif self.static_ids.get(member.instance_id) == member.id:
                del self.static_ids[member.instance_id]


def _bytes_of(member: ConsumerMember) -> int:
    classic = () if member.classic is None else member.classic.protocols
    return 8 * len(member.topics) + len(member.regex) + sum(len(protocol.metadata) for protocol in classic)


def _add(counter: Counter[str], names: Iterable[str], times: int) -> None:
    for name in names:
        counter[name] += times
        if not counter[name]:
            del counter[name]
