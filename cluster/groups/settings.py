"""Settings of groups."""

from dataclasses import dataclass
from enum import Enum

from cordwood.cluster.config.setting import MINUTE_MS
from cordwood.cluster.config.settings import Settings
from cordwood.cluster.coordination.topic import TopicCreation
from cordwood.cluster.proposals.topics import CONSUMER_OFFSETS

BATCH_BYTES_MAX = 4 << 20
"""Largest record of a group, such as a classic group with all its subscriptions and assignments: four times Kafka's
default. It is encoded, appended and read back as a whole; each step of that copies it once or twice."""
EXPIRED_PER_TICK_MAX = 200
"""Largest number of members and pending ids that one tick of a group expires, so that it takes a few milliseconds."""


class MigrationPolicy(Enum):
    """Which conversions between classic and consumer groups members may cause, with Kafka's names."""

    BIDIRECTIONAL = "bidirectional"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    DISABLED = "disabled"

    @property
    def may_upgrade(self) -> bool:
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.UPGRADE)

    @property
    def may_downgrade(self) -> bool:
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.DOWNGRADE)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """Kafka's `group.*` and `offsets.*` settings, with its defaults but for the initial rebalance delay."""

    session_timeout_ms_min: int = 6_000
    session_timeout_ms_max: int = 1_800_000
    initial_rebalance_delay_ms: int = 0
    new_member_join_timeout_ms: int = 5 * MINUTE_MS
    """First session of a new member, which may vanish unnoticed while it waits for its first reply."""
    size_max: int = (1 << 31) - 1
    """The largest classic group."""
    consumer_size_max: int = (1 << 31) - 1
    share_size_max: int = 200
    offset_metadata_bytes_max: int = 4096
    offsets_retention_ms: int = 7 * 24 * 60 * MINUTE_MS
    expiry_check_interval_ms: int = 10 * MINUTE_MS
    protocols: frozenset[str] = frozenset({"classic", "consumer", "share"})
    """The rebalance protocols that groups may use."""
    consumer_assignors: tuple[str, ...] = ("uniform", "range")
    """The assignors that a member with the consumer protocol may ask for; the first is the default."""
    consumer_migration: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL
    consumer_regex_refresh_interval_ms: int = 10 * MINUTE_MS


def group_settings(settings: Settings) -> GroupSettings:
    """Return the group settings of a broker."""
    return GroupSettings(
        session_timeout_ms_min=settings.group_min_session_timeout_ms,
        session_timeout_ms_max=settings.group_max_session_timeout_ms,
        initial_rebalance_delay_ms=settings.group_initial_rebalance_delay_ms,
        size_max=settings.group_max_size,
        consumer_size_max=settings.group_consumer_max_size,
        share_size_max=settings.group_share_max_size,
        offset_metadata_bytes_max=settings.offset_metadata_max_bytes,
        offsets_retention_ms=settings.offsets_retention_minutes * MINUTE_MS,
        expiry_check_interval_ms=settings.offsets_retention_check_interval_ms,
        protocols=frozenset(settings.group_coordinator_rebalance_protocols),
        consumer_assignors=settings.group_consumer_assignors,
        consumer_migration=MigrationPolicy(settings.group_consumer_migration_policy),
        consumer_regex_refresh_interval_ms=settings.group_consumer_regex_refresh_interval_ms,
    )


def offsets_topic(settings: Settings) -> TopicCreation:
    """Return how `__consumer_offsets` is created."""
    return TopicCreation(
        CONSUMER_OFFSETS,
        partitions=settings.offsets_topic_num_partitions,
        replication_factor=settings.offsets_topic_replication_factor,
        segment_bytes=settings.offsets_topic_segment_bytes,
        batch_bytes_max=BATCH_BYTES_MAX,
    )
