"""What a log needs to know of its topic's configuration."""

from dataclasses import dataclass
from enum import Enum

GIB = 1 << 30


class FlushPolicy(Enum):
    """When a record counts as kept."""

    GROUP = "group"
    """Once an fdatasync has covered it; one fdatasync serves every batch that arrived meanwhile."""
    OS = "os"
    """Once the operating system has it in memory, as Kafka does by default: a power cut can lose it."""


@dataclass(frozen=True, slots=True)
class LogConfig:
    """One topic's settings as its logs use them. Sizes in bytes, times in milliseconds, -1 for no limit."""

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
    timestamp_after_max_ms: int = (1 << 63) - 1
    delete_delay_ms: int | None = None
    """How long files stay of what was removed; None for as long as the broker was started with."""
