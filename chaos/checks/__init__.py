"""History checkers: consistency anomalies in client observations and replica contents, one function per class."""

from cordwood.chaos.checks import (
    aborted_transaction,
    dead_letter,
    dirty_read,
    doubled_transaction,
    early_read,
    fenced_producer,
    garbage_read,
    group_regress,
    hanging_transaction,
    intermediate_read,
    log_bounds,
    lost_transaction,
    lost_write,
    member_assignment,
    precommitted_read,
    replica_divergence,
    session_order,
    share_acknowledgement,
    share_delivery,
    share_lock,
    stale_read,
    unavailable,
    unique_offsets,
    write_cycle,
    write_read_cycle,
    wrong_answer,
)
from cordwood.chaos.checks.anomaly import Anomaly, count_by_kind
from cordwood.chaos.checks.evidence import Evidence
from cordwood.chaos.history import History

__all__ = ["CHECKS", "Anomaly", "check", "count_by_kind"]

CHECKS = (
    lost_write.lost_writes,
    lost_write.lost_from_replicas,
    lost_write.unseen,
    lost_transaction.lost_transactions,
    lost_transaction.lost_offsets,
    aborted_transaction.aborted_transaction_reads,
    aborted_transaction.aborted_offsets,
    intermediate_read.intermediate_reads,
    early_read.early_reads,
    precommitted_read.precommitted_reads,
    doubled_transaction.doubled_transactions,
    fenced_producer.fenced_commits,
    fenced_producer.fenced_sends,
    write_cycle.write_cycles,
    write_read_cycle.write_read_cycles,
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
    log_bounds.watermark_regresses,
    stale_read.stale_reads,
    stale_read.stale_epoch_ends,
    log_bounds.wrong_last_stables,
    wrong_answer.wrong_epoch_ends,
    wrong_answer.wrong_lookups,
    log_bounds.invented_log_starts,
    log_bounds.log_start_regresses,
    log_bounds.undone_deletions,
    share_delivery.lost_deliveries,
    share_acknowledgement.acknowledged_redeliveries,
    share_acknowledgement.doubled_acknowledgements,
    share_lock.double_acquisitions,
    share_delivery.impossible_counts,
    share_delivery.counts_after_expiry,
    share_delivery.counts_after_release,
    dead_letter.missing_dead_letters,
    dead_letter.invented_dead_letters,
    member_assignment.double_assignments,
    member_assignment.member_epoch_regresses,
    hanging_transaction.hanging_transactions,
    unavailable.unavailables,
    group_regress.group_regresses,
)


def check(history: History) -> list[Anomaly]:
    """Return every anomaly, in the order of CHECKS, most severe first. An empty list means no violation."""
    evidence = Evidence(history)
    return [anomaly for find in CHECKS for anomaly in find(evidence)]
