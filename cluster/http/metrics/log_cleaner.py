"""Metrics of the log cleaner: its work since the broker started, and the dirty logs."""

from cordwood.cluster.http.metrics.family import Family, counter, gauge

FAMILIES: tuple[Family, ...] = (
    counter(
        "log_cleaner_rounds",
        "Rounds that the log cleaner has completed since the broker started. A log with many keys takes several.",
        lambda watched: watched.log_cleaner.rounds,
    ),
    counter(
        "log_cleaner_failures",
        "Rounds that failed. The log is compacted later, or not before the next start if its batches cannot be read.",
        lambda watched: watched.log_cleaner.failures,
    ),
    counter(
        "log_cleaner_read_bytes", "Bytes that the log cleaner has read.", lambda watched: watched.log_cleaner.bytes_read
    ),
    counter(
        "log_cleaner_written_bytes",
        "Bytes that the log cleaner has kept and written again.",
        lambda watched: watched.log_cleaner.bytes_written,
    ),
    counter(
        "log_cleaner_read_records", "Records in rewritten segments.", lambda watched: watched.log_cleaner.records_read
    ),
    counter(
        "log_cleaner_kept_records",
        "Records in rewritten segments that were kept.",
        lambda watched: watched.log_cleaner.records_kept,
    ),
    counter(
        "log_cleaner_seconds",
        "Time in rounds, all threads together, pauses for the rate included.",
        lambda watched: watched.log_cleaner.seconds,
    ),
    gauge(
        "log_cleaner_dirtiest_ratio",
        "Ratio of dirty bytes of the dirtiest compacted log; the log is due above min.cleanable.dirty.ratio.",
        lambda watched: watched.log_cleaner.dirtiest_ratio,
    ),
    gauge(
        "log_cleaner_dirty_bytes",
        "Bytes of all compacted logs that may be compacted and are not yet.",
        lambda watched: watched.log_cleaner.dirty_bytes,
    ),
    gauge(
        "log_cleaner_overdue_seconds",
        "By how much the oldest dirty record exceeds max.compaction.lag.ms; 0 if none does.",
        lambda watched: watched.log_cleaner.overdue_ms / 1000,
    ),
    gauge(
        "log_cleaner_buffer_utilization",
        "Share of the offset map that the last round used; 1 if the log has more keys.",
        lambda watched: watched.log_cleaner.map_utilization,
    ),
    gauge(
        "log_cleaner_uncleanable_partitions",
        "Logs that are not compacted before the next start, because of an unexpected error. They grow.",
        lambda watched: watched.log_cleaner.uncleanable,
    ),
)
