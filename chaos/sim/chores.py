"""What the administrator of a simulated world is going to do: drawn from the seed, like the faults."""

import random
from dataclasses import dataclass
from enum import Enum

SIDE_TOPIC, LOSSY_TOPIC = "side", "lossy"
"""Topics beside the one whose records are all accounted for. Of the second even committed records may be lost."""


class Chore(Enum):
    """A thing that administrators do. The value is the name under which it is counted."""

    TOPIC_MADE = "topic-made"
    TOPIC_DELETED = "topic-deleted"
    PARTITIONS_ADDED = "partitions-added"
    LOSSY_TOPIC_MADE = "lossy-topic-made"
    RECORDS_DELETED = "delete-records"
    REPLICAS_MOVED = "replicas-moved"
    PREFERRED_ELECTION = "preferred-election"
    UNCLEAN_ELECTION = "unclean-election"
    TOPIC_CONFIG = "topic-config-changed"
    BROKER_CONFIG = "broker-config-changed"
    MIN_ISR = "min-isr-changed"
    FLUSH_POLICY = "flush-policy-changed"
    UNREGISTERED = "broker-unregistered"


@dataclass(frozen=True, slots=True)
class Due:
    """One of them. What it still has to choose it chooses by `dice`."""

    at_s: float
    chore: Chore
    dice: int


def drawn_chores(rng: random.Random, seconds: float) -> tuple[Due, ...]:
    """A world's own mix, in the order in which they are due; in some worlds nobody administers anything."""
    interval_s = rng.choice((0.0, 1.0, 2.0, 5.0))
    weights = [rng.choice((0.0, 1.0, 1.0, 3.0)) for _ in Chore]
    if not interval_s or not any(weights):
        return ()
    chores = []
    at_s = rng.uniform(0.0, interval_s)
    while at_s < seconds:
        chores.append(Due(at_s, rng.choices(tuple(Chore), weights)[0], rng.getrandbits(32)))
        at_s += rng.expovariate(1 / interval_s)
    return tuple(chores)
