"""Which fault comes next, whom it is aimed at, and for how long: drawn from a seed, without an end."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

QUIET_S = (0.5, 4.0)
HOLD_S = (1.0, 12.0)
JOINED_SHARE = 0.25
"""So many faults come while the one before still goes on."""


class Aim(Enum):
    """Whom a fault is to strike."""

    LEADER = "leader"
    """A broker that leads some partition."""
    CONTROLLER = "controller"
    ANYONE = "anyone"
    EVERYONE = "everyone"
    """All at once, where the fault may; else anyone."""


AIMS = {Aim.LEADER: 4, Aim.CONTROLLER: 3, Aim.ANYONE: 2, Aim.EVERYONE: 1}
"""How often each is drawn, in relation to the others."""


@dataclass(frozen=True, slots=True)
class Step:
    """One fault. `is_joined` where the one before is not healed first. Times in seconds."""

    fault: str
    aim: Aim
    quiet_s: float
    hold_s: float
    is_joined: bool


def steps(faults: Sequence[str], rng: random.Random) -> Iterator[Step]:
    """Every fault once in a random order, then every fault once more in another, and so on."""
    while faults:
        for fault in rng.sample(faults, len(faults)):
            [aim] = rng.choices(list(AIMS), list(AIMS.values()))
            yield Step(fault, aim, rng.uniform(*QUIET_S), rng.uniform(*HOLD_S), rng.random() < JOINED_SHARE)
