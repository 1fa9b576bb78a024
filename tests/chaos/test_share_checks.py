"""The checks of share groups and of consumer-protocol groups in a history: what they find, and what they excuse."""

from collections.abc import Callable

import pytest
from history_scenario import HistoryScenario

from cordwood.chaos.history import UNKNOWN, AckType, Outcome

ACCEPT, RELEASE, REJECT, RENEW = (
    AckType.ACCEPT,
    AckType.RELEASE,
    AckType.REJECT,
    AckType.RENEW,
)


@pytest.fixture
def scenario() -> HistoryScenario:
    return HistoryScenario().share_group()


def test_a_share_group_that_keeps_its_promises_has_no_anomaly(scenario: HistoryScenario) -> None:
    scenario.acknowledged("abcd").polled("abcd").acquired(0, 2).acquired(2, 4, member=2)
    scenario.share(ACCEPT, 0).share(RELEASE, 1).share(ACCEPT, 2, 4, member=2)
    scenario.acquired(1, member=2, count=2).share(REJECT, 1, member=2).share_start(4)
    assert scenario.kinds() == {}


def test_a_rejected_record_is_not_delivered_again_either(scenario: HistoryScenario) -> None:
    scenario.acquired(0, 3).share(REJECT, 1).acquired(1, count=2, session=2)
    assert scenario.kinds() == {"acknowledged-redelivery": 1}
    acknowledgement, acquisition = scenario.anomalies()[0].operations
    assert (acknowledgement["operation"], acknowledgement["type"]) == ("acknowledgement", REJECT)
    assert (acquisition["operation"], acquisition["delivery_count"]) == ("acquisition", 2)


def test_an_acknowledgement_below_the_start_offset_succeeds_and_changes_nothing(scenario: HistoryScenario) -> None:
    scenario.acquired(1).after(2000).acquired(1, member=2, count=2).share(ACCEPT, 1).share(ACCEPT, 1, member=2)
    assert scenario.kinds() == {}
    assert scenario.acquired(2).kinds() == {}
    assert scenario.acquired(0).kinds() == {"doubled-acknowledgement": 1}


def unfinished() -> dict[str, Callable[[HistoryScenario], HistoryScenario]]:
    """Return acknowledgements after which a record may come again."""
    return {
        "released": lambda scenario: scenario.share(RELEASE, 0),
        "refused": lambda scenario: scenario.share(ACCEPT, 0, outcome=Outcome.FAIL),
        "unanswered": lambda scenario: scenario.share(ACCEPT, 0, outcome=Outcome.INFO),
        "of another record": lambda scenario: scenario.share(ACCEPT, 1),
    }


@pytest.mark.parametrize("how", unfinished())
def test_a_record_may_come_again_until_its_acknowledgement_is_answered(scenario: HistoryScenario, how: str) -> None:
    unfinished()[how](scenario.acquired(0, 2)).after(2000).acquired(0, member=2, count=2)
    assert scenario.kinds() == {}


def test_a_fetch_that_was_under_way_as_the_record_was_acknowledged_may_have_been_first(
    scenario: HistoryScenario,
) -> None:
    scenario.acquired(0, member=2, meanwhile=lambda scenario: scenario.share(ACCEPT, 0)).after(2000)
    assert scenario.kinds() == {}


def holds() -> dict[str, Callable[[HistoryScenario], HistoryScenario]]:
    """Return what may happen between two deliveries of record 0, after which the second one is right."""
    return {
        "lock over": lambda scenario: scenario.after(1000).acquired(0, member=2, count=2).acquired(1),
        "released": lambda scenario: scenario.share(RELEASE, 0).acquired(0, member=2, count=2).acquired(1),
        "release unanswered": lambda scenario: (
            scenario.share(RELEASE, 0, outcome=Outcome.INFO).acquired(0, member=2, count=2).acquired(1)
        ),
        "session may have ended": lambda scenario: scenario.acquired(0, member=2, count=2).acquired(1, session=9),
        "another leader": lambda scenario: scenario.acquired(0, member=2, count=2, epoch=1).acquired(1),
        "election": lambda scenario: scenario.elected(1).acquired(0, member=2, count=2).acquired(1),
        "fetch was first perhaps": lambda scenario: scenario.acquired(1),
    }


@pytest.mark.parametrize("how", holds())
def test_a_lock_excludes_no_member_once_it_may_have_expired(scenario: HistoryScenario, how: str) -> None:
    assert holds()[how](scenario.acquired(0)).kinds() == {}


