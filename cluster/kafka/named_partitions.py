"""Partitions that a request names, once each, by topic."""

from collections.abc import Iterable
from typing import TypeVar

from cordwood.cluster.kafka.wire import Topic
from cordwood.storage.steps import Steps

_TopicT = TypeVar("_TopicT", bound=Topic | None)


def by_topic(asked: Iterable[tuple[_TopicT, Iterable[int]]]) -> Steps[dict[_TopicT, dict[int, None]]]:
    """Return the distinct partitions by topic, in order of first occurrence."""
    found: dict[_TopicT, dict[int, None]] = {}
    for topic, indexes in asked:
        partitions = found.setdefault(topic, {})
        yield
        for index in indexes:
            partitions[index] = None
            yield
    return found
