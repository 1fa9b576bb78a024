"""The window of moves that run at the same time. Pure."""

from collections import Counter
from collections.abc import Iterable

from cordwood.cluster.balance.plan import ReplicaMove

COPIES_PER_BROKER = 8
"""Replicas that one broker receives at the same time, and partitions that one leader copies."""
REORDERED_AT_ONCE = 100
"""Moves without data that begin together: the clients of each refresh their metadata."""

Place = tuple[str, int]
"""Topic and partition."""


class Execution:
    """The moves of a plan: those that wait, those that run, and those that have ended."""

    def __init__(self, moves: Iterable[ReplicaMove], copies_per_broker: int = COPIES_PER_BROKER) -> None:
        self._waiting = list(moves)
        self._copies_max = copies_per_broker
        self.running: dict[Place, ReplicaMove] = {}
        self.ended: list[ReplicaMove] = []
        self.refused: dict[Place, str] = {}

    @property
    def is_over(self) -> bool:
        """Whether no move waits or runs."""
        return not self._waiting and not self.running

    @property
    def waiting(self) -> int:
        """The number of moves that have not begun."""
        return len(self._waiting)

    def begin(self) -> list[ReplicaMove]:
        """Return the moves that may begin now, in the order of the plan. They run from here on."""
        receiving: Counter[int] = Counter()
        sending: Counter[int] = Counter()
        for move in self.running.values():
            receiving.update(move.adding)
            sending[move.before[0]] += bool(move.adding)
        reordered = sum(not move.adding for move in self.running.values())
        begun, later = [], []
        for move in self._waiting:
            if move.adding:
                is_full = sending[move.before[0]] >= self._copies_max
                is_full |= any(receiving[broker] >= self._copies_max for broker in move.adding)
            else:
                is_full = reordered >= REORDERED_AT_ONCE
            if is_full:
                later.append(move)
                continue
            receiving.update(move.adding)
            sending[move.before[0]] += bool(move.adding)
            reordered += not move.adding
            begun.append(move)
        self._waiting = later
        self.running |= {(move.topic, move.index): move for move in begun}
        return begun

    def end(self, place: Place) -> None:
        """Record that a move no longer runs."""
        self.ended.append(self.running.pop(place))

    def refuse(self, place: Place, reason: str) -> None:
        """Record that a move was refused."""
        del self.running[place]
        self.refused[place] = reason

    def stop(self) -> list[ReplicaMove]:
        """Begin no further move. Return those that run."""
        self._waiting = []
        return list(self.running.values())
