"""Assignors: who reads which partition, computed in steps.

These are Kafka's two assignors on the broker, and as of Kafka 4.0 neither of them looks at racks. `uniform` keeps the
partitions of a member, up to its share. `range` gives each member of a topic a range, the static ones first in the
order of their instance ids, so that a static member has the same range after its return.
"""

import heapq
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import islice
from uuid import UUID

from cordwood.cluster.groups.target_assignment import Partitions
from cordwood.storage.steps import Steps, in_order, portions

UNIFORM, RANGE = "uniform", "range"

PARTITIONS_PER_STEP = 200
BALANCE_ROUNDS_MAX = 10
"""Rounds over all topics that even out the shares of members with different subscriptions."""


@dataclass(frozen=True, slots=True)
class Subscriber:
    """A member as the input of an assignor: its existing topics, and its partitions."""

    id: str
    instance_id: str | None
    topics: frozenset[UUID]
    target: Partitions


@dataclass(frozen=True, slots=True)
class GroupToAssign:
    """The subscribers of a group, and the partition counts of their topics."""

    subscribers: Sequence[Subscriber]
    partition_counts: Mapping[UUID, int]

    @property
    def is_homogeneous(self) -> bool:
        """Whether all members read the same topics."""
        topics = self.subscribers[0].topics
        return all(member.topics is topics or member.topics == topics for member in self.subscribers)


Assigned = dict[str, Partitions]
Assignor = Callable[[GroupToAssign], Steps[Assigned]]


def uniform(group: GroupToAssign) -> Steps[Assigned]:
    """Give every member the same number of partitions, and as many of those that it has as its share allows."""
    if not group.subscribers:
        return {}
    if group.is_homogeneous:
        return (yield from _uniform_over_all(group))
    return (yield from _uniform_by_topic(group))


def range_(group: GroupToAssign) -> Steps[Assigned]:
    """Give each member a range of every topic, the same one in topics of the same size and readers."""
    members = sorted(group.subscribers, key=_range_order)
    readers: defaultdict[UUID, int] = defaultdict(int)
    for member in members:
        for portion in portions(member.topics):
            for topic_id in portion:
                readers[topic_id] += 1
            yield
        yield
    places: defaultdict[UUID, int] = defaultdict(int)
    assigned: Assigned = {}
    for member in members:
        own: dict[UUID, frozenset[int]] = {}
        for portion in portions(member.topics):
            for topic_id in portion:
                place, count = places[topic_id], group.partition_counts[topic_id]
                places[topic_id] += 1
                quota, extra = divmod(count, readers[topic_id])
                start = place * quota + min(place, extra)
                end = start + quota + (place < extra)
                if start < end:
                    own[topic_id] = frozenset(range(start, end))
            yield
        assigned[member.id] = own
        yield
    return assigned


def _range_order(member: Subscriber) -> tuple[bool, str]:
    return member.instance_id is None, member.instance_id or member.id


def _uniform_over_all(group: GroupToAssign) -> Steps[Assigned]:
    """Assign for members that read the same topics."""
    topics = yield from in_order(group.subscribers[0].topics, _number)
    counts = group.partition_counts
    total = 0
    for portion in portions(topics):
        total += sum([counts[topic_id] for topic_id in portion])
        yield
    quota, extra = divmod(total, len(group.subscribers))
    kept: Assigned = {}
    taken: defaultdict[UUID, set[int]] = defaultdict(set)
    # Members that have one more than the others keep it: otherwise it would go to another member for nothing.
    for member in sorted(group.subscribers, key=_size_of_target, reverse=True):
        room = quota + (extra > 0)
        own = {}
        for some in portions(member.target.items()):
            for topic_id, indexes in some:
                if topic_id not in member.topics or not room:
                    continue
                gone = taken[topic_id]
                keep = [index for index in sorted(indexes) if index < counts[topic_id] and index not in gone][:room]
                if keep:
                    own[topic_id] = frozenset(keep)
                    gone.update(keep)
                    room -= len(keep)
            yield
        if room == 0 and extra > 0:
            extra -= 1
        kept[member.id] = own
        yield
    free = _free(topics, counts, taken)
    assigned: Assigned = {}
    for member in group.subscribers:
        had = sum(map(len, kept[member.id].values()))
        # The extra ones that are left go to members that do not have one.
        room = quota - had
        if extra > 0 and had <= quota:
            room += 1
            extra -= 1
        assigned[member.id] = yield from _filled(kept[member.id], free, max(room, 0))
        yield
    return assigned


def _size_of_target(member: Subscriber) -> int:
    return sum(map(len, member.target.values()))


def _free(
    topics: Sequence[UUID], counts: Mapping[UUID, int], taken: Mapping[UUID, set[int]]
) -> Iterator[tuple[UUID, int]]:
    for topic_id in topics:
        gone: Set[int] = taken.get(topic_id, frozenset())
        yield from ((topic_id, index) for index in range(counts[topic_id]) if index not in gone)


