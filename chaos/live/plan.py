"""The plan of a run: an endless sequence of faults with victims, pauses and durations, drawn from a seed."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

QUIET_S = (0.5, 4.0)
HOLD_S = (1.0, 12.0)
JOINED_SHARE = 0.25
"""The share of faults that start while the previous fault is in progress."""


class TargetRole(Enum):
    """The role of the broker that a fault strikes."""

    LEADER = "leader"
    """A broker that leads some partition."""
    CONTROLLER = "controller"
    COORDINATOR = "coordinator"
    """The transaction coordinator of some client."""
    ANYONE = "anyone"
    EVERYONE = "everyone"
    """All brokers together, where the fault allows it; else any broker."""


AIMS = {
    TargetRole.LEADER: 4,
    TargetRole.CONTROLLER: 3,
    TargetRole.COORDINATOR: 2,
    TargetRole.ANYONE: 2,
    TargetRole.EVERYONE: 1,
}
"""The relative frequency of each aim."""


@dataclass(frozen=True, slots=True)
class Step:
    """One fault. `is_joined`: the previous fault is not undone first. Times in seconds."""

    fault: str
    aim: TargetRole
    quiet_s: float
    hold_s: float
    is_joined: bool


def steps(faults: Sequence[str], rng: random.Random) -> Iterator[Step]:
    """Yield every fault once in a random order, then every fault once in another order, without end."""
    while faults:
        for fault in rng.sample(faults, len(faults)):
            [aim] = rng.choices(list(AIMS), list(AIMS.values()))
            yield Step(fault, aim, rng.uniform(*QUIET_S), rng.uniform(*HOLD_S), rng.random() < JOINED_SHARE)
