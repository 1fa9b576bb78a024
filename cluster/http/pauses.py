"""Garbage collector pauses of the process."""

import gc
from typing import Literal

from cordwood.replication.measures import SECONDS, Clock, Histogram


class Pauses:
    """The pauses between `start` and `stop`."""

    def __init__(self, clock: Clock) -> None:
        self.collections_s = Histogram(SECONDS)
        self._clock = clock
        self._collection_began = 0.0

    def start(self) -> None:
        gc.callbacks.append(self._collected)

    def stop(self) -> None:
        if self._collected in gc.callbacks:
            gc.callbacks.remove(self._collected)

    def _collected(self, phase: Literal["start", "stop"], _told: dict[str, int]) -> None:
        if phase == "start":
            self._collection_began = self._clock()
        else:
            self.collections_s.add(self._clock() - self._collection_began)
