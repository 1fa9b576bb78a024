"""The checks of a history: each finds its planted anomaly by name, and nothing in a sound history."""

from collections.abc import Callable

import pytest
from history_scenario import HistoryScenario

from cordwood.chaos.checks import CHECKS
from cordwood.chaos.history import BY_FOLLOWER, UNKNOWN, Outcome


@pytest.fixture
def story() -> HistoryScenario:
    return HistoryScenario()


def test_an_empty_history_accuses_nobody(story: HistoryScenario) -> None:
    assert story.kinds() == {}


def test_kept_promises_are_no_anomalies(story: HistoryScenario) -> None:
    story.acknowledged("ab").acknowledged("xy", producer=2, partition=1)
    story.assigned().polled("ab").polled("xy", partition=1).polled("ab", consumer=2)
    story.watermark(0, 1, 2).committed(0, 1, 2).found_committed(2)
    story.replica(1, "ab").replica(2, "ab")
    assert story.kinds() == {}


def planted() -> dict[str, Callable[[HistoryScenario], HistoryScenario]]:
    """Return, by kind of anomaly, the shortest history with this anomaly and no other."""
    return {
        "lost-write": lambda story: story.acknowledged("ab").polled("b", at=1),
        "unseen": lambda story: story.acknowledged("ab").polled("a"),
        "unsent-read": lambda story: story.polled("?"),
        "aborted-read": lambda story: story.refused("a").polled("a"),
        "duplicate": lambda story: story.unanswered("a").polled("aa"),
        "inconsistent-offsets": lambda story: story.unanswered("ab").polled("a").polled("b", consumer=2),
        "poll-skip": lambda story: story.unanswered("abc").polled("abc").polled("a.c", consumer=2),
        "nonmonotonic-poll": lambda story: story.unanswered("ab").polled("ab").polled("a"),
        "nonmonotonic-send": lambda story: story.acknowledged("b", at=1).acknowledged("a"),
        "replica-divergence": lambda story: story.unanswered("ab").replica(1, "a").replica(2, "b"),
        "watermark-regress": lambda story: story.watermark(2, 1),
        "group-regress": lambda story: story.committed(2, 1),
        "altered-read": lambda story: story.acknowledged("a").polled("a", content=7),
        "uncommitted-read": lambda story: story.watermark(1, read_end=2),
        "stale-read": lambda story: story.acknowledged("a").polled("a").watermark(0, epoch=1),
        "wrong-last-stable": lambda story: story.watermark(2, last_stable=1),
        "wrong-epoch-end": lambda story: (
            story.read_batch(0, 2, epoch=1).read_batch(2, 3, epoch=2).told_end(1, 1, 3, epoch=2)
        ),
        "wrong-lookup": lambda story: story.stamped(5).acknowledged("a").polled("a").looked_up(5),
        "invented-log-start": lambda story: story.watermark(2, log_start=2),
        "unavailable": lambda story: story.struck("kill").answered("a", 0, seconds=4).polled("a"),
        "log-start-regress": lambda story: (
            story.deleted(2).watermark(2, log_start=2, epoch=1).watermark(2, log_start=1, epoch=1)
        ),
    }


@pytest.mark.parametrize("kind", planted())
def test_a_planted_anomaly_is_found_and_no_other(story: HistoryScenario, kind: str) -> None:
    planted()[kind](story)
    # A log start that goes back below a deletion gives two anomalies of one kind.
    assert set(story.kinds()) == {kind}
    assert story.anomalies()[0].operations


def test_every_check_has_a_planted_anomaly() -> None:
    found = {anomaly.kind for plant in planted().values() for anomaly in plant(HistoryScenario()).anomalies()}
    assert found == set(planted())
    # Four kinds have two checks each: lost writes, aborted reads, stale reads, and log starts that go back.
    assert len(found) == len(CHECKS) - 4


def test_a_lost_write_is_proved_by_the_send_and_by_what_was_read_behind_it(story: HistoryScenario) -> None:
    story.acknowledged("ab").polled("b", at=1)
    [anomaly] = story.anomalies()
    send, poll = anomaly.operations
    assert (send["operation"], send["offset"], send["outcome"], send["value"]) == ("send", 0, "ok", 1 << 40)
    assert (poll["operation"], poll["offset"]) == ("poll", 1)


def test_what_was_acknowledged_or_read_and_is_in_no_replica_is_lost(story: HistoryScenario) -> None:
    story.acknowledged("a").unanswered("b").polled("ab").replica(1, "ab").replica(2, "")
    [anomaly] = story.anomalies()
    assert (anomaly.kind, anomaly.count) == ("lost-write", 2)
    assert [operation["operation"] for operation in anomaly.operations] == ["send", "poll", "log"] * 2
    assert {operation.get("broker") for operation in anomaly.operations} == {None, 2}


