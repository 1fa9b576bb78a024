"""Topic configuration of a log: segment size, retention, flush policy, timestamps, cleanup policy."""

from dataclasses import dataclass
from enum import Enum

GIB = 1 << 30


class FlushPolicy(Enum):
    """Moment at which a record counts as durable."""

    GROUP = "group"
    """After an fdatasync has covered the record (group commit): one fdatasync covers all batches that have gathered."""
    OS = "os"
    """After the write to the page cache, as in Kafka by default: a power cut can lose the record."""


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Configuration of one topic for its logs. Sizes in bytes, times in milliseconds, -1 for no limit."""

    segment_bytes: int = GIB
    segment_ms: int = 7 * 24 * 3600 * 1000
    index_interval_bytes: int = 4096
    index_bytes_max: int = 10 << 20
    retention_ms: int = 7 * 24 * 3600 * 1000
    retention_bytes: int = -1
    batch_bytes_max: int = 1048588
    flush_policy: FlushPolicy = FlushPolicy.GROUP
    producer_expiry_ms: int = 24 * 3600 * 1000
    compacted: bool = False
    deletable: bool = True
    """Whether retention may delete segments (`cleanup.policy` has `delete`)."""
    log_append_time: bool = False
    timestamp_before_max_ms: int = (1 << 63) - 1
    timestamp_after_max_ms: int = 3600 * 1000
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = (1 << 63) - 1
    min_cleanable_dirty_ratio: float = 0.5
    delete_retention_ms: int = 24 * 3600 * 1000
    """Time for which a tombstone or a transaction marker is kept after the log cleaner has found it to be needless."""
    is_archived: bool = False
    """Whether sealed segments are copied to the archive (`remote.storage.enable`)."""
    local_retention_ms: int = -2
    local_retention_bytes: int = -2
    """Retention of archived segments on this disk; -2: like `retention_ms` and `retention_bytes`."""
    delete_delay_ms: int | None = None
    """Delay before the files of removed segments and partitions are deleted; None for the broker's default."""
