"""Subscriptions: topics by name, topics by pattern, or single partitions."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from cordwood.storage.types import TopicPartition


@dataclass(frozen=True, slots=True)
class ByName:
    """All partitions of these topics (`subscribe`)."""

    topics: frozenset[str]


@dataclass(frozen=True, slots=True)
class ByPattern:
    """All partitions of the topics whose full name matches (`subscribePattern`)."""

    pattern: str


@dataclass(frozen=True, slots=True)
class ByPartition:
    """Exactly these partitions (`assign`)."""

    places: frozenset[TopicPartition]


Subscription = ByName | ByPattern | ByPartition


def wanted_topics(subscription: Subscription) -> frozenset[str] | None:
    """Return the topics that a subscription names; None for a pattern."""
    match subscription:
        case ByName(topics):
            return topics
        case ByPartition(places):
            return frozenset(place.topic for place in places)
        case ByPattern():
            return None


def wanted_places(subscription: Subscription, partitions: Mapping[str, int]) -> set[TopicPartition]:
    """Return the subscribed partitions that exist. `partitions` has the partition count of each topic."""
    there = {TopicPartition(topic, number) for topic, count in partitions.items() for number in range(count)}
    match subscription:
        case ByName(topics):
            return {place for place in there if place.topic in topics}
        case ByPartition(places):
            return there & places
        case ByPattern(pattern):
            return {place for place in there if re.fullmatch(pattern, place.topic)}