def _filled(own: Partitions, free: Iterator[tuple[UUID, int]], room: int) -> Steps[Partitions]:
    """Return the partitions with up to `room` free ones."""
    added: dict[UUID, set[int]] = {}
    for portion in portions(islice(free, room)):
        for topic_id, index in portion:
            added.setdefault(topic_id, set()).add(index)
        yield
    if not added:
        return own
    filled = dict(own)
    for some in portions(added.items()):
        for topic_id, indexes in some:
            filled[topic_id] = filled.get(topic_id, frozenset()) | indexes
        yield
    return filled


def _uniform_by_topic(group: GroupToAssign) -> Steps[Assigned]:
    """Assign for members that read different topics: each free partition to the reader with the fewest."""
    counts = group.partition_counts
    readers: defaultdict[UUID, list[str]] = defaultdict(list)
    owners: dict[UUID, dict[int, str]] = {}
    load: dict[str, int] = {}
    for member in group.subscribers:
        for portion in portions(member.topics):
            for topic_id in portion:
                readers[topic_id].append(member.id)
            yield
        load[member.id] = yield from _keep_target(member, counts, owners)
        yield
    # Topics with few readers first: the readers of many topics take from those that others cannot read.
    order = yield from in_order(readers, lambda topic_id: (len(readers[topic_id]), topic_id.int))
    for topic_id in order:
        yield from _give_free(counts[topic_id], readers[topic_id], owners.setdefault(topic_id, {}), load)
    for _ in range(BALANCE_ROUNDS_MAX):
        moved = 0
        for topic_id in order:
            moved += yield from _even_out(readers[topic_id], owners[topic_id], load)
        if not moved:
            break
    return (yield from _by_member(group, owners))


def _keep_target(member: Subscriber, counts: Mapping[UUID, int], owners: dict[UUID, dict[int, str]]) -> Steps[int]:
    """Note the partitions of a member that it may keep. Return the number of these partitions."""
    kept = 0
    for portion in portions(member.target.items()):
        for topic_id, indexes in portion:
            if topic_id not in member.topics:
                continue
            owned = owners.setdefault(topic_id, {})
            for index in indexes:
                if index < counts[topic_id] and index not in owned:
                    owned[index] = member.id
                    kept += 1
        yield
    return kept


def _number(topic_id: UUID) -> int:
    """Return the key by which topics are ordered. An id itself is compared by a call of Python."""
    return topic_id.int


def _give_free(count: int, readers: Sequence[str], owned: dict[int, str], load: dict[str, int]) -> Steps[None]:
    heap = [(load[member_id], place, member_id) for place, member_id in enumerate(readers)]
    heapq.heapify(heap)
    yield
    for index in range(count):
        if index not in owned:
            _, place, member_id = heap[0]
            owned[index] = member_id
            load[member_id] += 1
            heapq.heapreplace(heap, (load[member_id], place, member_id))
        if index % PARTITIONS_PER_STEP == 0:
            yield


def _even_out(readers: Sequence[str], owned: dict[int, str], load: dict[str, int]) -> Steps[int]:
    """Move partitions of one topic from its busiest to its idlest readers, while the difference shrinks."""
    least = min(load[member_id] for member_id in readers)
    busy = {member_id for member_id in readers if load[member_id] > least + 1}
    yield
    if not busy:
        return 0
    heap = [(load[member_id], place, member_id) for place, member_id in enumerate(readers)]
    heapq.heapify(heap)
    moved = 0
    for number, (index, member_id) in enumerate(sorted(owned.items())):
        if member_id in busy:
            while heap[0][0] != load[heap[0][2]]:
                _, place, stale = heap[0]
                heapq.heapreplace(heap, (load[stale], place, stale))
            lightest, place, idle = heap[0]
            if load[member_id] > lightest + 1:
                owned[index] = idle
                load[idle] += 1
                load[member_id] -= 1
                heapq.heapreplace(heap, (load[idle], place, idle))
                moved += 1
        if number % PARTITIONS_PER_STEP == 0:
            yield
    return moved


def _by_member(group: GroupToAssign, owners: Mapping[UUID, Mapping[int, str]]) -> Steps[Assigned]:
    found: dict[str, dict[UUID, set[int]]] = {member.id: {} for member in group.subscribers}
    for topic_id, owned in owners.items():
        for index, member_id in owned.items():
            found[member_id].setdefault(topic_id, set()).add(index)
        yield
    assigned: Assigned = {}
    for member_id, partitions in found.items():
        own = assigned[member_id] = {}
        for portion in portions(partitions.items()):
            for topic_id, indexes in portion:
                own[topic_id] = frozenset(indexes)
            yield
        yield
    return assigned


ASSIGNORS: Mapping[str, Assignor] = {UNIFORM: uniform, RANGE: range_}
