"""The schedule of the administrator, drawn from the seed like the faults."""

import random
from dataclasses import dataclass
from enum import Enum

SIDE_TOPIC, LOSSY_TOPIC = "side", "lossy"
"""Topics besides TOPIC, the one with a full history. LOSSY_TOPIC may lose even committed records."""


class Chore(Enum):
    """A kind of administrative action. The value is the name under which it is counted."""

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
    DIRECTORIES_CHANGED = "log-directories-changed"


DRAWN = tuple(chore for chore in Chore if chore is not Chore.DIRECTORIES_CHANGED)


@dataclass(frozen=True, slots=True)
class Due:
    """One scheduled chore. `dice` seeds its remaining random choices."""

    at_s: float
    chore: Chore
    dice: int


def drawn_chores(rng: random.Random, seconds: float) -> tuple[Due, ...]:
    """Draw a run's own mix, in due order. Some runs have no administrator."""
    interval_s = rng.choice((0.0, 1.0, 2.0, 5.0))
    weights = [rng.choice((0.0, 1.0, 1.0, 3.0)) for _ in DRAWN]
    if not interval_s or not any(weights):
        return ()
    chores = []
    at_s = rng.uniform(0.0, interval_s)
    while at_s < seconds:
        chores.append(Due(at_s, rng.choices(DRAWN, weights)[0], rng.getrandbits(32)))
        at_s += rng.expovariate(1 / interval_s)
    return tuple(chores)


def drawn_directory_changes(rng: random.Random, seconds: float) -> tuple[Due, ...]:
    """Draw the moves between log directories of a run whose brokers have several."""
    interval_s = rng.choice((0.5, 2.0, 8.0))
    count = int(seconds / interval_s)
    times = sorted(rng.uniform(0.0, seconds) for _ in range(count))
    return tuple(Due(at_s, Chore.DIRECTORIES_CHANGED, rng.getrandbits(32)) for at_s in times)
