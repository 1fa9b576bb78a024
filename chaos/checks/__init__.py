"""History checkers: consistency anomalies in client observations and replica contents, one function per class."""

from cordwood.chaos.checks.anomaly import Anomaly, count_by_kind
from cordwood.chaos.checks.dirty_read import aborted_reads, aborted_writes, uncommitted_reads
from cordwood.chaos.checks.evidence import Evidence
from cordwood.chaos.checks.garbage_read import altered_reads, unsent_reads
from cordwood.chaos.checks.group_regress import group_regresses
from cordwood.chaos.checks.log_start import invented_log_starts, log_start_regresses, undone_deletions
from cordwood.chaos.checks.lost_write import lost_from_replicas, lost_writes, unseen
from cordwood.chaos.checks.replica_divergence import replica_divergences
from cordwood.chaos.checks.session_order import nonmonotonic_polls, nonmonotonic_sends, poll_skips
from cordwood.chaos.checks.stale_read import stale_epoch_ends, stale_reads
from cordwood.chaos.checks.unavailable import unavailables
from cordwood.chaos.checks.unique_offsets import duplicates, inconsistent_offsets
from cordwood.chaos.checks.watermark import watermark_regresses, wrong_last_stables
from cordwood.chaos.checks.wrong_epoch_end import wrong_epoch_ends
from cordwood.chaos.checks.wrong_lookup import wrong_lookups
from cordwood.chaos.history import History

__all__ = ["CHECKS", "Anomaly", "check", "count_by_kind"]

CHECKS = (
    lost_writes,
    lost_from_replicas,
    unseen,
    unsent_reads,
    aborted_reads,
    aborted_writes,
    altered_reads,
    uncommitted_reads,
    duplicates,
    inconsistent_offsets,
    poll_skips,
    nonmonotonic_polls,
    nonmonotonic_sends,
    replica_divergences,
    watermark_regresses,
    stale_reads,
    stale_epoch_ends,
    wrong_last_stables,
    wrong_epoch_ends,
    wrong_lookups,
    invented_log_starts,
    log_start_regresses,
    undone_deletions,
    unavailables,
    group_regresses,
)


def check(history: History) -> list[Anomaly]:
    """Return every anomaly, in the order of CHECKS, most severe first. An empty list means no violation."""
    evidence = Evidence(history)
    return [anomaly for find in CHECKS for anomaly in find(evidence)]
