"""What every live fault is: it has a name, may or may not be done now, strikes some brokers, and heals them."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

AT_ONCE_MAX = 2


@dataclass(frozen=True, slots=True)
class State:
    """What a cluster suffers from now."""

    faults: frozenset[str] = frozenset()
    victims: frozenset[int] = frozenset()
    is_alone: bool = False
    """Whether one of these faults bears no other beside it."""


class Fault(Protocol):
    """`strike` and `repair_copies` raise what the cluster raises where it does not do as it is told."""

    name: ClassVar[str]
    is_alone: ClassVar[bool] = False
    """Whether it takes what the other replicas have to make good, and so needs a cluster in sync and nothing else."""
    may_strike_all: ClassVar[bool] = False
    """Whether all brokers may be struck at once without that anything is lost."""

    def may_apply(self, state: State, victims: Sequence[int]) -> bool:
        """Whether what we promise covers this fault on top of what goes on already."""
        if self.is_alone or len(victims) > 1:
            return not state.faults
        has_room = len(state.faults) < AT_ONCE_MAX and self.name not in state.faults and not state.is_alone
        return has_room and not state.victims & set(victims)

    def strike(self, victims: Sequence[int], rng: random.Random, /) -> str:
        """Do the harm. Returns what was done, in words to go on after the victims'."""

    def heal(self, victims: Sequence[int], /) -> None:
        """Undo it. Brokers run again when this returns, and may not be in sync yet."""
