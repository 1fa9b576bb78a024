"""Deduplication of the partitions that a request names, by topic."""

from collections.abc import Iterable

from cordwood.cluster.resources.turns import Steps

ByTopic = dict[str, dict[int, None]]


def by_topic(asked: Iterable[tuple[str, Iterable[int]]]) -> Steps[ByTopic]:
    """Return the distinct partitions by topic, in order of first occurrence."""
    found: ByTopic = {}
    for topic, indexes in asked:
        partitions = found.setdefault(topic, {})
        yield
        for index in indexes:
            partitions[index] = None
            yield
    return found