def test_a_record_at_another_place_than_its_own_is_lost_from_there(story: HistoryScenario) -> None:
    story.acknowledged("ab").polled("ab").replica(1, "ba")
    assert story.kinds() == {"lost-write": 2}


def test_a_record_that_was_acknowledged_without_its_place_may_be_anywhere_but_must_be_there(
    story: HistoryScenario,
) -> None:
    assert story.acknowledged("a", at=None).polled("a", at=5).replica(1, "a", at=5).kinds() == {}
    assert story.acknowledged("b", at=None).kinds() == {"lost-write": 1, "unseen": 1}


def test_nobody_may_claim_what_was_deleted_behind_the_start_of_the_log(story: HistoryScenario) -> None:
    story.acknowledged("abcd").acknowledged("e", at=None).deleted(2)
    story.watermark(4, log_start=2).polled("cd", at=2).replica(1, "cd", at=2, log_start=2)
    assert story.kinds() == {}


def test_nobody_may_claim_what_was_refused_left_open_or_not_meant_for_all_replicas(story: HistoryScenario) -> None:
    story.acknowledged("ab", at=1, acks=1).refused("c").unanswered("de").acknowledged("f", at=2)
    story.polled("f", at=2).replica(1, "f", at=2)
    assert story.kinds() == {}


def test_what_was_refused_must_not_be_committed_although_nobody_read_it(story: HistoryScenario) -> None:
    story.refused("a").replica(1, "a").replica(2, "a", high_watermark=0)
    [anomaly] = story.anomalies()
    assert (anomaly.kind, anomaly.count) == ("aborted-read", 1)
    assert [operation["operation"] for operation in anomaly.operations] == ["send", "replica"]


def test_an_open_send_may_be_read(story: HistoryScenario) -> None:
    assert story.unanswered("a").polled("a").replica(1, "a").kinds() == {}


def test_a_partition_that_nobody_reads_has_nobody_to_miss_a_record(story: HistoryScenario) -> None:
    assert story.acknowledged("a").kinds() == {}
    assert story.assigned().kinds() == {"unseen": 1}


def test_a_record_in_the_wrong_partition_was_not_sent_there(story: HistoryScenario) -> None:
    story.acknowledged("a").polled("a").polled("a", partition=1)
    assert story.kinds() == {"unsent-read": 1}


def test_a_record_elsewhere_than_its_producer_was_told_is_a_duplicate(story: HistoryScenario) -> None:
    story.acknowledged("a").polled("a", at=1)
    assert story.kinds() == {"duplicate": 1}
    assert [operation["offset"] for operation in story.anomalies()[0].operations] == [0, 1]


def test_two_acknowledgements_of_one_place_are_inconsistent(story: HistoryScenario) -> None:
    story.acknowledged("a").acknowledged("b", producer=2)
    [anomaly] = story.anomalies()
    assert (anomaly.kind, anomaly.count) == ("inconsistent-offsets", 1)
    assert [operation["producer"] for operation in anomaly.operations] == [1, 2]


def test_a_consumer_may_go_anywhere_when_it_is_reassigned(story: HistoryScenario) -> None:
    story.acknowledged("abcd").polled("abcd").assigned().polled("b", at=1).assigned().polled("d", at=3)
    assert story.kinds() == {}


def test_the_reassignment_of_another_consumer_or_partition_excuses_nobody(story: HistoryScenario) -> None:
    story.acknowledged("abc").polled("abc", consumer=2).assigned()
    story.polled("a").assigned(consumer=2).assigned(partition=1).polled("c", at=2)
    assert story.kinds() == {"poll-skip": 1}


def test_consumers_and_partitions_are_followed_apart(story: HistoryScenario) -> None:
    story.acknowledged("abc").acknowledged("xy", partition=1)
    story.polled("a").polled("x", partition=1).polled("ab", consumer=2).polled("bc", at=1).polled(
        "y", at=1, partition=1
    )
    assert story.kinds() == {}


def test_an_offset_that_nobody_ever_saw_a_record_at_is_not_skipped(story: HistoryScenario) -> None:
    assert story.unanswered("ab").polled("a.b").replica(1, "a!b").kinds() == {}


def test_a_record_that_only_a_replica_has_is_skipped(story: HistoryScenario) -> None:
    assert story.unanswered("abc").polled("a.c").replica(1, "abc").kinds() == {"poll-skip": 1}


