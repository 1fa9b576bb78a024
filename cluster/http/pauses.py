"""What stops everybody at once: the loop that is busy with one thing, and the garbage collector."""

import asyncio
import gc
from typing import Literal

from cordwood.replication.measures import SECONDS, Clock, Histogram

INTERVAL_S = 0.1


class Pauses:
    """Measured between `start` and `stop`."""

    def __init__(self, clock: Clock) -> None:
        self.lateness_s, self.collections_s = Histogram(SECONDS), Histogram(SECONDS)
        self._clock = clock
        self._timer: asyncio.TimerHandle | None = None
        self._due = self._collection_began = 0.0

    def start(self) -> None:
        """Begin, on the running loop."""
        gc.callbacks.append(self._collected)
        self._wind_up()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            gc.callbacks.remove(self._collected)
            self._timer = None

    def _wind_up(self) -> None:
        self._due = self._clock() + INTERVAL_S
        self._timer = asyncio.get_running_loop().call_later(INTERVAL_S, self._ring)

    def _ring(self) -> None:
        self.lateness_s.add(max(0.0, self._clock() - self._due))
        self._wind_up()

    def _collected(self, phase: Literal["start", "stop"], _told: dict[str, int]) -> None:
        if phase == "start":
            self._collection_began = self._clock()
        else:
            self.collections_s.add(self._clock() - self._collection_began)
