"""Shrinking of a failing list of faults to the faults that it needs."""

from collections.abc import Sequence

from cordwood.chaos.sim.schedule import FaultKind, ScheduledFault, TargetChoice
from cordwood.chaos.sim.shrink import shrunk


def faults(count: int) -> list[ScheduledFault]:
    return [ScheduledFault(float(number), FaultKind.KILL, TargetChoice.ANYBODY, 1.0, number) for number in range(count)]


def test_the_two_faults_that_it_takes_are_left() -> None:
    everything = faults(40)
    needed = {everything[3], everything[31]}
    assert set(shrunk(everything, lambda some: needed <= set(some))) == needed


def test_what_fails_without_any_fault_needs_none() -> None:
    assert not shrunk(faults(9), lambda _: True)


def test_it_gives_up_after_so_many_runs() -> None:
    runs: list[int] = []

    def fails(some: Sequence[ScheduledFault]) -> bool:
        runs.append(len(some))
        return len(some) >= 30

    left = shrunk(faults(40), fails, runs_max=7)
    assert len(runs) == 7
    assert 30 <= len(left) <= 40
