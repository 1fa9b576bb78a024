"""Progress of partition reassignments: bytes left to copy, their rate and the minutes that are left. Pure."""

import math
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

WINDOW_S = 30.0
"""Time over which a rate is measured."""

Place = tuple[str, int]
"""Topic and partition."""


@dataclass(frozen=True, slots=True)
class MoveProgress:
    """One reassignment in progress. Values that no broker reports are None."""

    bytes_total: int | None
    """Size of the replicas that are added, once they are complete."""
    bytes_left: int | None


def progress_of(replicas: Iterable[int], adding: Collection[int], sizes: Mapping[int, int]) -> MoveProgress:
    """Return the progress of a reassignment, given the sizes of its replicas by broker.

    The largest replica that existed before counts as complete.
    """
    complete = max((sizes[replica] for replica in replicas if replica not in adding and replica in sizes), default=None)
    if complete is None:
        return MoveProgress(None, None)
    left = [max(complete - sizes[replica], 0) if replica in sizes else None for replica in adding]
    known = [size for size in left if size is not None]
    return MoveProgress(complete * len(adding), sum(known) if len(known) == len(left) else None)


@dataclass(slots=True)
class MoveRates:
    """Rates of reassignments, from the remaining bytes of each at earlier times."""

    _seen: dict[Place, deque[tuple[float, int]]] = field(default_factory=dict)

    def observe(self, left: Mapping[Place, int | None], now: float) -> dict[Place, float | None]:
        """Record the remaining bytes of all reassignments. Return the bytes per second of each; None at its first time.

        `now` is in seconds of any monotonic clock.
        """
        for ended in self._seen.keys() - left.keys():
            del self._seen[ended]
        return {place: None if size is None else self._rate(place, size, now) for place, size in left.items()}

    def _rate(self, place: Place, left: int, now: float) -> float | None:
        seen = self._seen.setdefault(place, deque())
        if seen and left > seen[-1][1]:
            # Another target, or records that were produced meanwhile.
            seen.clear()
        seen.append((now, left))
        while len(seen) > 2 and seen[1][0] <= now - WINDOW_S:
            seen.popleft()
        began, before = seen[0]
        return (before - left) / (now - began) if now > began else None


def minutes_left(left: int | None, bytes_per_second: float | None) -> float | None:
    """Return the minutes until `left` bytes are copied; None if they are unknown or nothing moves."""
    if left is None or (left and not bytes_per_second):
        return None
    return math.ceil(left / bytes_per_second / 6) / 10 if left and bytes_per_second else 0.0
