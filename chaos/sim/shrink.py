"""From many faults under which a run fails to few: leave some out for as long as it still fails (Zeller, ddmin)."""

from collections.abc import Callable, Sequence

from cordwood.chaos.sim.schedule import Fault

RUNS_MAX = 60


def shrunk(
    faults: Sequence[Fault], fails: Callable[[Sequence[Fault]], bool], runs_max: int = RUNS_MAX
) -> Sequence[Fault]:
    """A shorter list under which `fails` still holds. Runs no more than `runs_max` times."""
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