def test_a_renewed_lock_is_still_held(scenario: HistoryScenario) -> None:
    scenario.acquired(0).after(800).share(RENEW, 0).after(800).acquired(0, member=2, count=2).acquired(1)
    assert scenario.kinds() == {"double-acquisition": 1}
    refused = HistoryScenario().acquired(0).after(800).share(RENEW, 0, outcome=Outcome.FAIL).after(800)
    assert refused.acquired(0, member=2, count=2).acquired(1).kinds() == {}


def test_without_epochs_a_lock_counts_only_in_a_calm_time(scenario: HistoryScenario) -> None:
    scenario.struck("kill", 1).after(5000)
    scenario.acquired(0, epoch=UNKNOWN).acquired(0, member=2, count=2, epoch=UNKNOWN).acquired(1, epoch=UNKNOWN)
    assert scenario.kinds() == {}
    scenario.after(40_000)
    scenario.acquired(2, epoch=UNKNOWN).acquired(2, member=2, count=2, epoch=UNKNOWN).acquired(1, epoch=UNKNOWN)
    assert scenario.kinds() == {"double-acquisition": 1}


def test_without_epochs_a_lock_does_not_count_after_an_election_either(scenario: HistoryScenario) -> None:
    scenario.elected(0, 1).acquired(0, epoch=UNKNOWN).acquired(0, member=2, count=2, epoch=UNKNOWN)
    assert scenario.acquired(1, epoch=UNKNOWN).kinds() == {}
    scenario.after(40_000).elected(2, partition=1)
    scenario.acquired(2, epoch=UNKNOWN).acquired(2, member=2, count=2, epoch=UNKNOWN).acquired(1, epoch=UNKNOWN)
    assert scenario.kinds() == {"double-acquisition": 1}


def test_a_deposed_leader_may_still_deliver_what_the_next_one_does(scenario: HistoryScenario) -> None:
    scenario.elected(1).acquired(0, session=2).acquired(0, epoch=1).acquired(1, session=2).acquired(1, epoch=1)
    assert scenario.kinds() == {}
    assert scenario.acquired(0, member=2, count=2, epoch=1).acquired(2, epoch=1).kinds() == {"double-acquisition": 1}


def test_a_delivery_count_goes_up_after_a_release_under_any_leader(scenario: HistoryScenario) -> None:
    scenario.acquired(0, count=2).share(RELEASE, 0).acquired(0, member=2, count=3, epoch=1)
    assert scenario.kinds() == {}
    assert scenario.acquired(0, session=2, count=2, epoch=2).kinds() == {"wrong-delivery-count": 1}


def test_a_delivery_count_goes_up_after_a_lock_is_over(scenario: HistoryScenario) -> None:
    scenario.acquired(0).after(1100).acquired(1).acquired(0, member=2)
    assert scenario.kinds() == {"wrong-delivery-count": 1}


def test_a_session_that_may_have_ended_and_another_leader_count_nothing(scenario: HistoryScenario) -> None:
    scenario.acquired(0).after(1100).acquired(0, member=2)
    scenario.acquired(5, session=3).after(1100).acquired(6, session=3).elected(1).acquired(5, member=2, epoch=1)
    assert scenario.kinds() == {}


def test_a_count_is_between_one_and_the_limit(scenario: HistoryScenario) -> None:
    scenario.acquired(0, count=0).acquired(1, count=1).acquired(2, count=5).acquired(3, count=6)
    assert scenario.kinds() == {"wrong-delivery-count": 2}


def test_a_record_below_the_start_was_finished_or_delivered_up_to_the_limit() -> None:
    scenario = HistoryScenario().share_group(limit=2).acknowledged("abcd").polled("abcd")
    scenario.acquired(0, count=2).acquired(1).share(ACCEPT, 1, outcome=Outcome.INFO).share_start(2)
    assert scenario.kinds() == {}
    scenario.acquired(2).share(RELEASE, 2).share_start(4)
    assert scenario.kinds() == {"lost-delivery": 2}
    operations = [operation["operation"] for operation in scenario.anomalies()[0].operations]
    assert operations == ["share-start", "send", "acquisition", "share-start", "send"]


