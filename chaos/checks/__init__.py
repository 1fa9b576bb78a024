"""History checkers: consistency anomalies in client observations and replica contents, one function per class."""

from cordwood.chaos.checks import (
    dirty_read,
    garbage_read,
    group_regress,
    log_start,
    lost_write,
    replica_divergence,
    session_order,
    stale_read,
    unavailable,
    unique_offsets,
    watermark,
    wrong_epoch_end,
    wrong_lookup,
)
from cordwood.chaos.checks.anomaly import Anomaly, count_by_kind
from cordwood.chaos.checks.evidence import Evidence
from cordwood.chaos.history import History

__all__ = ["CHECKS", "Anomaly", "check", "count_by_kind"]

CHECKS = (
    lost_write.lost_writes,
    lost_write.lost_from_replicas,
    lost_write.unseen,
    garbage_read.unsent_reads,
    dirty_read.aborted_reads,
    dirty_read.aborted_writes,
    garbage_read.altered_reads,
    dirty_read.uncommitted_reads,
    unique_offsets.duplicates,
    unique_offsets.inconsistent_offsets,
    session_order.poll_skips,
    session_order.nonmonotonic_polls,
    session_order.nonmonotonic_sends,
    replica_divergence.replica_divergences,
    watermark.watermark_regresses,
    stale_read.stale_reads,
    stale_read.stale_epoch_ends,
    watermark.wrong_last_stables,
    wrong_epoch_end.wrong_epoch_ends,
    wrong_lookup.wrong_lookups,
    log_start.invented_log_starts,
    log_start.log_start_regresses,
    log_start.undone_deletions,
    unavailable.unavailables,
    group_regress.group_regresses,
)


def check(history: History) -> list[Anomaly]:
    """Return every anomaly, in the order of CHECKS, most severe first. An empty list means no violation."""
    evidence = Evidence(history)
    return [anomaly for find in CHECKS for anomaly in find(evidence)]
