"""Faults of the network: brokers that no longer hear the others, or are no longer heard."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from cordwood.chaos.live.faults.fault import Fault


@dataclass(frozen=True, slots=True)
class Links:
    """Ways to cut a broker off from all others, by what it is then, and the way to mend every cut."""

    ways: Mapping[str, Callable[[int], None]]
    mend: Callable[[], None]


@dataclass(frozen=True, slots=True)
class NetworkPartition(Fault):
    """Nothing arrives, and no connection is closed: both ways or one."""

    links: Links
    name: ClassVar[str] = "partition"
    may_strike_all: ClassVar[bool] = True

    def strike(self, victims: Sequence[int], rng: random.Random, /) -> str:
        way = rng.choice(sorted(self.links.ways))
        for victim in victims:
            self.links.ways[way](victim)
        return way

    def heal(self, _victims: Sequence[int], /) -> None:
        self.links.mend()
