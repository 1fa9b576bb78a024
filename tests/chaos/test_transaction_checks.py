"""The checks of transactions in a history: what read_committed may show, fencing, cycles, and inputs."""

from collections.abc import Callable

import pytest
from history_scenario import HistoryScenario

from cordwood.chaos.history import UNKNOWN, Outcome


@pytest.fixture
def scenario() -> HistoryScenario:
    return HistoryScenario()


def aborted_reads() -> dict[str, Callable[[HistoryScenario], HistoryScenario]]:
    """Return histories in which read_committed shows a transaction that was not committed."""
    return {
        "aborted": lambda scenario: scenario.transaction("a", commits=False).polled("a"),
        "never ended": lambda scenario: scenario.transaction("a", commits=None).polled("a"),
        "refused": lambda scenario: scenario.transaction("a", outcome=Outcome.FAIL).polled("a"),
        "offset": lambda scenario: scenario.transaction(consumed=(0, 0, 2), commits=False).found_offset(2),
    }


@pytest.mark.parametrize("how", aborted_reads())
def test_read_committed_shows_no_aborted_transaction(scenario: HistoryScenario, how: str) -> None:
    assert aborted_reads()[how](scenario.read_committed()).kinds() == {"aborted-read": 1}
    [anomaly] = scenario.anomalies()
    assert anomaly.operations[0]["operation"] == "transaction"


def test_a_record_of_an_aborted_transaction_is_not_also_read_too_early(scenario: HistoryScenario) -> None:
    assert scenario.read_committed().transaction("a", read_early="a", commits=False).kinds() == {"aborted-read": 1}


def test_read_uncommitted_shows_every_transaction(scenario: HistoryScenario) -> None:
    scenario.transaction("a", commits=False).transaction("b", 2, commits=None).transaction("c", 3, read_early="c")
    assert scenario.polled("a.bc", consumer=2).kinds() == {}


def test_a_commit_of_unknown_outcome_may_be_seen_or_not(scenario: HistoryScenario) -> None:
    scenario.read_committed().transaction("ab", outcome=Outcome.INFO).transaction("c", 3, outcome=Outcome.INFO)
    scenario.acknowledged("d", 5).polled("c.d", 3).polled("ab.c.d", consumer=2)
    assert scenario.kinds() == {}


def test_a_part_of_a_commit_of_unknown_outcome_is_none(scenario: HistoryScenario) -> None:
    scenario.read_committed().transaction("a", further="b", outcome=Outcome.INFO).polled("a")
    scenario.acknowledged("c", 1, partition=1).polled("bc", partition=1, consumer=2).polled("c", 1, partition=1)
    assert scenario.kinds() == {"intermediate-read": 1}


def test_what_read_committed_passes_over_is_no_skip_unless_it_was_committed(scenario: HistoryScenario) -> None:
    scenario.read_committed().acknowledged("a").transaction("b", 1, commits=False).acknowledged("c", 3)
    scenario.polled("ab.c", consumer=2).polled("a..c").replica(1, "ab!c")
    assert scenario.kinds() == {}
    scenario.transaction("d", 4).acknowledged("e", 6).polled("d.e", 4, consumer=2).polled("e", 6)
    assert scenario.kinds() == {"poll-skip": 1, "lost-transaction": 1, "lost-write": 2}


def test_a_transaction_is_not_lost_before_read_committed_comes_to_it(scenario: HistoryScenario) -> None:
    scenario.read_committed().acknowledged("a").transaction("b", 1).polled("a").polled("ab", consumer=2)
    assert scenario.kinds() == {}


def test_a_committed_offset_is_kept(scenario: HistoryScenario) -> None:
    scenario.found_offset(UNKNOWN).transaction(consumed=(0, 0, 2)).found_offset(2)
    scenario.transaction(consumed=(0, 2, 4), outcome=Outcome.INFO).found_offset(2).found_offset(4)
    assert scenario.kinds() == {}
    assert scenario.found_offset(1).kinds() == {"lost-transaction": 1}


def test_an_input_counts_once_unless_its_transaction_was_aborted(scenario: HistoryScenario) -> None:
    scenario.transaction(consumed=(0, 0, 2), commits=False).transaction(consumed=(0, 0, 2)).found_offset(2)
    scenario.transaction(consumed=(0, 2, 3)).transaction(consumed=(1, 0, 3)).found_offset(3)
    assert scenario.kinds() == {}


def test_a_producer_is_fenced_by_a_successor_that_has_begun(scenario: HistoryScenario) -> None:
    scenario.session(1).session(1, is_answered=False).session(2).transaction("a").polled("a")
    assert scenario.kinds() == {}
    assert scenario.session(1).transaction("b", 2).polled("b", 2, consumer=2).kinds() == {"fenced-producer": 2}


def test_a_transaction_that_is_ended_after_its_producer_was_fenced_is_not_committed(scenario: HistoryScenario) -> None:
    scenario.transaction("a", commits=None).session().ended().polled("a")
    assert scenario.kinds() == {"fenced-producer": 1}


def test_concurrent_transactions_may_write_in_any_order(scenario: HistoryScenario) -> None:
    scenario.transaction("b", 2, commits=None).transaction("a", transactional_id=2).polled("a.b")
    assert scenario.kinds() == {}


def test_transactions_that_consume_each_others_records_in_a_chain_are_no_cycle(scenario: HistoryScenario) -> None:
    scenario.transaction("a").transaction("b", partition=1, consumed=(0, 0, 1), transactional_id=2)
    scenario.transaction("c", partition=2, consumed=(1, 0, 1), transactional_id=3)
    scenario.polled("a").polled("b", partition=1).polled("c", partition=2)
    assert scenario.kinds() == {}


def test_a_transaction_may_hold_the_last_stable_offset_for_its_timeout(scenario: HistoryScenario) -> None:
    scenario.transaction("a", commits=None).polled("a").after(5_900).watermark(1, last_stable=0, epoch=1)
    assert scenario.kinds() == {}
    scenario.struck("kill").after(7_000).watermark(1, last_stable=0, epoch=1)
    assert scenario.kinds() == {}
    assert scenario.after(1_100).watermark(1, last_stable=0, epoch=1).kinds() == {"hanging-transaction": 1}
