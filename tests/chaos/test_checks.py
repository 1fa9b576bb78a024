"""The checks of a history: each finds its planted anomaly by name, and nothing in a sound history."""

from collections.abc import Callable

import pytest
from history_scenario import HistoryScenario

from cordwood.chaos.checks import CHECKS
from cordwood.chaos.history import BY_FOLLOWER, UNKNOWN, AckType, Outcome


@pytest.fixture
def scenario() -> HistoryScenario:
    return HistoryScenario()


def test_an_empty_history_has_no_anomaly(scenario: HistoryScenario) -> None:
    assert scenario.kinds() == {}


def test_kept_promises_are_no_anomalies(scenario: HistoryScenario) -> None:
    scenario.acknowledged("ab").acknowledged("xy", producer=2, partition=1)
    scenario.assigned().polled("ab").polled("xy", partition=1).polled("ab", consumer=2)
    scenario.watermark(0, 1, 2).committed(0, 1, 2).found_committed(2)
    scenario.replica(1, "ab").replica(2, "ab")
    assert scenario.kinds() == {}


def planted_in_groups() -> dict[str, Callable[[HistoryScenario], HistoryScenario]]:
    """Return the same for the kinds of share groups and of the consumer protocol."""
    return {
        "lost-delivery": lambda scenario: scenario.share_group().acknowledged("a").polled("a").share_start(1),
        "acknowledged-redelivery": lambda scenario: (
            scenario.share_group().acquired(0).share(AckType.ACCEPT, 0).acquired(0, member=2, count=2)
        ),
        "doubled-acknowledgement": lambda scenario: (
            scenario.share_group()
            .acquired(1)
            .after(2000)
            .acquired(1, member=2, count=2)
            .share(AckType.ACCEPT, 1)
            .share(AckType.ACCEPT, 1, member=2)
            .acquired(0)
        ),
        "double-acquisition": lambda scenario: (
            scenario.share_group().acquired(0).acquired(0, member=2, count=2).acquired(1)
        ),
        "wrong-delivery-count": lambda scenario: scenario.share_group().acquired(0, count=6),
        "missing-dead-letter": lambda scenario: (
            scenario.share_group(has_dead_letters=True).acquired(0).share(AckType.REJECT, 0)
        ),
        "invented-dead-letter": lambda scenario: (
            scenario.share_group(has_dead_letters=True).acquired(0).share(AckType.ACCEPT, 0).dead_letter(0)
        ),
        "double-assignment": lambda scenario: scenario.owned(1, since=0, until=10).owned(2, since=5, until=15),
        "member-epoch-regress": lambda scenario: scenario.epochs(1, 3, 2),
    }


