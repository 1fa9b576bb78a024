"""The leader's view of its followers: what is committed, and shrinking and expanding of the ISR."""

import pytest

from cordwood.replication.assignment import Assignment
from cordwood.replication.leader import ImpossibleReport, LeaderView

LAG_MAX_S = 10.0
EPOCH = 5


class Led:
    """A leader view: broker 1 leads in epoch 5, brokers 2 and 3 follow, and the leader has flushed its log end, 100."""

    def __init__(
        self, isr: tuple[int, ...] = (1, 2, 3), min_isr: int = 2, epoch_start: int = 0, watermark: int = 0
    ) -> None:
        self.log_end, self.now, self.min_isr, self.high_watermark = 100, 0.0, min_isr, watermark
        self.view = LeaderView(1, self.assignment(isr, 0), epoch_start, 0)
        self.view.flushed(self.log_end)
        self.advance()

    def assignment(
        self, isr: tuple[int, ...], partition_epoch: int, replicas: tuple[int, ...] = (1, 2, 3)
    ) -> Assignment:
        return Assignment(1, EPOCH, partition_epoch, replicas, frozenset(isr), self.min_isr)

    def advance(self) -> int | None:
        """Raise the high watermark as a leader does. Return it if it moved."""
        end = self.view.committed_end()
        if end is None or end <= self.high_watermark:
            return None
        self.high_watermark = end
        return end

    def follows(self, broker: int, end: int) -> int | None:
        self.view.follower_attached(broker, end, self.log_end, self.now)
        return self.advance()

    def reports(self, broker: int, end: int, epoch: int = EPOCH) -> int | None:
        self.view.follower_flushed(broker, epoch, end, self.log_end, self.now)
        return self.advance()

    def proposes(self, alive: tuple[int, ...] = (1, 2, 3)) -> set[int] | None:
        proposed = self.view.propose_isr(self.log_end, self.high_watermark, self.now, LAG_MAX_S, alive.__contains__)
        return None if proposed is None else set(proposed)

    def learns(self, isr: tuple[int, ...], partition_epoch: int, replicas: tuple[int, ...] = (1, 2, 3)) -> int | None:
        self.view.assignment_changed(self.assignment(isr, partition_epoch, replicas))
        return self.advance()


def test_the_watermark_waits_for_every_in_sync_replica() -> None:
    led = Led()
    assert led.follows(2, 50) is None
    assert led.follows(3, 30) == 30
    assert led.reports(3, 80) == 50
    assert led.reports(2, 100) == 80


def test_followers_out_of_the_isr_do_not_count() -> None:
    led = Led(isr=(1, 2))
    assert led.follows(2, 70) == 70
    assert led.follows(3, 10) is None
    assert led.high_watermark == 70


def test_what_was_learned_in_another_epoch_does_not_count() -> None:
    led = Led(isr=(1, 2))
    led.follows(2, 10)
    assert led.reports(2, 90, epoch=EPOCH - 1) is None
    assert led.high_watermark == 10
    assert led.view.followers[2].flushed_end == 10


@pytest.mark.parametrize("end", [69, 101])
def test_a_report_of_what_no_follower_can_have_changes_nothing(end: int) -> None:
    led = Led()
    led.follows(2, 70)
    led.follows(3, 70)
    with pytest.raises(ImpossibleReport):
        led.reports(2, end)
    assert led.reports(3, 100) is None
    assert (led.high_watermark, led.reports(2, 100)) == (70, 100)


@pytest.mark.parametrize("isr", [(1, 2), (1, 2, 3)])
def test_a_proposal_that_is_decided_is_over(isr: tuple[int, ...]) -> None:
    led = Led(isr=(1, 2))
    led.follows(2, 60)
    led.follows(3, 60)
    assert led.proposes() == {1, 2, 3}
    led.learns(isr, 1)
    assert led.view.proposed_isr is None
    led.reports(2, 90)
    assert led.high_watermark == (60 if 3 in isr else 90)


def test_min_insync_replicas_are_counted_in_the_set_that_is_agreed_on() -> None:
    led = Led(isr=(1,))
    led.follows(2, 100)
    assert led.proposes() == {1, 2}
    assert not led.view.has_enough_replicas
    led.learns((1, 2), 1)
    assert led.view.has_enough_replicas


