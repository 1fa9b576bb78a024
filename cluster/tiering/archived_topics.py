"""Topics whose sealed segments are archived."""

from cordwood.cluster.config import topic_configs
from cordwood.cluster.config.rows import BrokerConfig
from cordwood.cluster.metadata.image import TopicImage
from cordwood.cluster.proposals.topics import CONSUMER_OFFSETS, TRANSACTION_STATE

COORDINATED = frozenset({CONSUMER_OFFSETS, TRANSACTION_STATE})
"""The coordinators' topics: archived whenever there is an archive, or a restored cluster would lack its groups."""


def is_archived(topic: TopicImage, broker: BrokerConfig) -> bool:
    """Return whether sealed segments of the topic are copied to the archive."""
    if topic.name in COORDINATED:
        return bool(broker.settings.archive_url)
    return topic_configs.value_of(topic_configs.ARCHIVED, topic.configs, broker) is True
