"""auto.balance=all: which replicas the active controller moves by itself, and when. Pure."""

from collections.abc import Mapping

from cordwood.cluster.balance import planner
from cordwood.cluster.balance.execution import Execution
from cordwood.cluster.balance.load import ClusterLoad
from cordwood.cluster.balance.plan import BalancePlan
from cordwood.cluster.metadata.commands import BrokerId, ReassignPartition
from cordwood.cluster.metadata.controller import AUTO_BALANCE
from cordwood.cluster.metadata.elections import is_moving
from cordwood.cluster.metadata.image import Image
from cordwood.storage.steps import Steps

COPIES_PER_BROKER = 4
"""Replicas that one broker receives at the same time: clients come first."""


class AutoBalance:
    """The grace period: nothing moves before the set of live brokers has been the same for a while."""

    def __init__(self, grace_s: float) -> None:
        self._grace_s = grace_s
        self._alive: frozenset[BrokerId] | None = None
        self._since_s = 0.0

    def reset(self) -> None:
        """Begin the grace period again: an active controller has not seen yet how long the brokers have been there."""
        self._alive = None

    def is_due(self, image: Image, now_s: float) -> bool:
        """Return whether a plan may be made now: the brokers are settled, and nothing is being moved."""
        alive = frozenset(broker.id for broker in image.brokers.values() if broker.is_alive)
        if alive != self._alive:
            self._alive, self._since_s = alive, now_s
        if now_s - self._since_s < self._grace_s:
            return False
        return not any(is_moving(partition) for topic in image.topics_by_id.values() for partition in topic.partitions)


def next_moves(image: Image, load: ClusterLoad) -> Steps[list[ReassignPartition]]:
    """Return the moves to begin now, in steps. The next ones are planned anew once these have ended.

    First the replicas of brokers that are down: their partitions have one copy less. Then the bytes are evened out.
    """
    down = [broker.broker_id for broker in load.brokers if not broker.is_alive]
    plan: BalancePlan = yield from planner.drain(load, down)
    if not any(move.adding for move in plan.moves):
        plan = yield from planner.balance(load)
    return [
        ReassignPartition(topic.id, move.index, tuple(map(BrokerId, move.after)))
        for move in Execution(plan.moves, COPIES_PER_BROKER).begin()
        for topic in (image.topics_by_name.get(move.topic),)
        if topic is not None
    ]


def mode_of(image: Image, configured: str, own: Mapping[str, str]) -> str:
    """Return the value of auto.balance in force: of this broker, of all brokers, or of its configuration."""
    return own.get(AUTO_BALANCE) or image.configs_of_all_brokers.get(AUTO_BALANCE) or configured
