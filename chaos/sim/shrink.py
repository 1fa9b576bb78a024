"""Shrinking of a failing fault schedule to a minimal one by delta debugging (Zeller, ddmin)."""

from collections.abc import Callable, Sequence

from cordwood.chaos.sim.schedule import ScheduledFault

RUNS_MAX = 60


def shrunk(
    faults: Sequence[ScheduledFault], fails: Callable[[Sequence[ScheduledFault]], bool], runs_max: int = RUNS_MAX
) -> Sequence[ScheduledFault]:
    """Return a shorter list for which `fails` still returns True. Calls `fails` at most `runs_max` times."""
    pieces, runs = 1, 0
    while faults and pieces <= len(faults):
        size = -(-len(faults) // pieces)
        for start in range(0, len(faults), size):
            without = [*faults[:start], *faults[start + size :]]
            if runs == runs_max:
                return faults
            runs += 1
            if fails(without):
                faults, pieces = without, max(1, pieces - 1)
                break
        else:
            if size == 1:
                return faults
            pieces = min(2 * pieces, len(faults))
    return faults
