"""Leader's view of its followers: in-sync set (ISR), and the end of what all of it has flushed. Pure.

Rules are cited by their numbers in docs/rules.md; times are seconds of any monotonic clock.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from cordwood.replication.assignment import Assignment
from cordwood.replication.throttle import Charge


class ImpossibleReport(Exception):
    """A follower's report that cannot be true. Its earlier reports stay valid."""


@dataclass(slots=True)
class FollowerView:
    """Progress of one follower, as it reported in this leader epoch."""

    flushed_end: int
    caught_up_at: float
    """Last time when the follower had the whole log."""
    log_start: int = 0
    """Log start offset that the follower has on disk."""
    is_attached: bool = False
    """Whether its stream is open."""
    _target_end: int = 0
    _target_at: float = 0.0

    def reported(self, flushed_end: int, log_end: int, now: float) -> None:
        """Record that the follower has everything below `flushed_end` on disk, and that our log ends at `log_end`.

        A follower that reaches the log end of its last report was caught up then, however fast the log grows meanwhile.
        """
        self.flushed_end = flushed_end
        if flushed_end >= log_end:
            self.caught_up_at = now
        elif flushed_end >= self._target_end:
            self.caught_up_at = max(self.caught_up_at, self._target_at)
            self._target_end, self._target_at = log_end, now


