"""Faults of the object store: drawn from a seed, and struck at their times (`object_store.py` has the table)."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from cordwood.chaos.sim.object_store import SimulatedObjects


class StoreFaultKind(Enum):
    """Kinds of faults. The value is the name in reports."""

    SLOW = "store-slow"
    REFUSES = "store-refuses"
    LOSES_ANSWERS = "store-loses-answers"
    LISTS_LAG = "store-lists-lag"
    STOPPED = "store-stopped"


@dataclass(frozen=True, slots=True)
class StoreFault:
    """One scheduled fault."""

    at_s: float
    kind: StoreFaultKind
    lasts_s: float
    share: float
    """The share of requests that it concerns, if it does not concern all."""


def drawn_store_faults(rng: random.Random, seconds: float) -> tuple[StoreFault, ...]:
    """Draw a run's own mix of faults, in the order in which they strike."""
    weights = [rng.choice((0.0, 1.0, 3.0)) for _ in StoreFaultKind]
    if not any(weights):
        return ()
    faults, interval_s = [], rng.choice((2.0, 5.0, 10.0))
    at_s = rng.uniform(0.0, interval_s)
    while at_s < seconds:
        kind = rng.choices(list(StoreFaultKind), weights)[0]
        lasts_s = rng.choice((rng.uniform(0.1, 1.0), rng.uniform(1.0, 8.0)))
        faults.append(StoreFault(at_s, kind, lasts_s, rng.choice((0.2, 0.5, 0.9))))
        at_s += rng.expovariate(1 / interval_s)
    return tuple(faults)


def strike(objects: SimulatedObjects, fault: StoreFault, later: Callable[[float, Callable[[], object]], None]) -> None:
    """Begin a fault now, and end it at its time. A fault that is over ends others of its kind, too."""
    attribute, value, usual = {
        StoreFaultKind.SLOW: ("is_slow", True, False),
        StoreFaultKind.REFUSES: ("refusals", fault.share, 0.0),
        StoreFaultKind.LOSES_ANSWERS: ("lost_answers", fault.share, 0.0),
        StoreFaultKind.LISTS_LAG: ("lists_lag", True, False),
        StoreFaultKind.STOPPED: ("is_stopped", True, False),
    }[fault.kind]
    setattr(objects, attribute, value)
    later(fault.lasts_s, lambda: setattr(objects, attribute, usual))
