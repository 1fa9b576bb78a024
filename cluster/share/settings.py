"""Settings of share groups at partition leaders and share coordinators."""

from collections.abc import Callable
from dataclasses import dataclass

from cordwood.cluster.config.group_configs import GroupConfig
from cordwood.cluster.config.settings import Settings
from cordwood.cluster.coordination.topic import TopicCreation
from cordwood.cluster.proposals.topics import SHARE_GROUP_STATE


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareSettings:
    """The broker's settings, with Kafka's defaults."""

    updates_per_snapshot: int = 500
    write_timeout_s: float = 5.0
    sessions_max: int = 2000


GroupConfigOf = Callable[[str], GroupConfig]
"""Returns the effective configs of a group."""


def share_settings(settings: Settings) -> ShareSettings:
    """Return the share settings of a broker."""
    return ShareSettings(
        updates_per_snapshot=settings.share_coordinator_snapshot_update_records_per_snapshot,
        write_timeout_s=settings.share_coordinator_write_timeout_ms / 1000,
        sessions_max=settings.group_share_max_share_sessions,
    )


def share_topic(settings: Settings) -> TopicCreation:
    """Return how `__share_group_state` is created."""
    return TopicCreation(
        SHARE_GROUP_STATE,
        partitions=settings.share_coordinator_state_topic_num_partitions,
        replication_factor=settings.share_coordinator_state_topic_replication_factor,
        segment_bytes=settings.share_coordinator_state_topic_segment_bytes,
    )
