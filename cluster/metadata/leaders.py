"""Leaders of topic partitions. Pure."""

from collections import defaultdict
from collections.abc import Iterable

from cordwood.cluster.metadata.commands import BrokerId
from cordwood.cluster.metadata.image import NO_LEADER, Image
from cordwood.storage.steps import Steps
from cordwood.storage.types import TopicPartition

Offsets = dict[TopicPartition, int]


def exists(place: TopicPartition, image: Image) -> bool:
    """Return whether the topic and partition exist."""
    topic = image.topics_by_name.get(place.topic)
    return topic is not None and place.partition in range(len(topic.partitions))


def leader_of(place: TopicPartition, image: Image) -> BrokerId | None:
    """Return the leader of a partition; None if it has no leader or does not exist."""
    if not exists(place, image):
        return None
    leader = image.topics_by_name[place.topic].partitions[place.partition].leader
    return None if leader == NO_LEADER else leader


def by_leader(places: Iterable[TopicPartition], image: Image) -> Steps[dict[int, list[TopicPartition]]]:
    """Group partitions by leader, in steps. Partitions without a leader are left out."""
    led: defaultdict[int, list[TopicPartition]] = defaultdict(list)
    for place in places:
        leader = leader_of(place, image)
        if leader is not None:
            led[leader].append(place)
        yield
    return led
