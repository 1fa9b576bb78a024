"""Summaries of simulated runs: totals of several runs, and the timeline of the report."""

import pytest

from cordwood.chaos.sim.actions import ACTIONS
from cordwood.chaos.sim.run import SimulatedRun, run_seed
from cordwood.chaos.sim.run_summary import FAULTS, RunTotals, run_report, sentence, summary


@pytest.fixture(scope="module")
def runs() -> list[SimulatedRun]:
    """Run two seeds that have faults."""
    return [run_seed(seed, 8.0) for seed in (2, 34)]


def test_runs_are_added_up(runs: list[SimulatedRun]) -> None:
    tally = RunTotals()
    for run in runs:
        assert run.faults
        tally.add(RunTotals.of(run))
    tally.wall_s = 1.0
    reported = summary(tally, last_seed=34)
    assert reported["simulated_seconds"] == pytest.approx(sum(run.simulated_s for run in runs))
    assert (reported["seeds"], reported["wall_seconds"]) == (2, 1.0)
    assert reported["simulated_seconds_per_wall_second"] == pytest.approx(tally.simulated_s, abs=0.1)
    assert reported["acknowledged"] == sum(run.acknowledged for run in runs) > 0
    assert tally.faults.total() == sum(len(run.faults) for run in runs)
    assert set(reported["faults"]) == set(FAULTS) >= {span.fault for run in runs for span in run.faults}
    assert sum(reported["faults"].values()) == tally.faults.total()
    assert set(reported["actions"]) == set(ACTIONS)
    assert sum(reported["actions"].values()) == sum(run.actions.total() for run in runs) > 0
    assert tally.trace_hash not in {run.trace_hash for run in runs}
    assert sentence(tally).startswith("no anomaly: ")


def test_one_run_has_its_own_hash(runs: list[SimulatedRun]) -> None:
    tally = RunTotals()
    tally.add(RunTotals.of(runs[0]))
    assert tally.trace_hash == runs[0].trace_hash


def test_every_fault_of_the_report_is_over_at_the_end(runs: list[SimulatedRun]) -> None:
    for run in runs:
        [healed] = [float(line.split()[0]) for line in run.events if line.endswith("everything is healed")]
        spans = run_report(run, "no anomaly", "again").faults
        assert all(0 <= span.start_s <= span.end_s <= healed + 0.001 for span in spans)
        assert any(span.start_s < span.end_s for span in spans), "all faults were over at once"


def test_the_report_ends_with_the_last_answer_and_not_with_the_last_reader(runs: list[SimulatedRun]) -> None:
    for run in runs:
        last_s = max(run.plan.seconds, run.history.sends.ended_ns.max() / 1e9)
        reported = run_report(run, "no anomaly", "again")
        assert last_s - 1 <= reported.series.duration_s <= last_s
        assert 0 < sum(reported.series.acknowledged_per_s) * reported.series.slice_s <= run.acknowledged
        assert reported.settings["again"] == "again"