def test_nothing_is_committed_below_min_insync_replicas() -> None:
    led = Led(isr=(1,))
    assert (led.high_watermark, led.view.has_enough_replicas) == (0, False)
    assert led.follows(2, 100) is None
    assert led.learns((1, 2), 1) == 100


def test_more_replicas_than_there_are_cannot_be_asked_for() -> None:
    view = LeaderView(1, Assignment(1, EPOCH, 0, (1,), frozenset({1}), 3), 0, 0)
    view.flushed(7)
    assert view.committed_end() == 7


def test_a_follower_that_falls_behind_is_left_out_only_once_that_is_agreed() -> None:
    led = Led()
    led.follows(2, 100)
    led.follows(3, 40)
    led.now = LAG_MAX_S
    assert led.proposes() is None
    led.now = LAG_MAX_S + 1
    assert led.proposes() == {1, 2}
    # A smaller ISR counts only once it is in the metadata log: the old ISR may still elect a leader (rule 5).
    assert led.high_watermark == 40
    assert led.learns((1, 2), 1) == 100


def test_a_follower_that_keeps_up_with_a_growing_log_does_not_lag() -> None:
    led = Led()
    led.follows(2, 100)
    led.follows(3, 90)
    for second in range(1, 40):
        led.now, led.log_end = float(second), 100 + 10 * second
        led.view.flushed(led.log_end)
        led.reports(2, led.log_end)
        led.reports(3, led.log_end - 10)
    assert led.proposes() is None


def test_a_follower_was_caught_up_when_the_log_ended_where_it_has_come_to() -> None:
    led = Led()
    led.follows(2, 100)
    led.follows(3, 90)
    led.now, led.log_end = 8.0, 110
    led.reports(2, 110)
    led.reports(3, 100)
    led.now, led.log_end = 12.0, 120
    led.reports(2, 120)
    led.reports(3, 110)
    assert led.proposes() is None


@pytest.mark.parametrize("reported", [[110], [110, 120]])
def test_a_follower_does_not_lag_right_after_it_had_the_whole_log(reported: list[int]) -> None:
    led = Led()
    led.follows(2, 100)
    led.follows(3, 100)
    led.now, led.log_end = 100.0, 110
    led.reports(2, 110)
    led.reports(3, 110)
    led.now, led.log_end = 101.0, 130
    for end in reported:
        led.reports(3, end)
    assert led.proposes() is None


def test_a_follower_does_not_lag_at_the_first_append_to_an_idle_partition() -> None:
    led = Led()
    led.follows(2, 100)
    led.follows(3, 100)
    led.now = 1000.0
    assert led.proposes() is None
    led.now, led.log_end = 1001.0, 110
    assert led.proposes() is None


def test_a_follower_that_connects_again_and_again_lags_all_the_same() -> None:
    led = Led()
    led.follows(2, 100)
    led.follows(3, 90)
    for second in range(1, 12):
        led.now = float(second)
        led.view.follower_detached(3)
        led.follows(3, 90)
    assert led.proposes() == {1, 2}


def test_an_idle_partition_has_no_lagging_follower() -> None:
    led = Led()
    led.follows(2, 100)
    led.follows(3, 100)
    led.now = 1000.0
    assert led.proposes() is None


def test_a_member_that_was_never_heard_of_has_its_time_too() -> None:
    led = Led()
    led.follows(2, 100)
    assert led.proposes() is None
    led.now = LAG_MAX_S + 1
    assert led.proposes() == {1, 2}


@pytest.mark.parametrize(
    ("end", "alive", "joins"),
    [
        pytest.param(100, (1, 2, 3), True, id="caught up"),
        pytest.param(69, (1, 2, 3), False, id="below the watermark"),
        pytest.param(100, (1, 2), False, id="fenced, or of another incarnation"),
    ],
)
def test_who_may_join(end: int, alive: tuple[int, ...], joins: bool) -> None:
    led = Led(isr=(1, 2))
    led.follows(2, 70)
    led.follows(3, end)
    assert led.proposes(alive) == ({1, 2, 3} if joins else None)


def test_no_follower_joins_the_isr_below_the_start_of_the_epoch() -> None:
    led = Led(isr=(1, 2), epoch_start=90, watermark=50)
    led.follows(3, 89)
    assert led.proposes() is None
    led.reports(3, 90)
    assert led.proposes() == {1, 2, 3}


