"""Simulated clusters with an archive: uploads go on after faults of brokers and of the store."""

import random
from dataclasses import replace

import pytest

from cordwood.chaos.sim.plan import plan_of, with_archive
from cordwood.chaos.sim.run import SimulatedRun, run_plan
from cordwood.chaos.sim.store_faults import StoreFault, StoreFaultKind

SECONDS = 20.0


def run(seed: int, *store_faults: StoreFault) -> SimulatedRun:
    plan = with_archive(plan_of(seed, SECONDS), random.Random(seed))
    plan = replace(plan, has_lying_disks=False, store_faults=store_faults or plan.store_faults)
    return run_plan(plan, plan.faults)


@pytest.mark.parametrize("seed", [102, 112, 116, 132])
def test_archive_and_logs_agree_after_faults(seed: int) -> None:
    assert run(seed).findings == ()


def test_the_archive_catches_up_after_the_store_was_stopped() -> None:
    found = run(103, StoreFault(0.5, StoreFaultKind.STOPPED, 18.0, 1.0))
    assert found.findings == ()
    assert found.acknowledged > 100
    assert "store-stopped" in {span.fault for span in found.faults}


def test_a_put_that_seemed_to_fail_is_no_error_and_leaves_no_orphan() -> None:
    assert run(103, StoreFault(0.5, StoreFaultKind.LOSES_ANSWERS, 18.0, 0.6)).findings == ()
