"""What a leader knows of its followers, and what follows from it: the high watermark and the in-sync set. Pure.

Rules are cited by their numbers in docs/rules.md; times are seconds of any clock that only goes on.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from cordwood.replication.assignment import Assignment


class ImpossibleReport(Exception):
    """A follower claims what no follower can have. What it had reported before stands."""


@dataclass(slots=True)
class FollowerView:
    """How far one follower has come, as it told us in this epoch."""

    flushed_end: int
    caught_up_at: float
    """When it last had all that there was."""
    log_start: int = 0
    """Where its log begins, and would after a restart."""
    _target_end: int = 0
    _target_at: float = 0.0

    def reported(self, flushed_end: int, log_end: int, now: float) -> None:
        """It has everything below `flushed_end` on disk, and our log goes to `log_end`.

        Whoever reaches what was the end at its last report was caught up then, however fast the log grows meanwhile.
        """
        self.flushed_end = flushed_end
        if flushed_end >= log_end:
            self.caught_up_at = now
        elif flushed_end >= self._target_end:
            self.caught_up_at = max(self.caught_up_at, self._target_at)
            self._target_end, self._target_at = log_end, now


@dataclass(slots=True)
class LeaderView:
    """One partition, led by `me` in one leader epoch. Made anew for every epoch: nothing is known of others then."""

    me: int
    assignment: Assignment
    epoch_start: int
    """The log's end as this epoch began."""
    high_watermark: int
    own_end: int
    log_start: int = 0
    """Records below are deleted for good: no replica that has them is taken in (KIP-107)."""
    followers: dict[int, FollowerView] = field(default_factory=dict)
    proposed_isr: frozenset[int] | None = None
    has_enough_replicas: bool = False
    """Whether what is appended now can be committed (min.insync.replicas; capped by the number of replicas)."""
    _others: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        assert self.assignment.leader == self.me, "rule 3: only the elected one leads"
        self._note_members()

    @property
    def isr(self) -> frozenset[int]:
        """The in-sync set that the metadata log has."""
        return self.assignment.isr

    def flushed(self, end: int) -> int | None:
        """Everything below `end` is on our own disk. Returns the new high watermark if it moved."""
        assert end >= self.own_end, "rule 1: what a leader has flushed, it keeps"
        self.own_end = end
        return self._advance_high_watermark()

    def follower_flushed(
        self, follower: int, leader_epoch: int, flushed_end: int, log_end: int, now: float
    ) -> int | None:
        """A follower has everything below `flushed_end` on its disk. Returns the new high watermark if it moved.

        Only what was learned on our epoch counts (rule 5, KIP-320). Raises ImpossibleReport, having changed nothing.
        """
        if leader_epoch != self.assignment.leader_epoch or follower not in self.assignment.replicas:
            return None
        view = self.followers.get(follower)
        if view is None:
            view = self.followers[follower] = FollowerView(0, now)
        # Rule 2: a follower on our epoch has nothing that we lack, and keeps what it has flushed.
        if not view.flushed_end <= flushed_end <= log_end:
            raise ImpossibleReport(f"flushed to {flushed_end}, between {view.flushed_end} and {log_end} is possible")
        view.reported(flushed_end, log_end, now)
        return self._advance_high_watermark()

    def follower_attached(
        self, follower: int, flushed_end: int, log_end: int, now: float, log_start: int = 0
    ) -> int | None:
        """A follower begins, or begins again, perhaps with less than it had: its disk may be another one by now.

        Returns the new high watermark if it moved. Raises ImpossibleReport.
        """
        assert follower in self.assignment.replicas, "rule 6: who is no replica is refused (Partition.is_led_for)"
        known = self.followers.get(follower)
        self.followers[follower] = FollowerView(0, known.caught_up_at if known is not None else now)
        watermark = self.follower_flushed(follower, self.assignment.leader_epoch, flushed_end, log_end, now)
        self.started(follower, log_start)
        return watermark

    def started(self, follower: int, log_start: int) -> None:
        """A follower's log begins at `log_start`, and would after a restart."""
        view = self.followers.get(follower)
        if view is not None:
            view.log_start = log_start

    def follower_detached(self, follower: int) -> None:
        """Its connection has ended. What it had flushed, it has; how far it comes from here on is not known."""
        view = self.followers.get(follower)
        if view is not None and follower not in self.maximal_isr:
            # Outside of the in-sync set nobody counts on it, and it may come back with an empty disk.
            del self.followers[follower]

    def low_watermark(self, own_start: int) -> int:
        """Where no in-sync replica begins before, restarted or not; `own_start` is that of the leader (KIP-107)."""
        views = (self.followers.get(other) for other in self._others)
        return min((own_start, *(0 if view is None else view.log_start for view in views)))

    def counts_on(self, broker: int) -> bool:
        """Whether the watermark waits for this follower."""
        return broker in self._others

    @property
    def maximal_isr(self) -> frozenset[int]:
        """Committed and proposed together: either may turn out to hold (rule 5, KIP-497)."""
        return self.assignment.isr | (self.proposed_isr or frozenset())

    def propose_isr(
        self, log_end: int, now: float, lag_max_s: float, may_join: Callable[[int], bool]
    ) -> frozenset[int] | None:
        """Leave out members that have fallen behind, take in others that have caught up. None if that is no change.

        `may_join` says whether a broker is alive in the incarnation that we are connected with (rule 6). What is
        proposed counts beside what is committed until the metadata log has decided (rule 5).
        """
        if self.proposed_isr is not None:
            return None
        wanted = frozenset(
            replica
            for replica in self.assignment.replicas
            if replica == self.me
            or (replica in self.isr and not self._should_shrink_isr(replica, log_end, now, lag_max_s))
            or (replica not in self.isr and self._has_caught_up(replica) and may_join(replica))
        )
        if wanted == self.isr:
            return None
        self.proposed_isr = wanted
        self._note_members()
        return wanted

    def is_complete(self, log_end: int) -> bool:
        """Whether everyone is in sync and has everything: then there is nothing to watch."""
        ends = self.followers
        return len(self.isr) == len(self.assignment.replicas) and all(
            other in ends and ends[other].flushed_end >= log_end for other in self._others
        )

    def may_grow(self, follower: int) -> bool:
        """Whether a follower that is not in sync has come far enough to ask for it."""
        return self.proposed_isr is None and follower not in self.isr and self._has_caught_up(follower)

    def assignment_changed(self, assignment: Assignment) -> int | None:
        """The metadata log has moved the partition's epoch: whatever we had proposed is decided.

        Returns the new high watermark if it moved: a smaller set may have more in common.
        """
        assert assignment.leader_epoch == self.assignment.leader_epoch, "another epoch has another view"
        assert assignment.partition_epoch >= self.assignment.partition_epoch, "rule 7: partition epochs never regress"
        if assignment.partition_epoch > self.assignment.partition_epoch:
            self.proposed_isr = None
        self.assignment = assignment
        self._note_members()
        return self._advance_high_watermark()

    def refused(self, partition_epoch: int) -> None:
        """What we proposed on this partition epoch is known not to hold: back to the committed set (rule 7)."""
        if partition_epoch == self.assignment.partition_epoch:
            self.proposed_isr = None
            self._note_members()

    def _advance_high_watermark(self) -> int | None:
        if not self.has_enough_replicas:
            return None
        end = self.own_end
        for other in self._others:
            view = self.followers.get(other)
            if view is None:
                return None
            end = min(end, view.flushed_end)
        if end <= self.high_watermark:
            return None
        self.high_watermark = end
        return end

    def _should_shrink_isr(self, replica: int, log_end: int, now: float, lag_max_s: float) -> bool:
        view = self.followers.get(replica)
        if view is None:
            # It has this long to be heard of, counted from the first time it is missed.
            self.followers[replica] = FollowerView(0, now)
            return False
        if view.flushed_end >= log_end:
            view.caught_up_at = now
            return False
        return now - view.caught_up_at > lag_max_s

    def _has_caught_up(self, replica: int) -> bool:
        """Rule 6: it has all that is committed, all that was there as our epoch began, and nothing that was deleted."""
        view = self.followers.get(replica)
        if view is None or view.log_start < self.log_start:
            return False
        return view.flushed_end >= max(self.high_watermark, self.epoch_start)

    def _note_members(self) -> None:
        # The watermark is looked for at every flush: whom it depends on is worked out once.
        assignment = self.assignment
        self.has_enough_replicas = len(assignment.isr) >= min(assignment.min_isr, len(assignment.replicas))
        self._others = tuple(self.maximal_isr - {self.me})
