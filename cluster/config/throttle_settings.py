"""Settings of the replication throttle (KIP-73)."""

from dataclasses import dataclass

from cordwood.cluster.config.setting import setting
from cordwood.cluster.metadata.config_values import LONG_MAX, long

LEADER_RATE, FOLLOWER_RATE = "leader.replication.throttled.rate", "follower.replication.throttled.rate"


@dataclass(frozen=True, kw_only=True)
class ThrottleSettings:
    """How fast replicas are copied by reassignments, and between the log directories of a broker."""

    leader_replication_throttled_rate: int = setting(
        LONG_MAX,
        long(0),
        "Bytes per second that a broker sends, as leader, to replicas that a reassignment adds. Other replicas are"
        " never throttled. `leader.replication.throttled.replicas` of a topic can exempt its replicas.",
        dynamic=True,
    )
    follower_replication_throttled_rate: int = setting(
        LONG_MAX,
        long(0),
        "Bytes per second that a broker receives for replicas that a reassignment adds to it, from all leaders"
        " together. Its leaders enforce it in equal shares, so it must be set dynamically.",
        dynamic=True,
    )
    replica_alter_log_dirs_io_max_bytes_per_second: int = setting(
        LONG_MAX,
        long(0),
        "Bytes per second that a broker copies between its log directories, all moves together.",
        dynamic=True,
    )
