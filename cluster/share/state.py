"""Stored state of a share partition at its share coordinator, and the changes that the coordinator accepts. Pure."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from kio.schema.errors import ErrorCode

from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.share.states import StateBatch, append_joined

UNINITIALIZED = -1
"""The start offset of a share partition from which no member has fetched: the group's configs will give it."""
UNKNOWN_COUNT = -1


@dataclass(frozen=True, slots=True)
class SharePartitionState:
    """The state of a share partition in `__share_group_state`: the last snapshot, and the changes since.

    The state epoch rises whenever an administrator or the group coordinator sets the start offset; the leader epoch is
    that of the topic partition.
    """

    snapshot_epoch: int = 0
    state_epoch: int = 0
    leader_epoch: int = 0
    start_offset: int = UNINITIALIZED
    delivery_complete_count: int = UNKNOWN_COUNT
    created_ms: int = 0
    batches: tuple[StateBatch, ...] = ()
    """All records from the start offset on whose state is known, in order."""
    changed: tuple[StateBatch, ...] = ()
    """Those of them that have changed since the snapshot."""
    updates: int = 0
    """Updates since the snapshot, in memory only: a new coordinator counts from 0."""

    def initialized(self, state_epoch: int, start_offset: int, now_ms: int) -> "SharePartitionState":
        """Return the state with a new start offset and a new state epoch, which fences the leader.

        Without a start offset only the epoch changes: the caller does not have the progress of the group. Raises
        Refused(FENCED_STATE_EPOCH).
        """
        if state_epoch < self.state_epoch:
            raise Refused(ErrorCode.fenced_state_epoch)
        if start_offset == UNINITIALIZED:
            return replace(self.snapshot(), state_epoch=state_epoch)
        return SharePartitionState(
            self.snapshot_epoch + 1, state_epoch, self.leader_epoch, start_offset, 0, now_ms, (), (), 0
        )

    def read_by(self, leader_epoch: int) -> "SharePartitionState":
        """Return the state that a leader reads: it fences earlier leaders. Raises Refused(FENCED_LEADER_EPOCH)."""
        self._check_leader(leader_epoch)
        return self if leader_epoch <= self.leader_epoch else replace(self, leader_epoch=leader_epoch)

    def written(
        self,
        state_epoch: int,
        leader_epoch: int,
        start_offset: int,
        batches: Sequence[StateBatch],
        delivery_complete_count: int,
    ) -> "SharePartitionState":
        """Return the state after a write of the leader. Raises Refused: FENCED_LEADER_EPOCH, FENCED_STATE_EPOCH.

        Within one state epoch a write that arrives late reverts no state (share rule 6): the start offset only
        increases. Of two states of a record the one with more deliveries counts, then the one that is nearer to the
        end.
        """
        self._check_leader(leader_epoch)
        if state_epoch < self.state_epoch:
            raise Refused(ErrorCode.fenced_state_epoch)
        start = max(start_offset, self.start_offset)
        return replace(
            self,
            state_epoch=state_epoch,
            leader_epoch=max(leader_epoch, self.leader_epoch),
            start_offset=start,
            delivery_complete_count=delivery_complete_count,
            batches=merged(self.batches, batches, start),
            changed=merged(self.changed, batches, start),
            updates=self.updates + 1,
        )

    def snapshot(self) -> "SharePartitionState":
        """Return the same state as a new snapshot."""
        return replace(self, snapshot_epoch=self.snapshot_epoch + 1, changed=(), updates=0)

    def restored(self, update: "SharePartitionState") -> "SharePartitionState":
        """Return a snapshot with the last update, unless the update belongs to an earlier snapshot."""
        if update.snapshot_epoch != self.snapshot_epoch:
            return self
        start = max(update.start_offset, self.start_offset)
        return replace(
            self,
            leader_epoch=max(update.leader_epoch, self.leader_epoch),
            start_offset=start,
            delivery_complete_count=update.delivery_complete_count,
            # Of the log's batches no order is certain.
            batches=merged(merged((), self.batches, start), update.changed, start),
            changed=merged((), update.changed, start),
        )

    def _check_leader(self, leader_epoch: int) -> None:
        if leader_epoch < self.leader_epoch:
            raise Refused(ErrorCode.fenced_leader_epoch)


def merged(known: Sequence[StateBatch], new: Iterable[StateBatch], start_offset: int) -> tuple[StateBatch, ...]:
    """Return the states of all records from `start_offset` on, in order, with neighbours of one state as one batch.

    `known` is such a result, `new` is in any order. The work grows with `new`, and hardly with `known`.
    """
    first = bisect_left(known, (start_offset,))
    if first and known[first - 1].end > start_offset:
        first -= 1
    result = list(known[first:])
    if result and result[0].start < start_offset:
        result[0] = result[0]._replace(start=start_offset)
    for batch in new:
        if batch.end > start_offset:
            _put(result, batch if batch.start >= start_offset else batch._replace(start=start_offset))
    return tuple(result)


def _put(result: list[StateBatch], batch: StateBatch) -> None:
    """Merge one batch into ordered ones."""
    if not result or batch.start >= result[-1].end:
        append_joined(result, batch)
        return
    first = bisect_left(result, (batch.start,))
    if first and result[first - 1].end > batch.start:
        first -= 1
    stop = bisect_left(result, (batch.end,), first)
    left, right = max(first - 1, 0), stop + 1
    joined = result[left:first]
    position = batch.start
    for known in result[first:stop]:
        if known.start < position:
            append_joined(joined, known._replace(end=position))
        elif known.start > position:
            append_joined(joined, batch._replace(start=position, end=known.start))
        start, position = max(known.start, position), min(known.end, batch.end)
        append_joined(joined, max(known, batch, key=_precedence)._replace(start=start, end=position))
        if known.end > position:
            append_joined(joined, known._replace(start=position))
    if position < batch.end:
        append_joined(joined, batch._replace(start=position))
    for known in result[stop:right]:
        append_joined(joined, known)
    result[left:right] = joined


def _precedence(batch: StateBatch) -> tuple[int, int]:
    return batch.delivery_count, batch.state
