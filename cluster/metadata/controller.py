"""The active controller: fencing, unfencing, controlled shutdown and preferred leader rebalancing.

Pure: image, heartbeats and time in, commands out. The leader elections that follow from a command are computed where it
is applied (`elections.py`).
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from uuid import UUID

from cordwood.cluster.metadata.commands import (
    BeginControlledShutdown,
    BrokerId,
    Command,
    Election,
    ElectLeaders,
    FenceBroker,
    UnfenceBroker,
)
from cordwood.cluster.metadata.image import NO_LEADER, BrokerImage, Image
from cordwood.cluster.metadata.liveness import Liveness
from cordwood.cluster.metadata.quorum import Heartbeat

AUTO_BALANCE = "auto.balance"
ELECTIONS_MAX = 100
"""Preferred leader elections in one decision: the clients of every moved partition refresh their metadata."""


@dataclass(frozen=True, slots=True)
class ControllerRules:
    """The configuration of the controller."""

    session_s: float
    is_rebalancing: bool = True
    rebalance_interval_s: float = 300
    imbalance_percentage_max: int = 10
    auto_balance: str = "leaders"


class Controller:
    """The controller's state on every voter. Only the active controller calls `decide`.

    The next `decide` is due when the commands of the last one have been applied or refused, with an image that shows
    it. A command with an unknown outcome may be in the next decision again: it changes nothing the second time.
    """

    def __init__(self, rules: ControllerRules) -> None:
        self._rules = rules
        self._liveness = Liveness(rules.session_s)
        self._rebalance_at_s = 0.0

    def heard(self, heartbeat: Heartbeat, image: Image, now_s: float) -> bool:
        """Record a broker's heartbeat. Return whether it may require an immediate decision."""
        self._liveness.heard(heartbeat, now_s)
        broker = image.brokers.get(heartbeat.broker_id)
        if broker is None:
            return False
        return broker.is_fenced or (heartbeat.wants_shutdown and not broker.is_shutting_down)

    def hung_up(self, broker_id: BrokerId) -> None:
        """Record that the broker's connection with this voter has ended."""
        self._liveness.hung_up(broker_id)

    def refused(self, broker_id: BrokerId) -> None:
        """Record that the broker's host keeps refusing connections."""
        self._liveness.refused(broker_id)

    def look(self, image: Image, now_s: float) -> None:
        """Advance the broker sessions. Every voter calls this several times per session timeout."""
        self._liveness.look(image, now_s)

    def took_over(self, image: Image, now_s: float) -> None:
        """Become the active controller."""
        self._liveness.took_over(image, now_s)
        self._rebalance_at_s = now_s + self._rules.rebalance_interval_s

    def decide(self, image: Image, now_s: float) -> list[Command]:
        """Return the commands to propose now."""
        self._liveness.look(image, now_s)
        brokers = image.brokers.values()
        decided = [command for broker in brokers if (command := self._about(broker, now_s)) is not None]
        # Unfence first: a broker that returns may lead partitions that a fenced broker leaves.
        decided.sort(key=lambda command: not isinstance(command, UnfenceBroker))
        return [*decided, *self._rebalance(image, now_s)]

    def _about(self, broker: BrokerImage, now_s: float) -> Command | None:
        said = self._liveness.heartbeat(broker, now_s)
        if broker.is_fenced:
            # Before its registration was applied, the broker did not know its replicas (KIP-841).
            is_fit = said is not None and said.applied_index >= broker.epoch and not said.wants_shutdown
            return UnfenceBroker(broker.id, broker.epoch) if is_fit else None
        if self._liveness.is_silent(broker, now_s):
            return FenceBroker(broker.id, broker.epoch)
        if said is not None and said.wants_shutdown and not broker.is_shutting_down:
            return BeginControlledShutdown(broker.id, broker.epoch)
        return None

    def _rebalance(self, image: Image, now_s: float) -> list[Command]:
        is_off = image.configs_of_all_brokers.get(AUTO_BALANCE, self._rules.auto_balance) == "off"
        if is_off or not self._rules.is_rebalancing or now_s < self._rebalance_at_s:
            return []
        astray = list(_astray(image, self._rules.imbalance_percentage_max))
        if len(astray) <= ELECTIONS_MAX:
            self._rebalance_at_s = now_s + self._rules.rebalance_interval_s
        return [ElectLeaders(Election.PREFERRED, tuple(astray[:ELECTIONS_MAX]))] if astray else []


def _astray(image: Image, percentage_max: int) -> Iterator[tuple[UUID, int]]:
    """Yield partitions that their preferred replica could lead, of each broker with too many led by others."""
    preferred: dict[BrokerId, int] = defaultdict(int)
    led_by_others: dict[BrokerId, int] = defaultdict(int)
    could_be_led: dict[BrokerId, list[tuple[UUID, int]]] = defaultdict(list)
    for topic in image.topics_by_id.values():
        for index, partition in enumerate(topic.partitions):
            first = partition.replicas[0]
            preferred[first] += 1
            if partition.leader not in (first, NO_LEADER):
                led_by_others[first] += 1
                if first in partition.isr and image.is_alive(first):
                    could_be_led[first].append((topic.id, index))
    for broker_id, partitions in could_be_led.items():
        if 100 * led_by_others[broker_id] > percentage_max * preferred[broker_id]:
            yield from partitions