def planted() -> dict[str, Callable[[HistoryScenario], HistoryScenario]]:
    """Return, by kind of anomaly, the shortest history with this anomaly and no other."""
    return {
        **planted_in_groups(),
        "lost-write": lambda scenario: scenario.acknowledged("ab").polled("b", at=1),
        "unseen": lambda scenario: scenario.acknowledged("ab").polled("a"),
        "unsent-read": lambda scenario: scenario.polled("?"),
        "aborted-read": lambda scenario: scenario.refused("a").polled("a"),
        "duplicate": lambda scenario: scenario.unanswered("a").polled("aa"),
        "inconsistent-offsets": lambda scenario: scenario.unanswered("ab").polled("a").polled("b", consumer=2),
        "poll-skip": lambda scenario: scenario.unanswered("abc").polled("abc").polled("a.c", consumer=2),
        "nonmonotonic-poll": lambda scenario: scenario.unanswered("ab").polled("ab").polled("a"),
        "nonmonotonic-send": lambda scenario: scenario.acknowledged("b", at=1).acknowledged("a"),
        "replica-divergence": lambda scenario: scenario.unanswered("ab").replica(1, "a").replica(2, "b"),
        "watermark-regress": lambda scenario: scenario.watermark(2, 1),
        "group-regress": lambda scenario: scenario.committed(2, 1),
        "altered-read": lambda scenario: scenario.acknowledged("a").polled("a", content=7),
        "uncommitted-read": lambda scenario: scenario.watermark(1, read_end=2),
        "stale-read": lambda scenario: scenario.acknowledged("a").polled("a").watermark(0, epoch=1),
        "wrong-last-stable": lambda scenario: scenario.watermark(2, last_stable=3),
        "wrong-epoch-end": lambda scenario: (
            scenario.read_batch(0, 2, epoch=1).read_batch(2, 3, epoch=2).reported_end(1, 1, 3, epoch=2)
        ),
        "wrong-lookup": lambda scenario: scenario.stamped(5).acknowledged("a").polled("a").looked_up(5),
        "invented-log-start": lambda scenario: scenario.watermark(2, log_start=2),
        "unavailable": lambda scenario: scenario.struck("kill").answered("a", 0, seconds=4).polled("a"),
        "log-start-regress": lambda scenario: (
            scenario.deleted(2).watermark(2, log_start=2, epoch=1).watermark(2, log_start=1, epoch=1)
        ),
        "intermediate-read": lambda scenario: (
            scenario.read_committed()
            .transaction("a", further="b")
            .polled("a")
            .acknowledged("c", 1, partition=1)
            .polled("bc", partition=1, consumer=2)
            .polled("c", 1, partition=1)
        ),
        "lost-transaction": lambda scenario: (
            scenario.read_committed().transaction("a").acknowledged("b", 1).polled("ab", consumer=2).polled("b", 1)
        ),
        "early-read": lambda scenario: scenario.read_committed().transaction("a", read_early="a"),
        "precommitted-read": lambda scenario: scenario.transaction("a", consumed=(0, 0, 1)).polled("a"),
        "doubled-transaction": lambda scenario: scenario.transaction(consumed=(0, 0, 2)).transaction(
            consumed=(0, 1, 3), transactional_id=2
        ),
        "fenced-producer": lambda scenario: scenario.session().session().transaction(),
        "G0": lambda scenario: scenario.transaction("b", 1).transaction("a", transactional_id=2).polled("ab"),
        "G1c": lambda scenario: (
            scenario.transaction("a", consumed=(1, 0, 1))
            .transaction("b", partition=1, consumed=(0, 0, 1), transactional_id=2)
            .polled("a")
            .polled("b", partition=1)
        ),
        "hanging-transaction": lambda scenario: (
            scenario.transaction("a", commits=None).polled("a").after(6_001).watermark(1, last_stable=0, epoch=1)
        ),
    }


@pytest.mark.parametrize("kind", planted())
def test_a_planted_anomaly_is_found_and_no_other(scenario: HistoryScenario, kind: str) -> None:
    planted()[kind](scenario)
    # A log start that goes back below a deletion gives two anomalies of one kind.
    assert set(scenario.kinds()) == {kind}
    assert scenario.anomalies()[0].operations


def test_every_check_has_a_planted_anomaly() -> None:
    found = {anomaly.kind for plant in planted().values() for anomaly in plant(HistoryScenario()).anomalies()}
    assert found == set(planted())
    # These have several checks each: lost writes, aborted reads (four), stale reads, log starts that go back, lost
    # transactions, fenced producers, and wrong delivery counts (three).
    assert len(found) == len(CHECKS) - 10


def test_a_lost_write_is_proved_by_the_send_and_by_a_later_read(scenario: HistoryScenario) -> None:
    scenario.acknowledged("ab").polled("b", at=1)
    [anomaly] = scenario.anomalies()
    send, poll = anomaly.operations
    assert (send["operation"], send["offset"], send["outcome"], send["value"]) == ("send", 0, "ok", 1 << 40)
    assert (poll["operation"], poll["offset"]) == ("poll", 1)


def test_what_was_acknowledged_or_read_and_is_in_no_replica_is_lost(scenario: HistoryScenario) -> None:
    scenario.acknowledged("a").unanswered("b").polled("ab").replica(1, "ab").replica(2, "")
    [anomaly] = scenario.anomalies()
    assert (anomaly.kind, anomaly.count) == ("lost-write", 2)
    assert [operation["operation"] for operation in anomaly.operations] == ["send", "poll", "log"] * 2
    assert {operation.get("broker") for operation in anomaly.operations} == {None, 2}


def test_a_record_at_another_place_than_its_own_is_lost_from_there(scenario: HistoryScenario) -> None:
    scenario.acknowledged("ab").polled("ab").replica(1, "ba")
    assert scenario.kinds() == {"lost-write": 2}


def test_a_record_that_was_acknowledged_without_its_place_may_be_anywhere_but_must_be_there(
    scenario: HistoryScenario,
) -> None:
    assert scenario.acknowledged("a", at=None).polled("a", at=5).replica(1, "a", at=5).kinds() == {}
    assert scenario.acknowledged("b", at=None).kinds() == {"lost-write": 1, "unseen": 1}