def test_a_consumer_may_step_over_what_was_deleted(story: HistoryScenario) -> None:
    story.acknowledged("abc").polled("abc", consumer=2).deleted(2).watermark(3, log_start=2).polled("a").polled(
        "c", at=2
    )
    assert story.kinds() == {}


def test_the_same_record_twice_goes_not_forward(story: HistoryScenario) -> None:
    assert story.unanswered("a").polled("a").polled("a").kinds() == {"nonmonotonic-poll": 1}


def test_what_a_producer_gave_up_may_land_behind_what_it_sent_later(story: HistoryScenario) -> None:
    assert story.unanswered("a").acknowledged("b").polled("ba").kinds() == {}


def test_an_order_that_only_reads_tell_counts_too(story: HistoryScenario) -> None:
    story.acknowledged("ab", at=None).polled("ba")
    assert story.kinds() == {"nonmonotonic-send": 1}


def test_producers_and_partitions_have_no_common_order(story: HistoryScenario) -> None:
    story.acknowledged("a", at=1).acknowledged("b", producer=2).acknowledged("c", partition=1)
    assert story.kinds() == {}


def test_a_replica_that_misses_a_committed_record_diverges(story: HistoryScenario) -> None:
    story.unanswered("ab").replica(1, "ab").replica(2, "a.")
    [anomaly] = story.anomalies()
    assert (anomaly.kind, anomaly.count) == ("replica-divergence", 1)
    assert [(operation["operation"], operation["broker"]) for operation in anomaly.operations] == [
        ("replica", 1),
        ("log", 2),
    ]
    assert HistoryScenario().unanswered("ab").replica(1, "a.").replica(2, "ab").kinds() == {"replica-divergence": 1}


def test_control_records_are_compared_too(story: HistoryScenario) -> None:
    story.unanswered("a").replica(1, "!a").replica(2, ".a")
    assert story.kinds() == {"replica-divergence": 1}


def test_replicas_may_differ_behind_the_smaller_watermark_and_before_the_later_start(story: HistoryScenario) -> None:
    story.unanswered("abcd").deleted(1).replica(1, "abcd", high_watermark=3)
    story.replica(2, "bc!", at=1, log_start=1, high_watermark=4).replica(3, "ab", high_watermark=2)
    assert story.kinds() == {}


def test_each_two_of_three_replicas_are_compared(story: HistoryScenario) -> None:
    story.unanswered("abc").replica(1, "a").replica(2, "b").replica(3, "c")
    assert story.kinds() == {"replica-divergence": 3}


def test_watermarks_are_compared_by_client_and_partition(story: HistoryScenario) -> None:
    story.watermark(5).watermark(3, client=2).watermark(2, partition=1).watermark(5)
    assert story.kinds() == {}


def test_a_record_that_is_not_the_one_that_was_sent_is_altered_whoever_reads_it(story: HistoryScenario) -> None:
    story.acknowledged("ab").polled("ab").polled("ab", consumer=2, content=7)
    [anomaly] = story.anomalies()
    assert (anomaly.kind, anomaly.count) == ("altered-read", 2)
    assert [operation["operation"] for operation in anomaly.operations] == ["send", "poll"] * 2


def test_a_read_above_what_any_leader_had_committed_is_uncommitted_though_its_answer_says_otherwise(
    story: HistoryScenario,
) -> None:
    story.led_to(2).watermark(2, read_end=2).led_to(1).watermark(2, read_end=2)
    assert story.kinds() == {"uncommitted-read": 1}


def test_an_answer_that_names_no_watermark_may_bring_what_some_leader_had_committed(story: HistoryScenario) -> None:
    assert story.led_to(2).watermark(UNKNOWN, read_end=2).kinds() == {}


@pytest.mark.parametrize(
    ("known", "count"),
    [
        (lambda story: story.acknowledged("a"), 1),
        (lambda story: story.watermark(1, client=2, epoch=1), 1),
        (lambda story: story.watermark(1, client=2, epoch=BY_FOLLOWER, read_end=1), 1),
        (lambda story: story.acknowledged("a", acks=1), 0),
        (lambda story: story.acknowledged("a", at=None), 0),
        (lambda story: story.unanswered("a"), 0),
        (lambda story: story.acknowledged("a", partition=1), 0),
    ],
)
def test_a_leader_tells_no_end_below_what_somebody_knew_before_it_was_asked(
    story: HistoryScenario, known: Callable[[HistoryScenario], HistoryScenario], count: int
) -> None:
    assert known(story).watermark(0, epoch=1).kinds() == ({"stale-read": count} if count else {})


