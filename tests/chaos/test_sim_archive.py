"""Simulated clusters with an archive: uploads go on after faults of brokers and of the store."""

import random
from dataclasses import replace

import pytest

from cordwood.chaos.sim.chores import Chore, Due
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


def test_a_leader_without_archived_records_goes_on_after_them() -> None:
    """A replica is elected that was down while records were archived (archive rule 5)."""
    plan = with_archive(plan_of(4, SECONDS), random.Random(4))
    made = Due(0.5, Chore.LOSSY_TOPIC_MADE, dice=4)
    elections = [Due(at, Chore.UNCLEAN_ELECTION, number) for number, at in enumerate((4.0, 9.0, 14.0))]
    settings = {"log_segment_bytes": 2048, "log_roll_ms": 1000, "archive_upload_bytes_per_second": 100 << 20}
    plan = replace(
        plan,
        brokers=3,
        voters=3,
        clock_rates=(1.0,) * 3,
        has_lying_disks=False,
        chores=(made, *elections),
        store_faults=(),
        settings={**plan.settings, **settings, "replica_lag_time_max_ms": 1000},
    )
    found = run_plan(plan, ())
    assert found.findings == ()
    assert found.actions["unclean-election"] == 3


def test_a_put_that_seemed_to_fail_is_no_error_and_leaves_no_orphan() -> None:
    assert run(103, StoreFault(0.5, StoreFaultKind.LOSES_ANSWERS, 18.0, 0.6)).findings == ()