def test_fetches_without_an_answer_may_have_delivered_a_record_up_to_the_limit(scenario: HistoryScenario) -> None:
    scenario.acknowledged("a").polled("a").fetched_without_answer(4).acquired(0).share_start(1)
    assert scenario.kinds() == {}
    scenario.acknowledged("b", 1).polled("b", 1).fetched_without_answer(3).acquired(1).share_start(2)
    assert scenario.kinds() == {"lost-delivery": 1}


def test_deleted_records_are_passed_without_a_delivery(scenario: HistoryScenario) -> None:
    scenario.acknowledged("ab").polled("ab").deleted(2).watermark(2, log_start=2).share_start(2)
    assert scenario.kinds() == {}


def test_a_dead_letter_is_of_a_rejected_record_or_of_one_at_the_limit() -> None:
    scenario = HistoryScenario().share_group(limit=2, has_dead_letters=True)
    scenario.acquired(0).share(REJECT, 0).dead_letter(0)
    scenario.acquired(1, count=2).dead_letter(1)
    scenario.acquired(2).share(REJECT, 2, outcome=Outcome.INFO).dead_letter(2)
    assert scenario.kinds() == {}
    assert scenario.acquired(3).dead_letter(3).kinds() == {"invented-dead-letter": 1}


def test_fetches_without_an_answer_may_have_brought_a_dead_letter_to_the_limit() -> None:
    scenario = HistoryScenario().share_group(limit=3, has_dead_letters=True).acquired(0).dead_letter(0)
    assert scenario.fetched_without_answer(1).kinds() == {"invented-dead-letter": 1}
    assert scenario.fetched_without_answer(1).kinds() == {}


def test_a_record_that_is_deleted_before_it_is_copied_has_no_dead_letter() -> None:
    scenario = HistoryScenario().share_group(has_dead_letters=True).acknowledged("abc").acquired(0, 3)
    scenario.share(REJECT, 0).deleted(1).watermark(3, log_start=1)
    assert scenario.kinds() == {}
    assert scenario.share(REJECT, 1).kinds() == {"missing-dead-letter": 1}


def test_a_rejection_of_what_was_accepted_before_makes_no_dead_letter() -> None:
    scenario = HistoryScenario().share_group(has_dead_letters=True).acquired(0).share(ACCEPT, 0).share(REJECT, 0)
    assert scenario.kinds() == {}


def test_a_group_without_dead_letters_has_none_to_miss(scenario: HistoryScenario) -> None:
    assert scenario.acquired(0).share(REJECT, 0).kinds() == {}


def ownerships() -> dict[str, Callable[[HistoryScenario], HistoryScenario]]:
    """Return ownerships of a partition beside that of member 1, from 0 to 10 ms, that are right."""
    return {
        "one after the other": lambda scenario: scenario.owned(2, since=10, until=20),
        "another partition": lambda scenario: scenario.owned(2, since=5, until=20, partition=1),
        "another group": lambda scenario: scenario.owned(2, since=5, until=20, group=2),
        "its own, of a later epoch": lambda scenario: scenario.owned(1, since=5, until=20),
        "a coordinator that was deposed": lambda scenario: scenario.owned(2, since=5, until=20, coordinator=2),
        "unconfirmed": lambda scenario: scenario.owned(2, since=5, until=5),
    }


@pytest.mark.parametrize("how", ownerships())
def test_a_partition_is_one_members_at_a_time(scenario: HistoryScenario, how: str) -> None:
    assert ownerships()[how](scenario.owned(1, since=0, until=10)).kinds() == {}


def test_each_pair_of_owners_counts(scenario: HistoryScenario) -> None:
    scenario.owned(1, since=0, until=30).owned(2, since=5, until=10).owned(3, since=6, until=40)
    assert scenario.kinds() == {"double-assignment": 3}


def test_without_coordinators_two_owners_count_only_in_a_calm_time(scenario: HistoryScenario) -> None:
    scenario.struck("kill", 1).owned(1, since=0, until=10, coordinator=UNKNOWN)
    assert scenario.owned(2, since=5, until=15, coordinator=UNKNOWN).kinds() == {}
    scenario.after(60_000).owned(1, since=0, until=10, coordinator=UNKNOWN)
    assert scenario.owned(2, since=5, until=15, coordinator=UNKNOWN).kinds() == {"double-assignment": 1}


def test_epochs_of_one_member_stay_or_go_up(scenario: HistoryScenario) -> None:
    assert scenario.epochs(1, 1, 4).epochs(3, member=2).kinds() == {}