def test_the_end_of_a_leaders_own_epoch_is_not_below_what_was_acknowledged(story: HistoryScenario) -> None:
    assert story.acknowledged("ab").told_end(1, 1, 2, epoch=1).kinds() == {}
    [anomaly] = story.told_end(1, 1, 1, epoch=1).anomalies()
    assert anomaly.kind == "stale-read"
    assert [operation["operation"] for operation in anomaly.operations] == ["send", "epoch-end"]


def test_a_deposed_leader_answers_as_of_its_time_and_its_successor_knows_more(story: HistoryScenario) -> None:
    story.elected(1).acknowledged("a").elected(2).acknowledged("b", at=1)
    assert story.watermark(1, epoch=1).kinds() == {}
    assert story.watermark(0, epoch=1, client=2).kinds() == {"stale-read": 1}
    assert story.watermark(1, epoch=2).kinds() == {"stale-read": 2}


def test_a_follower_and_a_leader_that_nobody_knows_may_lag(story: HistoryScenario) -> None:
    story.acknowledged("a").watermark(0, epoch=BY_FOLLOWER).watermark(0, client=2)
    assert story.kinds() == {}


def test_a_leader_that_has_only_just_begun_may_say_nothing_of_its_watermark(story: HistoryScenario) -> None:
    assert story.watermark(1, epoch=1).watermark(UNKNOWN, epoch=2, last_stable=0).watermark(1, epoch=2).kinds() == {}


@pytest.mark.parametrize(
    ("answer", "count"), [((1, 2), 0), ((1, 1), 1), ((1, 3), 1), ((0, 2), 1), ((2, 2), 1), ((UNKNOWN, UNKNOWN), 1)]
)
def test_the_end_of_an_epoch_lies_between_its_batches_and_the_next_ones(
    story: HistoryScenario, answer: tuple[int, int], count: int
) -> None:
    story.read_batch(0, 1, epoch=0).read_batch(1, 2, epoch=1).read_batch(2, 3, epoch=3).told_end(1, *answer, epoch=3)
    assert story.kinds() == ({"wrong-epoch-end": count} if count else {})


def test_an_epoch_end_is_held_against_what_was_read_before_it_was_asked(story: HistoryScenario) -> None:
    story.elected(1, 2).told_end(1, 1, 1, epoch=1).read_batch(1, 2, epoch=2).told_end(2, 1, 1, epoch=1)
    assert story.told_end(2, 2, 2, epoch=2).told_end(9, 2, 2, epoch=2).kinds() == {}


@pytest.mark.parametrize(
    ("wanted", "answer", "count"),
    [
        (5, (0, 5), 0),
        (6, (1, 7), 0),
        (8, (), 0),
        (6, (2, 7), 1),
        (5, (1, 7), 1),
        (6, (0, 5), 1),
        (6, (1, 6), 1),
        (7, (), 1),
    ],
)
def test_a_lookup_by_time_names_the_first_record_of_that_time(
    story: HistoryScenario, wanted: int, answer: tuple[int, ...], count: int
) -> None:
    story.stamped(5).acknowledged("a").stamped(7).acknowledged("bc", at=1).polled("abc").looked_up(wanted, *answer)
    assert story.kinds() == ({"wrong-lookup": count} if count else {})


def test_a_lookup_need_not_find_what_was_deleted_or_what_came_later(story: HistoryScenario) -> None:
    story.stamped(5).acknowledged("a").deleted(1).watermark(1, log_start=1).looked_up(5).acknowledged("b", at=1)
    assert story.kinds() == {}


def test_a_log_start_that_nobody_allowed_excuses_no_lost_record(story: HistoryScenario) -> None:
    story.acknowledged("abc").watermark(3, log_start=2).polled("c", at=2)
    assert story.kinds() == {"invented-log-start": 1, "lost-write": 2}


def test_a_replica_may_not_begin_where_nobody_had_allowed_it(story: HistoryScenario) -> None:
    assert story.acknowledged("ab").replica(1, "b", at=1, log_start=1).kinds() == {"invented-log-start": 1}


def test_a_log_may_begin_where_records_were_deleted_and_no_later(story: HistoryScenario) -> None:
    assert story.deleted(2).watermark(4, log_start=2).deleted(1).kinds() == {}
    assert story.watermark(4, log_start=3).kinds() == {"invented-log-start": 1}


def test_a_log_may_begin_behind_what_is_old_enough(story: HistoryScenario) -> None:
    story.retained(age_ms=10).acknowledged("ab").after(10).acknowledged("c", at=2)
    assert story.watermark(3, log_start=2).kinds() == {}
    assert story.watermark(3, log_start=3).kinds() == {"invented-log-start": 1}