def test_deleted_records_below_the_log_start_are_not_missed(scenario: HistoryScenario) -> None:
    scenario.acknowledged("abcd").acknowledged("e", at=None).deleted(2)
    scenario.watermark(4, log_start=2).polled("cd", at=2).replica(1, "cd", at=2, log_start=2)
    assert scenario.kinds() == {}


def test_records_that_were_refused_left_open_or_not_for_all_replicas_are_not_missed(scenario: HistoryScenario) -> None:
    scenario.acknowledged("ab", at=1, acks=1).refused("c").unanswered("de").acknowledged("f", at=2)
    scenario.polled("f", at=2).replica(1, "f", at=2)
    assert scenario.kinds() == {}


def test_a_refused_record_must_not_be_committed_even_if_unread(scenario: HistoryScenario) -> None:
    scenario.refused("a").replica(1, "a").replica(2, "a", high_watermark=0)
    [anomaly] = scenario.anomalies()
    assert (anomaly.kind, anomaly.count) == ("aborted-read", 1)
    assert [operation["operation"] for operation in anomaly.operations] == ["send", "replica-record"]


def test_an_open_send_may_be_read(scenario: HistoryScenario) -> None:
    assert scenario.unanswered("a").polled("a").replica(1, "a").kinds() == {}


def test_a_partition_without_readers_misses_no_record(scenario: HistoryScenario) -> None:
    assert scenario.acknowledged("a").kinds() == {}
    assert scenario.assigned().kinds() == {"unseen": 1}


def test_a_record_in_the_wrong_partition_was_not_sent_there(scenario: HistoryScenario) -> None:
    scenario.acknowledged("a").polled("a").polled("a", partition=1)
    assert scenario.kinds() == {"unsent-read": 1}


def test_a_record_elsewhere_than_acknowledged_is_a_duplicate(scenario: HistoryScenario) -> None:
    scenario.acknowledged("a").polled("a", at=1)
    assert scenario.kinds() == {"duplicate": 1}
    assert [operation["offset"] for operation in scenario.anomalies()[0].operations] == [0, 1]


def test_two_acknowledgements_of_one_place_are_inconsistent(scenario: HistoryScenario) -> None:
    scenario.acknowledged("a").acknowledged("b", producer=2)
    [anomaly] = scenario.anomalies()
    assert (anomaly.kind, anomaly.count) == ("inconsistent-offsets", 1)
    assert [operation["producer"] for operation in anomaly.operations] == [1, 2]


def test_a_consumer_may_go_anywhere_when_it_is_reassigned(scenario: HistoryScenario) -> None:
    scenario.acknowledged("abcd").polled("abcd").assigned().polled("b", at=1).assigned().polled("d", at=3)
    assert scenario.kinds() == {}


def test_the_reassignment_of_another_consumer_or_partition_is_no_excuse(scenario: HistoryScenario) -> None:
    scenario.acknowledged("abc").polled("abc", consumer=2).assigned()
    scenario.polled("a").assigned(consumer=2).assigned(partition=1).polled("c", at=2)
    assert scenario.kinds() == {"poll-skip": 1}


def test_consumers_and_partitions_are_followed_apart(scenario: HistoryScenario) -> None:
    scenario.acknowledged("abc").acknowledged("xy", partition=1)
    scenario.polled("a").polled("x", partition=1).polled("ab", consumer=2).polled("bc", at=1).polled(
        "y", at=1, partition=1
    )
    assert scenario.kinds() == {}


def test_an_offset_at_which_no_record_was_ever_seen_is_not_skipped(scenario: HistoryScenario) -> None:
    assert scenario.unanswered("ab").polled("a.b").replica(1, "a!b").kinds() == {}


def test_a_record_that_only_a_replica_has_is_skipped(scenario: HistoryScenario) -> None:
    assert scenario.unanswered("abc").polled("a.c").replica(1, "abc").kinds() == {"poll-skip": 1}


def test_a_consumer_may_step_over_what_was_deleted(scenario: HistoryScenario) -> None:
    scenario.acknowledged("abc").polled("abc", consumer=2).deleted(2).watermark(3, log_start=2).polled("a").polled(
        "c", at=2
    )
    assert scenario.kinds() == {}


def test_the_same_record_twice_goes_not_forward(scenario: HistoryScenario) -> None:
    assert scenario.unanswered("a").polled("a").polled("a").kinds() == {"nonmonotonic-poll": 1}


