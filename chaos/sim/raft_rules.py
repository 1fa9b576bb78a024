"""Raft invariants between voters' logs: truncation, match index and agreed entries. Pure functions."""

from collections.abc import Iterator, Sequence

from cordwood.cluster.metadata.commands import BrokerId
from cordwood.cluster.metadata.raft.log import RaftLog
from cordwood.cluster.metadata.raft.messages import Row
from cordwood.cluster.metadata.raft.node import RaftNode


def rows_of(log: RaftLog) -> tuple[Row, ...]:
    """Return all entries after the snapshot index. An entry that was truncated and written again is another object."""
    return log.between(log.base_index, log.end)


def first_truncation(before: Sequence[Row], now: Sequence[Row]) -> tuple[Row, Row | None] | None:
    """Return the first entry truncated between two checks of a log, with its replacement, if there is one.

    None if nothing was truncated. Entries that a snapshot has compacted do not count.
    """
    if not before or not now:
        return None
    first = now[0][1]
    last = before[-1]
    if last[1] < first or (last[1] - first < len(now) and now[last[1] - first] is last):
        return None
    for row in before:
        at = row[1] - first
        if at >= len(now):
            return row, None
        if at >= 0 and now[at] is not row:
            return row, now[at]
    return None


def truncated_without_reason(cut: tuple[Row, Row | None]) -> str:
    """Return a sentence if an entry was truncated and written again with the same term; otherwise ""."""
    (_, index, term), instead = cut
    return f"entry {index} of term {term} was cut, and is back" if instead and instead[2] == term else ""


def counted_in_vain(leader: RaftNode, follower_id: BrokerId, follower: RaftNode) -> Iterator[str]:
    """Yield violations of a leader's match index, and of the entries that a follower takes for its leader's.

    The follower must not be an amnesiac.
    """
    progress = leader.progress_of(follower_id)
    stored = 0 if progress is None else progress.stored
    if stored and follower.term < leader.term:
        yield f"entry {stored} is counted on voter {follower_id}, which knows nothing of term {leader.term}"
    if follower.term != leader.term:
        return
    if stored > follower.log.flushed_end or _differ(leader, follower, stored):
        yield f"entry {stored} is counted on voter {follower_id}, which does not have it on disk"
    agreed = min(follower._agreed, follower.log.flushed_end) if follower._agreed_term == follower.term else 0
    if agreed > leader.log.end or _differ(leader, follower, agreed):
        yield f"voter {follower_id} confirms entry {agreed}, which is not its leader's"


def _differ(one: RaftNode, other: RaftNode, index: int) -> bool:
    terms = one.log.term_at(index), other.log.term_at(index)
    return None not in terms and terms[0] != terms[1]
