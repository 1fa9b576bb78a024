"""What a follower does about its leader's answer: how far it goes back, and how much of it is committed. Pure."""

from collections.abc import Iterable

from cordwood.storage.batch import BatchHeader
from cordwood.storage.epochs import LeaderEpochs
from cordwood.storage.errors import CorruptBatch
from cordwood.storage.types import NO_EPOCH


class ImpossibleAnswer(Exception):
    """A leader's answer that follows from no log."""


def first_difference(epochs: LeaderEpochs, log_end: int, last_epoch: int, follower_end: int) -> tuple[int, int] | None:
    """The leader's side: whether a follower's log ends within ours, by the epoch of its last record (KIP-595).

    None where it does, so that it can go on from `follower_end`; otherwise the largest epoch that both may have in
    common, and where that epoch ends here (KIP-279).
    """
    if last_epoch == NO_EPOCH:
        return None if follower_end <= log_end else (NO_EPOCH, log_end)
    epoch, end = epochs.end_of(last_epoch, log_end)
    if epoch == NO_EPOCH:
        # All that we still have is younger than all that it has: what lies before our first epoch is gone here.
        first = next((start.offset for start in epochs), log_end)
        return None if follower_end <= first else (NO_EPOCH, first)
    return None if epoch == last_epoch and follower_end <= end else (epoch, end)


def truncation_end(epochs: LeaderEpochs, log_end: int, leader_epoch: int, leader_end: int) -> int:
    """The follower's side: where to cut, given the epoch that both may have in common and its end at the leader.

    Never by the watermark (rule 4, KIP-101). Where our own log does not have that epoch, it is cut where our next
    older one ends, and the leader is asked again from there (KIP-279). At most `log_end`. Raises ImpossibleAnswer.
    """
    if leader_end < 0:
        raise ImpossibleAnswer(f"epoch {leader_epoch} ends at {leader_end}")
    if leader_epoch == NO_EPOCH:
        return min(leader_end, log_end)
    own_epoch, own_end = epochs.end_of(leader_epoch, log_end)
    if own_epoch == NO_EPOCH:
        # All that we have is younger than what the leader has for it: nothing is common.
        return next((start.offset for start in epochs), log_end)
    if own_epoch < leader_epoch:
        return min(own_end, log_end)
    return min(own_end, leader_end, log_end)


def check_follows(batches: Iterable[BatchHeader], log_end: int) -> None:
    """Batches go on where our log ends: what was left out would be reported as flushed with what follows it (rule 1).

    Raises CorruptBatch.
    """
    due = log_end
    for header in batches:
        if header.base_offset != due:
            raise CorruptBatch(f"a batch for offset {header.base_offset} where {due} is due")
        due = header.end


def check_epochs(headers: Iterable[BatchHeader], latest: int, stream_epoch: int) -> None:
    """Batches from a leader carry epochs that never fall, and none that is younger than the leader's own.

    Raises CorruptBatch: the stamp is outside of the batch's checksum, so that nothing else would notice (rule 2).
    """
    for header in headers:
        if not latest <= header.leader_epoch <= stream_epoch:
            raise CorruptBatch(
                f"a batch of leader epoch {header.leader_epoch} where {latest} to {stream_epoch} may follow"
            )
        latest = header.leader_epoch


def committed_end(leader_watermark: int, log_end: int, known: int) -> int:
    """How much of a follower's log is committed: it never takes back what it has once known (promise 2)."""
    return max(known, min(leader_watermark, log_end))
