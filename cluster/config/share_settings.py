"""Settings of share groups (KIP-932), of the share coordinator and of dead-letter queues (KIP-1191)."""

from dataclasses import dataclass

from cordwood.cluster.config.setting import KIB, MIB, SECOND_MS, setting
from cordwood.cluster.metadata.config_values import boolean, integer, string


@dataclass(frozen=True, kw_only=True)
class ShareGroupSettings:
    """Share sessions, share coordinators and the topics of dead-letter queues."""

    group_share_max_share_sessions: int = setting(
        2000, integer(1), "The maximum number of share sessions of a broker: one for each member that fetches from it."
    )
    share_coordinator_state_topic_num_partitions: int = setting(
        50, integer(1), "Partitions of __share_group_state. Used when the topic is created, for the first share group."
    )
    share_coordinator_state_topic_replication_factor: int = setting(1, integer(1), "Replicas of __share_group_state.")
    share_coordinator_state_topic_segment_bytes: int = setting(
        100 * MIB, integer(KIB), "Segment size of __share_group_state."
    )
    share_coordinator_snapshot_update_records_per_snapshot: int = setting(
        500, integer(0, 500), "Updates of a share partition's state between two snapshots of it."
    )
    share_coordinator_write_timeout_ms: int = setting(
        5 * SECOND_MS, integer(1), "How long a partition leader tries to store what members have acknowledged."
    )
    errors_deadletterqueue_auto_create_topics_enable: bool = setting(
        False,
        boolean(),
        "Whether a share group's dead-letter queue is created if it does not exist, with num.partitions and"
        " default.replication.factor.",
    )
    errors_deadletterqueue_topic_name_prefix: str = setting(
        "dlq.",
        string(),
        "How the name of a topic begins that may be the dead-letter queue of a share group; empty for any name.",
    )
