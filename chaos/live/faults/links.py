"""Network faults: brokers that cannot receive from the others, or cannot send to them."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from cordwood.chaos.live.faults.fault import Fault


@dataclass(frozen=True, slots=True)
class Links:
    """Ways to cut a broker off from all others, by name, and a function that undoes every cut."""

    ways: Mapping[str, Callable[[int], None]]
    restore: Callable[[], None]


@dataclass(frozen=True, slots=True)
class NetworkPartition(Fault):
    """Packets dropped in one or both directions, with all connections left open."""

    links: Links
    name: ClassVar[str] = "partition"
    may_strike_all: ClassVar[bool] = True

    def strike(self, victims: Sequence[int], rng: random.Random, /) -> str:
        way = rng.choice(sorted(self.links.ways))
        for victim in victims:
            self.links.ways[way](victim)
        return way

    def heal(self, _victims: Sequence[int], /) -> None:
        self.links.restore()
