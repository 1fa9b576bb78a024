"""Disks that acknowledge a sync and lose its bytes: no promise holds, and the checker reports the lost writes."""

from dataclasses import replace

import pytest

from cordwood.chaos.sim import lying_disks
from cordwood.chaos.sim.plan import plan_of
from cordwood.chaos.sim.run import run_plan

SEED = 1
SEED_WITH_AN_ARCHIVE = 1594


@pytest.mark.parametrize("seed", [SEED, SEED_WITH_AN_ARCHIVE])
def test_what_a_lying_disk_loses_is_found(seed: int) -> None:
    assert "lost-write" in lying_disks.kinds_of(seed, is_lying=True)


def test_an_honest_disk_loses_nothing_in_the_same_run() -> None:
    assert lying_disks.kinds_of(SEED, is_lying=False) == set()


def test_some_seeds_have_a_cluster_on_lying_disks() -> None:
    assert 2 < sum(plan_of(seed).has_lying_disks for seed in range(1, 101)) < 15


@pytest.mark.parametrize("is_noticed", [True, False])
def test_a_loss_that_no_checker_reports_is_a_finding(is_noticed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not is_noticed:
        monkeypatch.setattr(lying_disks, "kinds_of", lambda *_, **__: set())
    plan = replace(plan_of(SEED, 1.0), has_lying_disks=True, chores=(), faults=())
    run = run_plan(plan, ())
    assert [finding.kind for finding in run.findings] == ([] if is_noticed else [lying_disks.UNNOTICED])
    assert [span.fault for span in run.faults] == [lying_disks.LYING_DISK]
