"""Process faults of a broker: SIGKILL, SIGSTOP, and a rolling restart."""

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from cordwood.chaos.live.brokers import LiveCluster
from cordwood.chaos.live.faults.fault import (
    AT_ONCE_S,
    CLIENT_ERRORS,
    COORDINATOR_FAILOVER_S,
    NO_ACK_BY_NONE,
    NOTHING_TWICE,
    PRODUCE_AGAIN_S,
    SILENCE_S,
    TRANSACTION_OPEN_S,
    UNREAD_BY_GROUP,
    Fault,
    RoundOptions,
)
from cordwood.chaos.live.figures import ValueLimit
from cordwood.chaos.live.load_clients import TIMEOUT_MS
from cordwood.chaos.live.plan import TargetRole

LATE_S = 5.0
"""The longest time that a transaction stays open after its timeout."""
PAUSED_S = 20.0
"""Longer than a session, so that the others elect a leader meanwhile."""
REST_S = 11.0
"""librdkafka forgets a failed connection after 10 s, and until then backs off longer with each failure."""


@dataclass(frozen=True, slots=True)
class Kill(Fault):
    """SIGKILL; undone by a start on the same data."""

    cluster: LiveCluster
    name: ClassVar[str] = "kill"
    may_strike_all: ClassVar[bool] = True
    rounds: ClassVar[RoundOptions] = RoundOptions(
        limits=(
            ValueLimit(PRODUCE_AGAIN_S, 1.5, share=0.5),
            ValueLimit(PRODUCE_AGAIN_S, 2.5, share=0.99),
            NO_ACK_BY_NONE,
            NOTHING_TWICE,
        ),
        roles=(TargetRole.LEADER, TargetRole.CONTROLLER, TargetRole.EVERYONE),
        hold_s=AT_ONCE_S,
        is_survived=True,
    )

    def strike(self, victims: Sequence[int], _rng: random.Random, /) -> str:
        for victim in victims:
            self.cluster.brokers[victim].kill()
        return "killed"

    def heal(self, victims: Sequence[int], /) -> None:
        self.cluster.begin(victims)


@dataclass(frozen=True, slots=True)
class CoordinatorKill(Kill):
    """SIGKILL of the broker that is the transaction coordinator of some client."""

    name: ClassVar[str] = "coordinator-kill"
    aim: ClassVar[TargetRole | None] = TargetRole.COORDINATOR
    may_strike_all: ClassVar[bool] = False
    rounds: ClassVar[RoundOptions] = RoundOptions(
        limits=(
            ValueLimit(COORDINATOR_FAILOVER_S, 2.0),
            ValueLimit(TRANSACTION_OPEN_S, TIMEOUT_MS / 1000 + LATE_S),
            NOTHING_TWICE,
        ),
        roles=(TargetRole.COORDINATOR,),
        hold_s=AT_ONCE_S,
        is_survived=True,
        has_transactions=True,
    )


@dataclass(frozen=True, slots=True)
class Pause(Fault):
    """SIGSTOP, so that a deposed leader continues with old metadata."""

    cluster: LiveCluster
    name: ClassVar[str] = "pause"
    may_strike_all: ClassVar[bool] = True
    rounds: ClassVar[RoundOptions] = RoundOptions(
        limits=(NOTHING_TWICE,),
        roles=(TargetRole.LEADER, TargetRole.CONTROLLER),
        hold_s=(PAUSED_S, PAUSED_S),
        is_survived=True,
    )

    def strike(self, victims: Sequence[int], _rng: random.Random, /) -> str:
        for victim in victims:
            self.cluster.brokers[victim].pause()
        return "stand still"

    def heal(self, victims: Sequence[int], /) -> None:
        for victim in victims:
            self.cluster.brokers[victim].resume()


@dataclass(frozen=True, slots=True)
class RollingRestart(Fault):
    """A clean restart of every broker, the victims first, each once the one before is in sync.

    `rest_s` is the pause between two restarts.
    """

    cluster: LiveCluster
    rest_s: float = 0.0
    name: ClassVar[str] = "rolling-restart"
    is_alone: ClassVar[bool] = True
    rounds: ClassVar[RoundOptions] = RoundOptions(
        limits=(
            ValueLimit(SILENCE_S, 0.5),
            ValueLimit(CLIENT_ERRORS, 0),
            ValueLimit(UNREAD_BY_GROUP, 0),
            NOTHING_TWICE,
        ),
        hold_s=(REST_S, REST_S),
        has_default_clients=True,
    )

    def strike(self, victims: Sequence[int], _rng: random.Random, /) -> str:
        for number, id_ in enumerate((*victims, *(id_ for id_ in self.cluster.ids if id_ not in victims))):
            if number:
                time.sleep(self.rest_s)
            self.cluster.brokers[id_].stop()
            self.cluster.start([id_])
            self.cluster.wait_in_sync()
        return "restarted, and all others after it"

    def heal(self, _victims: Sequence[int], /) -> None:
        """Do nothing: all brokers run again already."""
