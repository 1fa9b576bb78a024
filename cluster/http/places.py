"""Partitions by name, and the brokers that lead them. Pure."""

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from cordwood.cluster.metadata.image import NO_LEADER, Image


class Place(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


Offsets = dict[Place, int]


def exists(place: Place, image: Image) -> bool:
    """Whether there is such a partition."""
    topic = image.topics_by_name.get(place.topic)
    return topic is not None and place.partition in range(len(topic.partitions))


def leader_of(place: Place, image: Image) -> int | None:
    """The broker that leads a partition now; None where none does, or there is no such partition."""
    if not exists(place, image):
        return None
    leader = image.topics_by_name[place.topic].partitions[place.partition].leader
    return None if leader == NO_LEADER else int(leader)


def by_leader(places: Iterable[Place], image: Image) -> dict[int, list[Place]]:
    """Those that have no leader are left out."""
    led: defaultdict[int, list[Place]] = defaultdict(list)
    for place in places:
        leader = leader_of(place, image)
        if leader is not None:
            led[leader].append(place)
    return led