def test_one_that_is_about_to_join_is_waited_for_already() -> None:
    led = Led(isr=(1, 2))
    led.follows(2, 60)
    led.follows(3, 60)
    assert led.proposes() == {1, 2, 3}
    led.reports(2, 90)
    assert led.high_watermark == 60
    led.reports(3, 80)
    assert led.high_watermark == 80


def test_a_refused_proposal_is_taken_back() -> None:
    led = Led(isr=(1, 2))
    led.follows(2, 60)
    led.follows(3, 60)
    led.proposes()
    led.view.refused(partition_epoch=0)
    assert led.reports(2, 90) == 90


def test_a_refusal_of_an_older_proposal_changes_nothing() -> None:
    led = Led(isr=(1, 2))
    led.follows(2, 60)
    led.follows(3, 60)
    led.learns((1, 2), 1)
    led.proposes()
    led.view.refused(partition_epoch=0)
    assert led.view.proposed_isr == {1, 2, 3}


def test_only_one_proposal_at_a_time() -> None:
    led = Led(isr=(1, 2))
    led.follows(3, 100)
    assert led.proposes() is not None
    assert led.proposes() is None


def test_a_follower_that_comes_back_empty_is_believed() -> None:
    led = Led(isr=(1, 2))
    led.follows(2, 100)
    led.follows(3, 100)
    led.follows(3, 0)
    assert led.proposes() is None
    assert led.high_watermark == 100


def test_only_what_may_change_the_isr_is_watched() -> None:
    led = Led(isr=(1, 2))
    assert not led.view.is_complete(led.log_end), "broker 2 has not reported"
    led.follows(2, 100)
    assert led.view.is_complete(led.log_end), "broker 3 is not connected: it is considered when it reports"
    led.follows(3, 100)
    assert not led.view.is_complete(led.log_end), "broker 3 may join"
    led.view.follower_detached(3)
    assert led.view.is_complete(led.log_end)
    assert not led.view.is_complete(led.log_end + 1), "broker 2 may lag"


def test_a_broker_that_is_a_replica_again_does_not_join_by_its_former_reports() -> None:
    led = Led()
    led.follows(2, 100)
    led.follows(3, 100)
    led.learns((1, 2), partition_epoch=1, replicas=(1, 2))
    led.learns((1, 2), partition_epoch=2)
    assert led.proposes() is None
    led.follows(3, 100)
    assert led.proposes() == {1, 2, 3}


def test_a_follower_that_left_the_isr_after_its_connection_ended_is_not_watched() -> None:
    led = Led()
    led.follows(2, 100)
    led.follows(3, 100)
    led.view.follower_detached(3)
    assert 3 in led.view.followers, "what an in-sync follower has flushed counts"
    led.learns((1, 2), partition_epoch=1)
    assert led.view.is_complete(led.log_end)
    led.follows(3, 100)
    assert not led.view.is_complete(led.log_end), "it is back and may join"


def test_an_assignment_of_the_same_partition_epoch_decides_no_proposal() -> None:
    """The min.insync.replicas of a topic change without a new partition epoch."""
    led = Led(isr=(1, 2))
    led.follows(2, 100)
    led.follows(3, 100)
    assert led.proposes() == {1, 2, 3}
    led.min_isr = 1
    led.learns((1, 2), 0)
    assert led.view.proposed_isr == {1, 2, 3}
    led.log_end = 120
    led.view.flushed(120)
    led.reports(2, 120)
    assert led.high_watermark == 100


def test_the_low_watermark_waits_for_every_in_sync_replica() -> None:
    led = Led(isr=(1, 2))
    assert led.view.low_watermark(7) == 0
    led.follows(2, 100)
    led.view.follower_start_flushed(2, 5)
    led.view.follower_start_flushed(3, 1)
    assert led.view.low_watermark(7) == 5
    assert led.view.low_watermark(4) == 4


def test_replicas_that_a_reassignment_removes_are_not_missed() -> None:
    led = Led(isr=(1, 2))
    assert led.view.is_under_replicated
    led.view.assignment_changed(led.assignment((1, 2), 1)._replace(removing=1))
    assert not led.view.is_under_replicated
