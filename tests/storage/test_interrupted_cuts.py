"""Crashes during a truncation, followed by a restart, appends and a power cut."""

import contextlib

import pytest
from log_fixture import LogFixture

from cordwood.chaos.sim.faults import Died

STEPS_MAX = 60
CUT_AT = 12


def died_within_the_cut(step: int) -> LogFixture | None:
    """Return a log whose process died at step `step` of a truncation over several segments; None if it had finished."""
    scenario = LogFixture().append(*(f"old {number:02}" for number in range(40))).flush().checkpoint()
    scenario.disk.faults.die_after(step)
    try:
        scenario.truncate(CUT_AT)
    except Died:
        return scenario
    return None


@pytest.mark.parametrize("added", [1, 15])
def test_segments_that_were_removed_do_not_come_back_into_a_log_that_went_on(added: int) -> None:
    steps = 0
    for step in range(STEPS_MAX):
        scenario = died_within_the_cut(step)
        if scenario is None:
            break
        steps += 1
        scenario.reopen()
        begin = scenario.end
        scenario.append(*(f"new {number:02}" for number in range(added))).flush()
        scenario.power_cut(keep=0.0).reopen()
        assert scenario.log.damage == [], f"step {step}"
        assert scenario.end == begin + added, f"step {step}"
    assert 0 < steps < STEPS_MAX


@pytest.mark.parametrize("steps", range(12))
def test_a_checkpoint_of_a_later_start_leaves_no_record_without_its_epoch(steps: int) -> None:
    log = LogFixture(leader_epoch=1)
    log.append("a", "b")
    log.leader_epoch = 2
    log.append("c", "d")
    log.leader_epoch = 3
    log.append("e", "f").flush().checkpoint().delete_records(5)
    log.disk.faults.die_after(steps)
    with contextlib.suppress(Died):
        log.checkpoint()
    log.reopen()
    epochs = [log.log.epochs.epoch_at(offset) for offset in range(log.start, log.end)]
    assert epochs == [1, 1, 2, 2, 3, 3][log.start :]
    assert log.start in (0, 5)
