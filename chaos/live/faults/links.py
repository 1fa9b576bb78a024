"""Network faults: brokers that cannot receive from others, or cannot send to them."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from cordwood.chaos.live.faults.fault import NO_ACK_BY_NONE, NOTHING_TWICE, Fault, Form, RoundOptions
from cordwood.chaos.live.plan import TargetRole

FORMS = {
    "leader-alone": ("alone", TargetRole.LEADER),
    "anyone-alone": ("alone", TargetRole.ANYONE),
    "controller-alone": ("alone", TargetRole.CONTROLLER),
    "leader-mute": ("mute", TargetRole.LEADER),
    "leader-deaf": ("deaf", TargetRole.LEADER),
    "controller-mute": ("mute", TargetRole.CONTROLLER),
    "controller-deaf": ("deaf", TargetRole.CONTROLLER),
    "two-apart": ("apart from one", TargetRole.LEADER),
    "one-way": ("mute to one", TargetRole.LEADER),
    "all-apart": ("alone", TargetRole.EVERYONE),
}
"""The way and the victim of each form in rounds. Clients reach every broker all the time."""


@dataclass(frozen=True, slots=True)
class Links:
    """Ways to cut a broker off from others, by name, and a function that undoes every cut."""

    ways: Mapping[str, Callable[[int], None]]
    restore: Callable[[], None]


@dataclass(frozen=True, slots=True)
class NetworkPartition(Fault):
    """Packets dropped in one or both directions, with all connections left open."""

    links: Links
    name: ClassVar[str] = "partition"
    may_strike_all: ClassVar[bool] = True
    rounds: ClassVar[RoundOptions] = RoundOptions(limits=(NO_ACK_BY_NONE, NOTHING_TWICE))

    def forms(self) -> Mapping[str, Form]:
        ways, restore = self.links.ways, self.links.restore
        return {
            name: Form(NetworkPartition(Links({way: ways[way]}, restore)), role) for name, (way, role) in FORMS.items()
        }

    def strike(self, victims: Sequence[int], rng: random.Random, /) -> str:
        way = rng.choice(sorted(self.links.ways))
        for victim in victims:
            self.links.ways[way](victim)
        return way

    def heal(self, _victims: Sequence[int], /) -> None:
        self.links.restore()