@dataclass(slots=True)
class LeaderView:
    """One partition, led by `me` in one leader epoch. Each epoch has a new view, without knowledge of followers."""

    me: int
    assignment: Assignment
    epoch_start: int
    """Log end offset when this epoch began."""
    own_end: int
    log_start: int = 0
    """Records below are permanently deleted: a replica that has them does not join the in-sync set (KIP-107)."""
    followers: dict[int, FollowerView] = field(default_factory=dict)
    proposed_isr: frozenset[int] | None = None
    has_enough_replicas: bool = False
    """Whether new appends can be committed (min.insync.replicas; capped by the number of replicas)."""
    _others: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        assert self.assignment.leader == self.me, "rule 3: only the elected one leads"
        self._note_members()

    @property
    def isr(self) -> frozenset[int]:
        """In-sync set in the metadata log."""
        return self.assignment.isr

    def committed_end(self) -> int | None:
        """Return the end of what all of the maximal ISR has flushed: the high watermark, unless it is above already.

        Return None while nothing can be committed: with fewer in-sync replicas than min.insync.replicas, or before each
        of them has reported in this epoch (rule 5).
        """
        if not self.has_enough_replicas:
            return None
        end = self.own_end
        for other in self._others:
            view = self.followers.get(other)
            if view is None:
                return None
            end = min(end, view.flushed_end)
        return end

    def flushed(self, end: int) -> None:
        """Record the leader's own flushed end."""
        assert end >= self.own_end, "rule 1: a leader keeps its flushed records"
        self.own_end = end

    def follower_flushed(self, follower: int, leader_epoch: int, flushed_end: int, log_end: int, now: float) -> None:
        """Record a follower's flushed end.

        Only reports on the current leader epoch count (rule 5, KIP-320). Raises ImpossibleReport; earlier reports stay
        valid.
        """
        if leader_epoch != self.assignment.leader_epoch or follower not in self.assignment.replicas:
            return
        view = self.followers.get(follower)
        if view is None:
            view = self.followers[follower] = FollowerView(0, now, is_attached=True)
        # Rule 2: a follower on our epoch has no record that the leader lacks, and keeps what it has flushed.
        if not view.flushed_end <= flushed_end <= log_end:
            raise ImpossibleReport(f"flushed to {flushed_end}, between {view.flushed_end} and {log_end} is possible")
        view.reported(flushed_end, log_end, now)

    def follower_attached(self, follower: int, flushed_end: int, log_end: int, now: float, log_start: int = 0) -> None:
        """Attach a follower, perhaps again and with less than before: its disk may have been replaced.

        Raises ImpossibleReport.
        """
        assert follower in self.assignment.replicas, (
            "rule 6: a broker without a replica is refused (Partition.leader_for)"
        )
        known = self.followers.get(follower)
        self.followers[follower] = FollowerView(0, known.caught_up_at if known is not None else now, is_attached=True)
        self.follower_flushed(follower, self.assignment.leader_epoch, flushed_end, log_end, now)
        self.follower_start_flushed(follower, log_start)

    def follower_start_flushed(self, follower: int, log_start: int) -> None:
        """Record the log start offset that a follower has on disk."""
        view = self.followers.get(follower)
        if view is not None:
            view.log_start = log_start

    def follower_detached(self, follower: int) -> None:
        """Record that a follower's stream has ended. What an in-sync follower has flushed still counts."""
        view = self.followers.get(follower)
        if view is not None:
            view.is_attached = False
            self._forget_detached()

    def _forget_detached(self) -> None:
        """Forget the followers outside the in-sync set that are detached, or are replicas no more.

        Nothing relies on them, and such a follower may return with an empty disk. Until then it is not watched.
        """
        others, replicas = self._others, self.assignment.replicas
        for follower, view in list(self.followers.items()):
            if follower not in others and not (view.is_attached and follower in replicas):
                del self.followers[follower]

    def low_watermark(self, own_start: int) -> int:
        """Return the smallest log start offset on disk in the in-sync set; `own_start` is the leader's (KIP-107)."""
        views = (self.followers.get(other) for other in self._others)
        return min((own_start, *(0 if view is None else view.log_start for view in views)))

    def counts_on(self, broker: int) -> bool:
        """Return whether the high watermark waits for this follower."""
        return broker in self._others

    def charge_of(self, broker: int) -> Charge | None:
        """Return the rates that a replica is charged to while it is being added; None if it is not."""
        return self.assignment.charges.get(broker)

    @property
    def maximal_isr(self) -> frozenset[int]:
        """Committed and proposed ISR together: either may turn out to hold (rule 5, KIP-497)."""
        return self.assignment.isr | (self.proposed_isr or frozenset())

    def propose_isr(
        self, log_end: int, high_watermark: int, now: float, lag_max_s: float, may_join: Callable[[int], bool]
    ) -> frozenset[int] | None:
        """Propose an ISR without members that lag, and with followers that caught up. Return None if nothing changes.

        `may_join` says whether a broker is alive in the incarnation that is connected (rule 6). The proposed ISR counts
        together with the committed one until the metadata log has decided (rule 5).
        """
        if self.proposed_isr is not None:
            return None
        wanted = frozenset(
            replica
            for replica in self.assignment.replicas
            if replica == self.me
            or (replica in self.isr and not self._should_shrink_isr(replica, log_end, now, lag_max_s))
            or (replica not in self.isr and self._has_caught_up(replica, high_watermark) and may_join(replica))
        )
        if wanted == self.isr:
            return None
        self.proposed_isr = wanted
        self._note_members()
        return wanted

    @property
    def is_under_replicated(self) -> bool:
        """Whether fewer replicas are in sync than the partition has, or will have after its reassignment."""
        return len(self.isr) < len(self.assignment.replicas) - self.assignment.removing

    def is_complete(self, log_end: int) -> bool:
        """Return whether all that is in sync has the whole log, and no other replica is connected.

        Then no follower has to be watched: one that connects is considered when it reports.
        """
        followers, others = self.followers, self._others
        if len(followers) > len(others):
            return False
        for other in others:
            view = followers.get(other)
            if view is None or view.flushed_end < log_end:
                return False
        return True

    def all_caught_up(self, now: float) -> None:
        """Record that every follower has the whole log: none lags before it grows, however old its last report is."""
        for view in self.followers.values():
            view.caught_up_at = now

    def may_grow(self, follower: int, high_watermark: int) -> bool:
        """Return whether a follower outside the ISR has caught up far enough to be proposed."""
        return self.proposed_isr is None and follower not in self.isr and self._has_caught_up(follower, high_watermark)

    def assignment_changed(self, assignment: Assignment) -> None:
        """Apply an assignment from the metadata log. A new partition epoch decides any proposal."""
        assert assignment.leader_epoch == self.assignment.leader_epoch, "another epoch has another view"
        assert assignment.partition_epoch >= self.assignment.partition_epoch, "rule 7: partition epochs never regress"
        if assignment.partition_epoch > self.assignment.partition_epoch:
            self.proposed_isr = None
        self.assignment = assignment
        self._note_members()

    def refused(self, partition_epoch: int) -> None:
        """Return to the committed ISR: the proposal on this partition epoch is known not to hold (rule 7)."""
        if partition_epoch == self.assignment.partition_epoch:
            self.proposed_isr = None
            self._note_members()

    def _should_shrink_isr(self, replica: int, log_end: int, now: float, lag_max_s: float) -> bool:
        view = self.followers.get(replica)
        if view is None:
            # It has `lag_max_s` to report, counted from the first time that it is missed.
            self.followers[replica] = FollowerView(0, now)
            return False
        if view.flushed_end >= log_end:
            view.caught_up_at = now
            return False
        return now - view.caught_up_at > lag_max_s

    def _has_caught_up(self, replica: int, high_watermark: int) -> bool:
        """Return whether it has all committed records, all from before this epoch, and no deleted one (rule 6)."""
        view = self.followers.get(replica)
        if view is None or view.log_start < self.log_start:
            return False
        return view.flushed_end >= max(high_watermark, self.epoch_start)

    def _note_members(self) -> None:
        # The committed end is computed at every flush: the followers that it depends on are collected once.
        assignment = self.assignment
        self.has_enough_replicas = len(assignment.isr) >= min(assignment.min_isr, len(assignment.replicas))
        self._others = tuple(self.maximal_isr - {self.me})
        self._forget_detached()
