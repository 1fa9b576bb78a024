"""Cost budgets of requests: calls, memory, system calls, and fsyncs for each group commit."""

import functools
import warnings
from pathlib import Path

import pytest

from cordwood.bench.counters import budget
from cordwood.bench.counters.budget import OF_THE_INTERPRETER, PYTHON, exceeded, fallen, with_counts
from cordwood.bench.counters.scenarios import CONNECTIONS, SCENARIOS, CounterScenario, count

KNOWN = budget.load()
once_counted = functools.cache(count)
BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}
OTHER_PYTHON = "3.99"


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_a_request_costs_no_more_than_its_budget(scenario: CounterScenario) -> None:
    counts = once_counted(scenario)
    complaints = [change.complaint for change in exceeded(scenario.name, counts, KNOWN)]
    assert not complaints, "\n" + "\n".join(complaints)
    for change in fallen(scenario.name, counts, KNOWN):
        warnings.warn(f"{change}: the budget can be tightened with `{budget.HOW_TO_WRITE}`", stacklevel=1)
    if not budget.is_measured(KNOWN):
        warnings.warn(f"no budget of calls and memory for Python {PYTHON}", stacklevel=1)


def test_the_budget_is_of_the_scenarios_that_there_are() -> None:
    assert list(KNOWN) == [scenario.name for scenario in SCENARIOS]


def test_sixteen_produces_of_one_turn_are_one_group_and_one_fsync() -> None:
    counts = once_counted(BY_NAME["16 small produces in one turn"])
    assert (counts["io_submit"], counts["fdatasync"], counts["files synced"]) == (1, 1, 1)
    assert (counts["recv"], counts["send"]) == (CONNECTIONS, CONNECTIONS)


@pytest.mark.parametrize("version", [1, 2])
def test_a_transaction_is_four_group_commits(version: int) -> None:
    """Its beginning, its records, the decision and the marker: each is on disk before the next."""
    counts = once_counted(BY_NAME[f"a transaction, version {version}"])
    assert (counts["io_submit"], counts["fdatasync"]) == (4, 4)


def test_equal_runs_have_equal_counts() -> None:
    scenario = CounterScenario("again", 1, BY_NAME["a small produce, 1 broker"].prepare, times=20, warm_up=20)
    assert count(scenario) == count(scenario)


@pytest.fixture
def planted() -> budget.Budget:
    return with_counts({}, "a produce", {"Python calls": 100.0, "fdatasync": 1.0, "send": 2.0})


def test_three_percent_more_calls_pass_and_four_do_not(planted: budget.Budget) -> None:
    assert exceeded("a produce", {"Python calls": 103.0, "fdatasync": 1.0, "send": 2.0}, planted) == []
    [change] = exceeded("a produce", {"Python calls": 104.0, "fdatasync": 1.0, "send": 2.0}, planted)
    assert change.complaint == (
        "a produce: Python calls went from 100.00 to 104.00 (+4.0%). Make it cheaper again; or, if it is worth its "
        "price, write the new budget with `python -m cordwood.bench.counters --write` and say in the commit's message "
        "why it costs more."
    )


def test_one_more_fsync_in_ten_requests_is_too_much(planted: budget.Budget) -> None:
    found = exceeded("a produce", {"Python calls": 100.0, "fdatasync": 1.1, "send": 2.0}, planted)
    assert [str(change) for change in found] == ["a produce: fdatasync went from 1.00 to 1.10 (+10.0%)"]


def test_a_system_call_that_the_budget_does_not_know_is_too_much(planted: budget.Budget) -> None:
    found = exceeded("a produce", {"fdatasync": 1.0, "send": 2.0, "fstat": 1.0}, planted)
    assert [str(change) for change in found] == ["a produce: fstat went from 0.00 to 1.00"]


def test_what_has_become_a_tenth_cheaper_is_reported_and_is_no_failure(planted: budget.Budget) -> None:
    counts = {"Python calls": 89.0, "fdatasync": 1.0, "send": 2.0}
    assert exceeded("a produce", counts, planted) == []
    assert [change.counter for change in fallen("a produce", counts, planted)] == ["Python calls"]


def test_another_python_is_held_to_system_calls_alone_until_it_has_figures(planted: budget.Budget) -> None:
    counts = {"Python calls": 500.0, "fdatasync": 2.0, "send": 2.0}
    found = exceeded("a produce", counts, planted, OTHER_PYTHON)
    assert [change.counter for change in found] == ["fdatasync"]
    both = with_counts(planted, "a produce", counts, OTHER_PYTHON)
    assert both["a produce"]["Python calls"] == {PYTHON: 100.0, OTHER_PYTHON: 500.0}
    assert exceeded("a produce", counts, both, OTHER_PYTHON) == []


def test_a_saved_budget_is_read_back(planted: budget.Budget, tmp_path: Path) -> None:
    budget.save(planted, tmp_path / "budget.json")
    assert budget.load(tmp_path / "budget.json") == planted
    assert set(OF_THE_INTERPRETER) & set(planted["a produce"]) == {"Python calls"}
