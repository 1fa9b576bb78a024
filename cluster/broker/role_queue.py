"""Queue of the replicas that take their role: first those that lead from now on, last those that have to be opened."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from itertools import islice
from uuid import UUID


class Urgency(IntEnum):
    """The order in which queued replicas take their role."""

    LEADS = 0
    """The replica leads from now on: clients and followers wait for it."""
    IS_OPEN = 1
    """It follows another leader, or its in-sync set or its configs have changed."""
    IS_TO_BE_OPENED = 2


COSTS: Mapping[Urgency, int] = {Urgency.LEADS: 2, Urgency.IS_OPEN: 1, Urgency.IS_TO_BE_OPENED: 4}
"""Cost of one replica, in units of some 15 microseconds."""


class RoleQueue:
    """Queued replicas as topic ids and partition indexes. A replica may be queued several times."""

    def __init__(self) -> None:
        self._by_urgency: dict[Urgency, deque[tuple[UUID, Iterator[int]]]] = {urgency: deque() for urgency in Urgency}

    def __bool__(self) -> bool:
        return any(self._by_urgency.values())

    def add(self, urgency: Urgency, topic_id: UUID, indexes: Iterable[int]) -> None:
        """Queue partitions of a topic. `indexes` is read when they are taken."""
        self._by_urgency[urgency].append((topic_id, iter(indexes)))

    def has(self, urgency: Urgency) -> bool:
        return bool(self._by_urgency[urgency])

    def take(self, room: int) -> tuple[UUID, list[int], int] | None:
        """Remove the first of the most urgent replicas, all of one topic. Return them with their cost.

        The cost is within `room`, unless it is that of a single replica. Return None if nothing is queued.
        """
        for urgency, queued in self._by_urgency.items():
            cost = COSTS[urgency]
            most = max(room // cost, 1)
            while queued:
                topic_id, indexes = queued[0]
                taken = list(islice(indexes, most))
                if len(taken) < most:
                    queued.popleft()
                if taken:
                    return topic_id, taken, cost * len(taken)
        return None

    def clear(self) -> None:
        for queued in self._by_urgency.values():
            queued.clear()