def test_a_record_that_a_producer_gave_up_may_land_after_a_later_one(scenario: HistoryScenario) -> None:
    assert scenario.unanswered("a").acknowledged("b").polled("ba").kinds() == {}


def test_an_order_that_only_reads_show_counts_too(scenario: HistoryScenario) -> None:
    scenario.acknowledged("ab", at=None).polled("ba")
    assert scenario.kinds() == {"nonmonotonic-send": 1}


def test_producers_and_partitions_have_no_common_order(scenario: HistoryScenario) -> None:
    scenario.acknowledged("a", at=1).acknowledged("b", producer=2).acknowledged("c", partition=1)
    assert scenario.kinds() == {}


def test_a_replica_that_misses_a_committed_record_diverges(scenario: HistoryScenario) -> None:
    scenario.unanswered("ab").replica(1, "ab").replica(2, "a.")
    [anomaly] = scenario.anomalies()
    assert (anomaly.kind, anomaly.count) == ("replica-divergence", 1)
    assert [(operation["operation"], operation["broker"]) for operation in anomaly.operations] == [
        ("replica-record", 1),
        ("log", 2),
    ]
    assert HistoryScenario().unanswered("ab").replica(1, "a.").replica(2, "ab").kinds() == {"replica-divergence": 1}


def test_control_records_are_compared_too(scenario: HistoryScenario) -> None:
    scenario.unanswered("a").replica(1, "!a").replica(2, ".a")
    assert scenario.kinds() == {"replica-divergence": 1}


def test_replicas_may_differ_past_the_smaller_watermark_and_before_the_later_start(scenario: HistoryScenario) -> None:
    scenario.unanswered("abcd").deleted(1).replica(1, "abcd", high_watermark=3)
    scenario.replica(2, "bc!", at=1, log_start=1, high_watermark=4).replica(3, "ab", high_watermark=2)
    assert scenario.kinds() == {}


def test_each_two_of_three_replicas_are_compared(scenario: HistoryScenario) -> None:
    scenario.unanswered("abc").replica(1, "a").replica(2, "b").replica(3, "c")
    assert scenario.kinds() == {"replica-divergence": 3}


def test_watermarks_are_compared_by_client_and_partition(scenario: HistoryScenario) -> None:
    scenario.watermark(5).watermark(3, client=2).watermark(2, partition=1).watermark(5)
    assert scenario.kinds() == {}


def test_a_record_that_is_not_the_one_that_was_sent_is_altered_for_every_reader(scenario: HistoryScenario) -> None:
    scenario.acknowledged("ab").polled("ab").polled("ab", consumer=2, content=7)
    [anomaly] = scenario.anomalies()
    assert (anomaly.kind, anomaly.count) == ("altered-read", 2)
    assert [operation["operation"] for operation in anomaly.operations] == ["send", "poll"] * 2


def test_a_read_above_what_any_leader_had_committed_is_uncommitted_though_its_answer_says_otherwise(
    scenario: HistoryScenario,
) -> None:
    scenario.led_to(2).watermark(2, read_end=2).led_to(1).watermark(2, read_end=2)
    assert scenario.kinds() == {"uncommitted-read": 1}


def test_an_answer_that_names_no_watermark_may_bring_what_some_leader_had_committed(scenario: HistoryScenario) -> None:
    assert scenario.led_to(2).watermark(UNKNOWN, read_end=2).kinds() == {}


@pytest.mark.parametrize(
    ("known", "count"),
    [
        (lambda scenario: scenario.acknowledged("a"), 1),
        (lambda scenario: scenario.watermark(1, client=2, epoch=1), 1),
        (lambda scenario: scenario.watermark(1, client=2, epoch=BY_FOLLOWER, read_end=1), 1),
        (lambda scenario: scenario.acknowledged("a", acks=1), 0),
        (lambda scenario: scenario.acknowledged("a", at=None), 0),
        (lambda scenario: scenario.unanswered("a"), 0),
        (lambda scenario: scenario.acknowledged("a", partition=1), 0),
    ],
)
def test_a_leader_returns_no_end_below_one_known_before_the_request(
    scenario: HistoryScenario, known: Callable[[HistoryScenario], HistoryScenario], count: int
) -> None:
    assert known(scenario).watermark(0, epoch=1).kinds() == ({"stale-read": count} if count else {})


