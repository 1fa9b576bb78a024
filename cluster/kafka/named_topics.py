"""Topics that requests name by their name, or in newer versions by their id (KIP-516)."""

from typing import Any, NamedTuple
from uuid import UUID

from cordwood.cluster.metadata.image import Image


class TopicRow(NamedTuple):
    """A topic of a response. The encoder writes the name or the id, depending on the version."""

    name: str | None
    topic_id: UUID | None
    partitions: tuple[Any, ...]


def name_in(image: Image, topic: Any) -> str | None:
    """Return the name of a request's topic; None for an id that no topic has."""
    name: str | None = getattr(topic, "name", None)
    return topic_name(image, topic.topic_id) if name is None else name


def topic_name(image: Image, topic_id: UUID | None) -> str | None:
    """Return the name of the topic with this id; None if there is none."""
    known = None if topic_id is None else image.topics_by_id.get(topic_id)
    return None if known is None else known.name


def row_of(topic: Any, partitions: tuple[Any, ...]) -> TopicRow:
    """Return the response's row for a request's topic."""
    return TopicRow(getattr(topic, "name", None), getattr(topic, "topic_id", None), partitions)
