"""Process faults of a broker: SIGKILL, SIGSTOP, and a rolling restart."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from cordwood.chaos.live.brokers import LiveCluster
from cordwood.chaos.live.faults.fault import Fault


@dataclass(frozen=True, slots=True)
class Kill(Fault):
    """SIGKILL; undone by a start on the same data."""

    cluster: LiveCluster
    name: ClassVar[str] = "kill"
    may_strike_all: ClassVar[bool] = True

    def strike(self, victims: Sequence[int], _rng: random.Random, /) -> str:
        for victim in victims:
            self.cluster.brokers[victim].kill()
        return "killed"

    def heal(self, victims: Sequence[int], /) -> None:
        self.cluster.begin(victims)


@dataclass(frozen=True, slots=True)
class Pause(Fault):
    """SIGSTOP, so that a leader comes back that does not know it was deposed."""

    cluster: LiveCluster
    name: ClassVar[str] = "pause"
    may_strike_all: ClassVar[bool] = True

    def strike(self, victims: Sequence[int], _rng: random.Random, /) -> str:
        for victim in victims:
            self.cluster.brokers[victim].pause()
        return "stand still"

    def heal(self, victims: Sequence[int], /) -> None:
        for victim in victims:
            self.cluster.brokers[victim].resume()


@dataclass(frozen=True, slots=True)
class RollingRestart(Fault):
    """A clean restart of every broker, the victims first, each once the one before is in sync."""

    cluster: LiveCluster
    name: ClassVar[str] = "rolling-restart"
    is_alone: ClassVar[bool] = True

    def strike(self, victims: Sequence[int], _rng: random.Random, /) -> str:
        for id_ in (*victims, *(id_ for id_ in self.cluster.ids if id_ not in victims)):
            self.cluster.brokers[id_].stop()
            self.cluster.start([id_])
            self.cluster.wait_in_sync()
        return "restarted, and all others after it"

    def heal(self, _victims: Sequence[int], /) -> None:
        """Do nothing: all brokers run again already."""
