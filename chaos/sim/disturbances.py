"""Network faults between one broker and others. Each function returns the peers to which `heal` restores the link."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cordwood.chaos.sim.network import SimulatedNetwork, Slowness
from cordwood.chaos.sim.schedule import FaultKind

CLIENTS_SHARE = 0.3
"""The share of cut-off brokers that lose their clients too. A deposed leader that keeps them is the worst case."""


@dataclass(frozen=True, slots=True)
class Surrounding:
    """One broker's host, by name, and its peers."""

    network: SimulatedNetwork
    name: str
    others: Sequence[str]
    clients: Sequence[str]


def cut_off(around: Surrounding, dice: random.Random) -> Sequence[str]:
    """Cut the links to all other brokers."""
    peers = [*around.others, *(around.clients if dice.random() < CLIENTS_SHARE else ())]
    for peer in peers:
        around.network.cut(around.name, peer)
    return peers


def cut_one_way(around: Surrounding, dice: random.Random) -> Sequence[str]:
    """Cut one direction of the links to some other brokers."""
    peers = dice.sample(around.others, dice.randint(1, len(around.others)))
    is_deaf = dice.random() < 0.5
    for peer in peers:
        around.network.cut_one_way(*((peer, around.name) if is_deaf else (around.name, peer)))
    return peers


def cut_clients(around: Surrounding, dice: random.Random) -> Sequence[str]:
    peers = dice.sample(around.clients, dice.randint(1, len(around.clients)))
    for peer in peers:
        around.network.cut(around.name, peer)
    return peers


def reset(around: Surrounding, dice: random.Random) -> Sequence[str]:
    """Reset connections, which the peers open again."""
    for peer in _some(around, dice):
        around.network.disconnect(around.name, peer)
    return ()


def slow_down(around: Surrounding, dice: random.Random) -> Sequence[str]:
    peers = _some(around, dice)
    slowness = Slowness(dice.choice((5.0, 30.0, 100.0)), dice.choice((2e4, 2e5, 1e7)))
    for peer in peers:
        around.network.slow_down(around.name, peer, slowness)
    return peers


def _some(around: Surrounding, dice: random.Random) -> Sequence[str]:
    return dice.sample([*around.others, *around.clients], dice.randint(1, len(around.others)))


DISTURBANCES: dict[FaultKind, Callable[[Surrounding, random.Random], Sequence[str]]] = {
    FaultKind.CUT_OFF: cut_off,
    FaultKind.CUT_ONE_WAY: cut_one_way,
    FaultKind.CUT_CLIENTS: cut_clients,
    FaultKind.RESET: reset,
    FaultKind.SLOW_LINK: slow_down,
}
