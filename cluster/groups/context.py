"""Group context: the settings, topics and group configs that all groups of a broker share."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from cordwood.cluster.config.group_configs import GroupConfig
from cordwood.cluster.groups.settings import GroupSettings
from cordwood.cluster.metadata.image import Image, TopicImage


class TopicMap(NamedTuple):
    """The topics of one metadata image. The mappings never change."""

    by_name: Mapping[str, TopicImage]
    by_id: Mapping[UUID, TopicImage]
    version: int = 0
    """The index of the image in the metadata log."""


NO_TOPICS = TopicMap({}, {})


def topics_in(image: Image) -> TopicMap:
    return TopicMap(image.topics_by_name, image.topics_by_id, image.index)


@dataclass(frozen=True, slots=True)
class GroupContext:
    """The environment of the groups of a broker. All of it is in memory."""

    settings: GroupSettings = field(default_factory=GroupSettings)
    topics: Callable[[], TopicMap] = lambda: NO_TOPICS
    config: Callable[[str], GroupConfig] = lambda _: GroupConfig()
    """Returns the configs of a group, by its id."""
    wall_clock: Callable[[], int] = lambda: 0
    """Returns the wall-clock time in milliseconds, for records that have one."""