def test_the_end_of_a_leaders_own_epoch_is_not_below_what_was_acknowledged(scenario: HistoryScenario) -> None:
    assert scenario.acknowledged("ab").reported_end(1, 1, 2, epoch=1).kinds() == {}
    [anomaly] = scenario.reported_end(1, 1, 1, epoch=1).anomalies()
    assert anomaly.kind == "stale-read"
    assert [operation["operation"] for operation in anomaly.operations] == ["send", "epoch-end"]


def test_a_deposed_leader_answers_as_of_its_time_and_its_successor_knows_more(scenario: HistoryScenario) -> None:
    scenario.elected(1).acknowledged("a").elected(2).acknowledged("b", at=1)
    assert scenario.watermark(1, epoch=1).kinds() == {}
    assert scenario.watermark(0, epoch=1, client=2).kinds() == {"stale-read": 1}
    assert scenario.watermark(1, epoch=2).kinds() == {"stale-read": 2}


def test_a_follower_and_an_unknown_leader_may_lag(scenario: HistoryScenario) -> None:
    scenario.acknowledged("a").watermark(0, epoch=BY_FOLLOWER).watermark(0, client=2)
    assert scenario.kinds() == {}


def test_a_leader_that_has_only_just_begun_may_say_nothing_of_its_watermark(scenario: HistoryScenario) -> None:
    assert scenario.watermark(1, epoch=1).watermark(UNKNOWN, epoch=2, last_stable=0).watermark(1, epoch=2).kinds() == {}


@pytest.mark.parametrize(
    ("answer", "count"), [((1, 2), 0), ((1, 1), 1), ((1, 3), 1), ((0, 2), 1), ((2, 2), 1), ((UNKNOWN, UNKNOWN), 1)]
)
def test_the_end_of_an_epoch_lies_between_its_batches_and_the_next_ones(
    scenario: HistoryScenario, answer: tuple[int, int], count: int
) -> None:
    scenario.read_batch(0, 1, epoch=0).read_batch(1, 2, epoch=1).read_batch(2, 3, epoch=3).reported_end(
        1, *answer, epoch=3
    )
    assert scenario.kinds() == ({"wrong-epoch-end": count} if count else {})


def test_an_epoch_end_is_held_against_what_was_read_before_it_was_asked(scenario: HistoryScenario) -> None:
    scenario.elected(1, 2).reported_end(1, 1, 1, epoch=1).read_batch(1, 2, epoch=2).reported_end(2, 1, 1, epoch=1)
    assert scenario.reported_end(2, 2, 2, epoch=2).reported_end(9, 2, 2, epoch=2).kinds() == {}


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
        (6, (1, 8), 1),
        (7, (), 1),
    ],
)
def test_a_lookup_by_time_names_the_first_record_of_that_time(
    scenario: HistoryScenario, wanted: int, answer: tuple[int, ...], count: int
) -> None:
    scenario.stamped(5).acknowledged("a").stamped(7).acknowledged("bc", at=1).polled("abc").looked_up(wanted, *answer)
    assert scenario.kinds() == ({"wrong-lookup": count} if count else {})


def test_a_lookup_need_not_find_what_was_deleted_or_what_came_later(scenario: HistoryScenario) -> None:
    scenario.stamped(5).acknowledged("a").deleted(1).watermark(1, log_start=1).looked_up(5).acknowledged("b", at=1)
    assert scenario.kinds() == {}


def test_a_log_start_that_was_not_allowed_excuses_no_lost_record(scenario: HistoryScenario) -> None:
    scenario.acknowledged("abc").watermark(3, log_start=2).polled("c", at=2)
    assert scenario.kinds() == {"invented-log-start": 1, "lost-write": 2}


def test_a_replica_may_not_begin_where_it_was_not_allowed(scenario: HistoryScenario) -> None:
    assert scenario.acknowledged("ab").replica(1, "b", at=1, log_start=1).kinds() == {"invented-log-start": 1}


def test_a_log_may_begin_where_records_were_deleted_and_no_later(scenario: HistoryScenario) -> None:
    assert scenario.deleted(2).watermark(4, log_start=2).deleted(1).kinds() == {}
    assert scenario.watermark(4, log_start=3).kinds() == {"invented-log-start": 1}


def test_a_log_may_begin_after_records_that_are_old_enough(scenario: HistoryScenario) -> None:
    scenario.retained(age_ms=10).acknowledged("ab").after(10).acknowledged("c", at=2)
    assert scenario.watermark(3, log_start=2).kinds() == {}
    assert scenario.watermark(3, log_start=3).kinds() == {"invented-log-start": 1}


