"""Follower decisions: truncation by leader epoch, checks of replicated batches, the high watermark. Pure."""

from collections.abc import Iterable

from cordwood.storage.batch import BatchHeader
from cordwood.storage.epochs import LeaderEpochs
from cordwood.storage.errors import CorruptBatch
from cordwood.storage.types import NO_EPOCH


class ImpossibleAnswer(Exception):
    """A leader's answer that no log can produce."""


def first_difference(epochs: LeaderEpochs, log_end: int, last_epoch: int, follower_end: int) -> tuple[int, int] | None:
    """Return where a follower's log diverges from this leader's log, by the epoch of its last record (KIP-595).

    Return None if it does not diverge, so that the follower can continue from `follower_end`; otherwise the largest
    epoch that both may have in common, and where that epoch ends in this log (KIP-279).
    """
    if last_epoch == NO_EPOCH:
        return None if follower_end <= log_end else (NO_EPOCH, log_end)
    epoch, end = epochs.end_of(last_epoch, log_end)
    if epoch == NO_EPOCH:
        # All epochs of this log are newer than the follower's last one; older records have been deleted here.
        first = next((start.offset for start in epochs), log_end)
        return None if follower_end <= first else (NO_EPOCH, first)
    return None if epoch == last_epoch and follower_end <= end else (epoch, end)


def truncation_end(epochs: LeaderEpochs, log_end: int, leader_epoch: int, leader_end: int) -> int:
    """Return the offset at which a follower truncates, by an epoch that both may have and its end at the leader.

    Never by the high watermark (rule 4, KIP-101). If this log does not have that epoch, it is truncated where its next
    older epoch ends, and the leader is asked again from there (KIP-279). At most `log_end`. Raises ImpossibleAnswer.
    """
    if leader_end < 0:
        raise ImpossibleAnswer(f"epoch {leader_epoch} ends at {leader_end}")
    if leader_epoch == NO_EPOCH:
        return min(leader_end, log_end)
    own_epoch, own_end = epochs.end_of(leader_epoch, log_end)
    if own_epoch == NO_EPOCH:
        # All epochs of this log are newer than the leader's epoch: nothing is common.
        return next((start.offset for start in epochs), log_end)
    if own_epoch < leader_epoch:
        return min(own_end, log_end)
    return min(own_end, leader_end, log_end)


def check_follows(batches: Iterable[BatchHeader], log_end: int, *, may_have_gaps: bool = False) -> None:
    """Check that batches begin at the log end and have no gap. Raises CorruptBatch.

    A missing batch would be reported as flushed together with the batches after it (rule 1). Only the leader can tell a
    gap that compaction has left from a missing batch.
    """
    due = log_end
    for header in batches:
        if header.base_offset < due or (header.base_offset > due and not may_have_gaps):
            raise CorruptBatch(f"a batch at offset {header.base_offset}, but {due} was expected")
        due = header.end


def check_epochs(headers: Iterable[BatchHeader], latest: int, stream_epoch: int) -> None:
    """Check that the leader epochs of batches never fall, and do not exceed the leader's own. Raises CorruptBatch.

    The batch's checksum does not cover the stamped epoch, so that nothing else would notice (rule 2).
    """
    for header in headers:
        if not latest <= header.leader_epoch <= stream_epoch:
            raise CorruptBatch(
                f"a batch of leader epoch {header.leader_epoch}, but {latest} to {stream_epoch} was expected"
            )
        latest = header.leader_epoch


def committed_end(leader_watermark: int, log_end: int, known: int) -> int:
    """Return the high watermark of a follower. It never goes back (promise 2)."""
    return max(known, min(leader_watermark, log_end))
