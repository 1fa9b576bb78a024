"""The interface of every live fault: name, admissibility, injection and undo."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

AT_ONCE_MAX = 2


@dataclass(frozen=True, slots=True)
class ActiveFaults:
    """The faults that a cluster is under now."""

    faults: frozenset[str] = frozenset()
    victims: frozenset[int] = frozenset()
    is_alone: bool = False
    """Whether one of these faults allows no other beside it."""


class Fault(Protocol):
    """A kind of fault. `strike` and `heal` raise the cluster's errors where it does not do what it should."""

    name: ClassVar[str]
    is_alone: ClassVar[bool] = False
    """Whether the repair needs the other replicas, so that all must be in sync and no other fault in progress."""
    may_strike_all: ClassVar[bool] = False
    """Whether all brokers may be struck together without any loss."""

    def may_apply(self, state: ActiveFaults, victims: Sequence[int]) -> bool:
        """Return whether our promises hold under this fault on top of the faults in progress."""
        if self.is_alone or len(victims) > 1:
            return not state.faults
        has_room = len(state.faults) < AT_ONCE_MAX and self.name not in state.faults and not state.is_alone
        return has_room and not state.victims & set(victims)

    def strike(self, victims: Sequence[int], rng: random.Random, /) -> str:
        """Inject the fault. Return a description that continues a sentence about the victims."""

    def heal(self, victims: Sequence[int], /) -> None:
        """Undo the fault. Brokers run again when this returns, and may not be in sync yet."""
