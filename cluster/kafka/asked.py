"""Partitions that a request names, by topic and each once: asking for one several times is no reason to answer so."""

from collections.abc import Iterable

from cordwood.cluster.kafka.turns import Steps

ByTopic = dict[str, dict[int, None]]


def by_topic(asked: Iterable[tuple[str, Iterable[int]]]) -> Steps[ByTopic]:
    """From topics with their partitions, in the order in which each was named first."""
    found: ByTopic = {}
    for topic, indexes in asked:
        partitions = found.setdefault(topic, {})
        yield
        for index in indexes:
            partitions[index] = None
            yield
    return found