def test_a_log_may_begin_behind_what_is_more_than_enough(story: HistoryScenario) -> None:
    story.retained(keep_records=2).acknowledged("abc")
    assert story.watermark(3, log_start=1).kinds() == {}
    assert story.watermark(3, log_start=2).kinds() == {"invented-log-start": 1}


def test_records_that_were_deleted_for_good_come_back_under_no_leader(story: HistoryScenario) -> None:
    assert story.watermark(4, epoch=1).deleted(2).watermark(4, log_start=2, epoch=1).kinds() == {}
    assert story.watermark(4, log_start=1, epoch=2).kinds() == {"log-start-regress": 1}


def test_a_log_start_may_go_back_with_the_leader_unless_it_was_deleted_for_good(story: HistoryScenario) -> None:
    story.retained(keep_records=0).acknowledged("abc").watermark(3, log_start=2, epoch=1)
    assert story.watermark(3, log_start=1, epoch=2).kinds() == {}
    assert story.watermark(3, log_start=0, epoch=2).kinds() == {"log-start-regress": 1}


@pytest.mark.parametrize(
    ("fault", "lasts_s", "waits_s", "count"),
    [
        ("kill", 0, 2.9, 0),
        ("kill", 60, 3.1, 1),
        ("cut-clients", 60, 60.0, 0),
        ("cut-clients", 60, 100.0, 1),
        ("something else", 0, 100.0, 0),
    ],
)
def test_a_send_waits_no_longer_than_its_fault_explains(
    story: HistoryScenario, fault: str, lasts_s: float, waits_s: float, count: int
) -> None:
    story.struck(fault, lasts_s).answered("a", 0, seconds=waits_s).polled("a")
    assert story.kinds() == ({"unavailable": count} if count else {})


def test_a_fault_bounds_nothing_that_another_one_may_explain(story: HistoryScenario) -> None:
    assert story.struck("kill", is_alone=False).answered("a", 0, seconds=4).polled("a").kinds() == {}
    assert story.struck("kill").struck("reset", is_alone=False).kinds() == {}


def test_a_send_that_was_open_as_the_fault_struck_is_due_as_if_it_were_sent_then(story: HistoryScenario) -> None:
    story.answered("a", 0, seconds=103.1).answered("b", 1, seconds=102).after(100_000).struck("kill").polled("ab")
    assert story.kinds() == {"unavailable": 1}


def test_a_send_that_its_producer_gave_up_claims_no_answer_and_one_that_nobody_answers_does(
    story: HistoryScenario,
) -> None:
    assert story.struck("kill").unanswered("ab").kinds() == {}
    assert story.after(3_001).watermark(0).kinds() == {"unavailable": 1}


def test_a_commit_of_unknown_outcome_or_another_group_binds_nobody(story: HistoryScenario) -> None:
    story.committed(9, outcome=Outcome.INFO).committed(8, outcome=Outcome.FAIL).committed(7, group=2).committed(1, 2)
    assert story.found_committed(2).kinds() == {}


def test_a_later_generation_must_find_what_was_committed(story: HistoryScenario) -> None:
    assert story.committed(3).found_committed(3, generation=2).kinds() == {}
    assert story.found_committed(-1, generation=3).kinds() == {"group-regress": 1}


def test_a_commit_that_is_told_late_still_belongs_to_its_generation(story: HistoryScenario) -> None:
    story.found_committed(5, generation=2).committed(5, generation=1)
    assert story.kinds() == {}
    assert story.committed(6, generation=1).kinds() == {"group-regress": 1}


def test_a_commit_of_unknown_outcome_may_land_late_but_not_in_a_later_generation(story: HistoryScenario) -> None:
    story.committed(1, outcome=Outcome.INFO).committed(2).found_committed(1, generation=2)
    assert story.kinds() == {}
    assert story.committed(3, generation=2).found_committed(1, generation=2).kinds() == {"group-regress": 1}


def test_a_later_generation_may_begin_again(story: HistoryScenario) -> None:
    assert story.committed(3).committed(1, generation=2).kinds() == {}


def test_a_thousand_cases_are_counted_and_ten_are_proved(story: HistoryScenario) -> None:
    story.acknowledged("a" * 1000).acknowledged("b", at=1000).polled("b", at=1000)
    [anomaly] = story.anomalies()
    assert (anomaly.count, len(anomaly.operations)) == (1000, 20)
    assert "1000 times" in anomaly.sentence


def test_an_offset_out_of_this_world_is_an_anomaly_and_takes_no_memory(story: HistoryScenario) -> None:
    story.acknowledged("abc").polled("ab").polled("c", at=(1 << 63) - 1)
    assert story.kinds() == {"duplicate": 1, "poll-skip": 1}
