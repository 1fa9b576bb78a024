"""The fault schedule: a list drawn from a seed of times, kinds, targets and durations. A replay may omit any fault."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum


class FaultKind(Enum):
    """Kinds of faults. The value is the name in reports."""

    KILL = "kill"
    POWER_CUT = "power-cut"
    BLACKOUT = "blackout"
    PAUSE = "pause"
    RESTART = "restart"
    CUT_OFF = "cut-off"
    CUT_ONE_WAY = "cut-one-way"
    CUT_CLIENTS = "cut-clients"
    RESET = "reset"
    SLOW_LINK = "slow-link"
    SLOW_DISK = "slow-disk"
    DIE_IN_WRITE = "die-in-write"
    SYNC_ERROR = "sync-error"
    DISK_FULL = "disk-full"
    BIT_FLIP = "bit-flip"
    WIPE = "wipe"
    CLOCK_JUMP = "clock-jump"
    WRITE_ERROR = "write-error"
    SECOND_PROCESS = "second-process"
    FILE_MISSING = "file-missing"
    FILE_SHORTENED = "file-shortened"
    FILE_ZEROED = "file-zeroed"
    READ_ERROR = "read-error"
    END_LOST = "end-lost"


APART = (FaultKind.WRITE_ERROR, FaultKind.SECOND_PROCESS)
"""Kinds with a mix of their own: the other faults of a seed do not depend on them."""
LOSSES = (FaultKind.FILE_MISSING, FaultKind.FILE_SHORTENED, FaultKind.FILE_ZEROED, FaultKind.READ_ERROR)
"""Kinds that lose a closed segment, or a part of it, with a mix of their own, too."""
LOSSES_OF_SEGMENTS = (*LOSSES, FaultKind.END_LOST)
"""Kinds that wait for a segment to strike. It may be on the disk that has lost data already."""
LOSSES_SHARE = 0.25
"""The share of runs with losses."""
END_LOST_SHARE = 0.5
"""The share of runs in which a log loses its end."""


class TargetChoice(Enum):
    """The choice of target, resolved when the fault strikes."""

    LEADER = "leader"
    CONTROLLER = "controller"
    ANYBODY = "anybody"
    TRANSACTIONS = "transactions"
    """The coordinator of a transactional id."""
    GROUPS = "groups"
    """The coordinator of a group, or of the state of a share group."""


AIMS = (TargetChoice.LEADER, TargetChoice.CONTROLLER, TargetChoice.ANYBODY)
"""The targets of all seeds."""
SHORT_S = 0.6
AT_COORDINATOR = (FaultKind.KILL, FaultKind.RESTART, FaultKind.PAUSE, FaultKind.CUT_OFF, FaultKind.POWER_CUT)


@dataclass(frozen=True, slots=True)
class ScheduledFault:
    """One scheduled fault. `dice` seeds its remaining random choices, independently of all other events."""

    at_s: float
    kind: FaultKind
    aim: TargetChoice
    lasts_s: float
    dice: int


def drawn(rng: random.Random, seconds: float) -> tuple[ScheduledFault, ...]:
    """Draw a run's own mix of faults, in the order in which they strike."""
    kinds = [kind for kind in FaultKind if kind not in APART + LOSSES_OF_SEGMENTS]
    weights = [rng.choice((0.0, 0.0, 1.0, 3.0)) for _ in kinds]
    if not any(weights):
        weights[0] = 1.0
    aims = rng.choices(AIMS, k=3)
    return _drawn(rng, seconds, kinds, weights, aims, rng.choice((0.5, 1.5, 4.0, 10.0)))


def drawn_apart(rng: random.Random, seconds: float) -> tuple[ScheduledFault, ...]:
    """Draw a run's faults of the kinds APART. Half of the runs have none."""
    weights = [rng.choice((0.0, 0.0, 1.0, 3.0)) for _ in APART]
    return _drawn(rng, seconds, APART, weights, AIMS, rng.choice((3.0, 8.0))) if any(weights) else ()


def drawn_losses(rng: random.Random, seconds: float) -> tuple[ScheduledFault, ...]:
    """Draw a run's faults of the kinds LOSSES, in LOSSES_SHARE of the runs."""
    if rng.random() >= LOSSES_SHARE:
        return ()
    return _drawn(rng, seconds, LOSSES, [1.0] * len(LOSSES), AIMS, rng.choice((3.0, 8.0)))


def drawn_lost_end(rng: random.Random, seconds: float) -> tuple[ScheduledFault, ...]:
    """Draw one END_LOST, in END_LOST_SHARE of the runs, late: what a seed has found before does not depend on it."""
    if rng.random() >= END_LOST_SHARE:
        return ()
    lasts_s = rng.choice((0.0, rng.uniform(0.5, 4.0)))
    at_s = rng.uniform(0.6, 0.9) * seconds
    return (ScheduledFault(at_s, FaultKind.END_LOST, rng.choice(AIMS), lasts_s, rng.getrandbits(32)),)


def drawn_at_coordinator(
    rng: random.Random, seconds: float, aim: TargetChoice = TargetChoice.TRANSACTIONS
) -> tuple[ScheduledFault, ...]:
    """Draw the faults of coordinators. Half of the runs with clients of these coordinators have none."""
    weights = [rng.choice((0.0, 1.0)) for _ in AT_COORDINATOR]
    if rng.random() < 0.5 or not any(weights):
        return ()
    return _drawn(rng, seconds, AT_COORDINATOR, weights, (aim,), rng.choice((2.0, 5.0, 10.0)))


def drawn_for_coordinators(
    rng: random.Random, seconds: float, aim: TargetChoice = TargetChoice.TRANSACTIONS
) -> tuple[ScheduledFault, ...]:
    """Draw short faults of the leaders and coordinators, in quick succession."""
    kinds = (*AT_COORDINATOR, FaultKind.RESET, FaultKind.SLOW_LINK, FaultKind.CUT_ONE_WAY)
    weights = [rng.choice((0.0, 1.0, 2.0)) for _ in kinds]
    if not any(weights):
        weights[0] = 1.0
    aims = rng.choice(((aim,), (TargetChoice.LEADER, aim)))
    faults = _drawn(rng, seconds, kinds, weights, aims, rng.choice((0.7, 2.0)))
    return tuple(replace(fault, lasts_s=min(fault.lasts_s, SHORT_S)) for fault in faults)


def _drawn(
    rng: random.Random,
    seconds: float,
    kinds: Sequence[FaultKind],
    weights: Sequence[float],
    aims: Sequence[TargetChoice],
    interval_s: float,
) -> tuple[ScheduledFault, ...]:
    faults = []
    at_s = rng.uniform(0.0, interval_s)
    while at_s < seconds:
        kind = rng.choices(kinds, weights)[0]
        lasts_s = rng.choice((rng.uniform(0.05, 0.5), rng.uniform(0.5, 4.0), rng.uniform(2.0, 15.0)))
        faults.append(ScheduledFault(at_s, kind, rng.choice(aims), lasts_s, rng.getrandbits(32)))
        at_s += rng.expovariate(1 / interval_s)
    return tuple(faults)
