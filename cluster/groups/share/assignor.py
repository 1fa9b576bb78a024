"""The simple assignor of share groups, as in Kafka: several members may share a partition, and none is without one.

Each partition gets as many members as are needed for every member to have one. Members keep their partitions where the
balance allows it. If all members subscribe to the same topics, the balance is over all of them, else over each topic.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from cordwood.cluster.groups.share.exchange import SharePartitionId
from cordwood.cluster.groups.target_assignment import NO_PARTITIONS, Partitions
from cordwood.storage.steps import Steps, in_order, kept, portions

NAME = "simple"


@dataclass(slots=True)
class _Place:
    """A member within a balance: how many partitions it shall have, and those that it has."""

    id: str
    wanted: int
    held: set[SharePartitionId] = field(default_factory=set)


def assign(
    subscriptions: Mapping[str, frozenset[UUID]],
    partitions: Mapping[UUID, frozenset[int]],
    current: Mapping[str, Partitions],
) -> Steps[dict[str, Partitions]]:
    """Return the partitions of each member. `partitions` are those that can be assigned, by topic."""
    held: dict[str, dict[UUID, set[int]]] = {member: {} for member in subscriptions}
    balances = yield from _balances(subscriptions, partitions)
    for members, topics in balances:
        places = yield from _balance(members, topics, partitions, current)
        for place in places:
            for portion in portions(place.held):
                for topic, index in portion:
                    held[place.id].setdefault(topic, set()).add(index)
                yield
    assigned: dict[str, Partitions] = {}
    for member, topics_held in held.items():
        own: dict[UUID, frozenset[int]] = {}
        for some in portions(topics_held.items()):
            for topic, indexes in some:
                own[topic] = frozenset(indexes)
            yield
        assigned[member] = own
    return assigned


def _balances(
    subscriptions: Mapping[str, frozenset[UUID]], partitions: Mapping[UUID, frozenset[int]]
) -> Steps[list[tuple[Sequence[str], Sequence[UUID]]]]:
    """Return sets of members, each with the topics over which they are balanced."""
    members = sorted(subscriptions)
    by_topic: dict[UUID, list[str]] = {}
    for member in members:
        for portion in portions(subscriptions[member]):
            for topic in portion:
                if topic in partitions:
                    by_topic.setdefault(topic, []).append(member)
            yield
    topics = yield from in_order(by_topic, _number)
    if len(set(subscriptions.values())) == 1:
        return [(members, topics)]
    return [(by_topic[topic], [topic]) for topic in topics]


def _balance(
    members: Sequence[str],
    topics: Sequence[UUID],
    assignable: Mapping[UUID, frozenset[int]],
    current: Mapping[str, Partitions],
) -> Steps[list[_Place]]:
    """Balance the partitions of some topics over members."""
    partitions: list[SharePartitionId] = []
    for portion in portions(topics):
        partitions += [(topic, index) for topic in portion for index in sorted(assignable[topic])]
        yield
    if not partitions:
        return []
    sharing = -(-len(members) // len(partitions))
    wanted = list(_shares(len(members), len(partitions) * sharing))
    places = [_Place(member, count) for member, count in zip(members, wanted, strict=True)]
    room: dict[SharePartitionId, int] = {}
    for some in portions(partitions):
        room.update(dict.fromkeys(some, sharing))
        yield
    for place in places:
        before = current.get(place.id, NO_PARTITIONS)
        for few in portions(topics if len(topics) < len(before) else (yield from in_order(before, _number))):
            for partition in [(topic, index) for topic in few for index in sorted(before.get(topic, ()))]:
                if len(place.held) < place.wanted and room.get(partition):
                    place.held.add(partition)
                    room[partition] -= 1
            yield
    if not (yield from _fill(places, room)):
        # What members have kept leaves the last of them without a choice. Without it, there is always one.
        places = [_Place(member, count) for member, count in zip(members, wanted, strict=True)]
        filled = yield from _fill(places, dict.fromkeys(partitions, sharing))
        assert filled, "consecutive places of a circle of partitions are of different partitions"
    return places


def _number(topic: UUID) -> int:
    """Return the key by which topics are ordered. An id itself is compared by a call of Python."""
    return topic.int


def _shares(members: int, places: int) -> Iterable[int]:
    """Yield how many of all places each member shall have: the same number, within one."""
    before = 0
    for number in range(1, members + 1):
        upto = -(-number * places // members)
        yield upto - before
        before = upto


def _fill(places: Sequence[_Place], room: dict[SharePartitionId, int]) -> Steps[bool]:
    """Give each member the partitions that it lacks, from a circle of those with room. Return False if one lacks some.

    The cost is proportional to the partitions that the members have and lack.
    """
    left = yield from kept(partition for partition, count in room.items() if count)
    circle = deque((yield from in_order(left, lambda partition: -room[partition])))
    for place in places:
        held_already = []
        while len(place.held) < place.wanted and circle:
            partition = circle.popleft()
            yield
            if partition in place.held:
                held_already.append(partition)
                continue
            place.held.add(partition)
            room[partition] -= 1
            if room[partition]:
                circle.append(partition)
        circle.extendleft(reversed(held_already))
        if len(place.held) < place.wanted:
            return False
        yield
    return True