def test_a_log_may_begin_after_records_beyond_the_size_limit(scenario: HistoryScenario) -> None:
    scenario.retained(keep_records=2).acknowledged("abc")
    assert scenario.watermark(3, log_start=1).kinds() == {}
    assert scenario.watermark(3, log_start=2).kinds() == {"invented-log-start": 1}


def test_records_that_were_deleted_for_good_come_back_under_no_leader(scenario: HistoryScenario) -> None:
    assert scenario.watermark(4, epoch=1).deleted(2).watermark(4, log_start=2, epoch=1).kinds() == {}
    assert scenario.watermark(4, log_start=1, epoch=2).kinds() == {"log-start-regress": 1}


def test_a_log_start_may_go_back_with_the_leader_unless_it_was_deleted_for_good(scenario: HistoryScenario) -> None:
    scenario.retained(keep_records=0).acknowledged("abc").watermark(3, log_start=2, epoch=1)
    assert scenario.watermark(3, log_start=1, epoch=2).kinds() == {}
    assert scenario.watermark(3, log_start=0, epoch=2).kinds() == {"log-start-regress": 1}


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
    scenario: HistoryScenario, fault: str, lasts_s: float, waits_s: float, count: int
) -> None:
    scenario.struck(fault, lasts_s).answered("a", 0, seconds=waits_s).polled("a")
    assert scenario.kinds() == ({"unavailable": count} if count else {})


def test_a_fault_bounds_nothing_that_another_one_may_explain(scenario: HistoryScenario) -> None:
    assert scenario.struck("kill", is_alone=False).answered("a", 0, seconds=4).polled("a").kinds() == {}
    assert scenario.struck("kill").struck("reset", is_alone=False).kinds() == {}


def test_a_send_that_was_open_as_the_fault_struck_is_due_as_if_it_were_sent_then(scenario: HistoryScenario) -> None:
    scenario.answered("a", 0, seconds=103.1).answered("b", 1, seconds=102).after(100_000).struck("kill").polled("ab")
    assert scenario.kinds() == {"unavailable": 1}


def test_a_send_that_its_producer_gave_up_claims_no_answer_and_an_unanswered_one_does(
    scenario: HistoryScenario,
) -> None:
    assert scenario.struck("kill").unanswered("ab").kinds() == {}
    assert scenario.after(3_001).watermark(0).kinds() == {"unavailable": 1}


def test_a_commit_of_unknown_outcome_or_another_group_does_not_count(scenario: HistoryScenario) -> None:
    scenario.committed(9, outcome=Outcome.INFO).committed(8, outcome=Outcome.FAIL).committed(7, group=2).committed(1, 2)
    assert scenario.found_committed(2).kinds() == {}


def test_a_later_generation_must_find_what_was_committed(scenario: HistoryScenario) -> None:
    assert scenario.committed(3).found_committed(3, generation=2).kinds() == {}
    assert scenario.found_committed(-1, generation=3).kinds() == {"group-regress": 1}


def test_a_commit_that_is_answered_late_still_belongs_to_its_generation(scenario: HistoryScenario) -> None:
    scenario.found_committed(5, generation=2).committed(5, generation=1)
    assert scenario.kinds() == {}
    assert scenario.committed(6, generation=1).kinds() == {"group-regress": 1}


def test_a_commit_of_unknown_outcome_may_land_late_but_not_in_a_later_generation(scenario: HistoryScenario) -> None:
    scenario.committed(1, outcome=Outcome.INFO).committed(2).found_committed(1, generation=2)
    assert scenario.kinds() == {}
    assert scenario.committed(3, generation=2).found_committed(1, generation=2).kinds() == {"group-regress": 1}


def test_a_later_generation_may_begin_again(scenario: HistoryScenario) -> None:
    assert scenario.committed(3).committed(1, generation=2).kinds() == {}


def test_a_thousand_cases_are_counted_and_ten_are_proved(scenario: HistoryScenario) -> None:
    scenario.acknowledged("a" * 1000).acknowledged("b", at=1000).polled("b", at=1000)
    [anomaly] = scenario.anomalies()
    assert (anomaly.count, len(anomaly.operations)) == (1000, 20)
    assert "1000 times" in anomaly.sentence


def test_an_offset_out_of_this_world_is_an_anomaly_and_takes_no_memory(scenario: HistoryScenario) -> None:
    scenario.acknowledged("abc").polled("ab").polled("c", at=(1 << 63) - 1)
    assert scenario.kinds() == {"duplicate": 1, "poll-skip": 1}
