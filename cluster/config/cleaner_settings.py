"""Settings of the log cleaner, which compacts topics with `cleanup.policy=compact`."""

import sys
from dataclasses import dataclass

from cordwood.cluster.config.setting import DAY_MS, MIB, SECOND_MS, setting, topic_default
from cordwood.cluster.metadata.config_values import LONG_MAX, boolean, decimal, integer, long


@dataclass(frozen=True, kw_only=True)
class CleanerSettings:
    """Limits of the log cleaner, and when a compacted topic is due."""

    log_cleaner_enable: bool = setting(
        True, boolean(), "Whether logs are compacted. Without it, compacted topics only grow, internal ones too."
    )
    log_cleaner_threads: int = setting(1, integer(1, 64), "Logs that are compacted at a time.", dynamic=True)
    log_cleaner_dedupe_buffer_size: int = setting(
        64 * MIB,
        long(MIB),
        "Memory for the newest offsets of the keys, for all threads together: 24 bytes a key. A log with more keys is"
        " compacted in several rounds. Kafka's default is 128 MiB.",
        dynamic=True,
    )
    log_cleaner_io_max_bytes_per_second: float = setting(
        sys.float_info.max,
        decimal(1, sys.float_info.max),
        "The rate at which the log cleaner reads and writes, all threads together.",
        dynamic=True,
    )
    log_cleaner_io_buffer_size: int = setting(
        512 << 10, integer(0), "Kept for Kafka's tools. The log cleaner reads about 1 MiB at a time.", dynamic=True
    )
    log_cleaner_io_buffer_load_factor: float = setting(
        0.9,
        decimal(0, 1),
        "Kept for Kafka's tools. The log cleaner fills its buffer as far as its own table allows.",
        dynamic=True,
    )
    log_cleaner_backoff_ms: int = setting(
        15 * SECOND_MS,
        long(1),
        "How long the log cleaner waits when no log is due, and before it tries a failed log again.",
        dynamic=True,
    )
    log_cleaner_min_cleanable_ratio: float = topic_default(
        0.5, decimal(0, 1), "The ratio of superseded bytes at which a log is compacted."
    )
    log_cleaner_min_compaction_lag_ms: int = topic_default(0, long(0), "The age below which a record is not compacted.")
    log_cleaner_max_compaction_lag_ms: int = topic_default(
        LONG_MAX, long(1), "The age at which a record must be compacted."
    )
    log_cleaner_delete_retention_ms: int = topic_default(DAY_MS, long(0), "How long a tombstone is kept.")
