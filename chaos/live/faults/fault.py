"""The interface of every live fault: name, admissibility, injection and undo; its form in rounds, and its limits."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol

from cordwood.chaos.live.figures import Figures, ValueLimit
from cordwood.chaos.live.plan import TargetRole

AT_ONCE_MAX = 2

PRODUCE_AGAIN_S = "produce_again_s"
"""Time from a fault to the first acknowledgement by each partition, in rounds whose victim led one."""
ACKED_BY_NONE = "partitions_that_acknowledged_without_a_broker"
"""Partitions that acknowledged a record that was sent while every broker was under the fault."""
SENT_AGAIN = "records_sent_again"
"""Records that are in the log twice, because a producer lost track of its sequence numbers."""
CLIENT_ERRORS = "client_errors"
"""Errors that consumers got."""
UNREAD_BY_GROUP = "records_that_no_group_member_read"
COORDINATOR_FAILOVER_S = "coordinator_failover_s"
"""Time from a fault to an answer to InitProducerId in each shard of `__transaction_state` that the victim led."""
COMMIT_AGAIN_S = "commit_again_s"
"""Time from a fault to the first transaction that each steady client began after it and committed."""
TRANSACTION_OPEN_S = "transaction_open_s"
"""Time from the first record of a transaction to its marker, in each partition."""
SILENCE_S = "longest_silence_s"
"""The longest time without an acknowledgement of each partition, less the time that the machine withheld."""
P99_RATIO = "p99_ratio"
"""The p99 of acknowledgements during a recovery, as a multiple of the p99 before the fault."""

AT_ONCE_S = (0.0, 0.0)
"""`hold_s` of a fault that is undone as soon as its effect is measured."""
NOTHING_TWICE = ValueLimit(SENT_AGAIN, 0)
NO_ACK_BY_NONE = ValueLimit(ACKED_BY_NONE, 0)


@dataclass(frozen=True, slots=True)
class ActiveFaults:
    """The faults that a cluster is under now."""

    faults: frozenset[str] = frozenset()
    victims: frozenset[int] = frozenset()
    is_alone: bool = False
    """Whether one of these faults allows no other beside it."""


@dataclass(frozen=True, slots=True)
class RoundOptions:
    """How a fault runs in rounds. Times in seconds, minimum and maximum."""

    limits: tuple[ValueLimit, ...] = ()
    """The limits of a run besides the guarantees."""
    roles: tuple[TargetRole, ...] = (TargetRole.ANYONE,)
    """The victims' roles, in turn."""
    calm_s: tuple[float, float] = (0.2, 1.0)
    """Undisturbed load before the fault."""
    hold_s: tuple[float, float] = (3.0, 8.0)
    """How long the fault lasts."""
    is_survived: bool = False
    """Whether every partition has to accept records while one of three brokers is under the fault."""
    has_transactions: bool = False
    """Whether transactional clients run beside the others."""
    has_default_clients: bool = False
    """Whether clients have librdkafka's default settings instead of short timeouts."""
    segment_bytes: int = 1 << 20
    preload_mb: int = 0
    """Data that each broker holds before the first round."""
    preloaded_segment_bytes: int = 1 << 30


class Form(NamedTuple):
    """A fault in one of its forms, and the role of its victim."""

    fault: "Fault"
    role: TargetRole


class Fault(Protocol):
    """A kind of fault. `strike` and `heal` raise the cluster's errors where it does not do what it should."""

    name: ClassVar[str]
    is_alone: ClassVar[bool] = False
    """Whether the repair needs the other replicas, so that all must be in sync and no other fault in progress."""
    aim: ClassVar[TargetRole | None] = None
    """The role of each victim, whatever the plan aims at."""
    may_strike_all: ClassVar[bool] = False
    """Whether all brokers may be struck together without any loss."""
    rounds: ClassVar[RoundOptions] = RoundOptions()

    def may_apply(self, state: ActiveFaults, victims: Sequence[int]) -> bool:
        """Return whether our promises hold under this fault on top of the faults in progress."""
        if self.is_alone or len(victims) > 1:
            return not state.faults
        has_room = len(state.faults) < AT_ONCE_MAX and self.name not in state.faults and not state.is_alone
        return has_room and not state.victims & set(victims)

    def forms(self) -> Mapping[str, Form]:
        """Return the forms that rounds take in turn, by name."""
        return {role.value: Form(self, role) for role in self.rounds.roles}

    def strike(self, victims: Sequence[int], rng: random.Random, /) -> str:
        """Inject the fault. Return a description that continues a sentence about the victims."""

    def heal(self, victims: Sequence[int], /) -> None:
        """Undo the fault. Brokers run again when this returns, and may not be in sync yet."""

    def settle(self, _victims: Sequence[int], _figures: Figures, /) -> None:
        """Wait for the repairs that this fault alone requires, and measure them. The fault has been undone."""
        return
