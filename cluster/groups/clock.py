"""Clock of group deadlines, which does not advance while the event loop is paused.

Heartbeats that arrived in a pause are read only after its timers. As no time passes for groups in a pause, it expires
nothing, and no deadline has to be postponed.
"""

import asyncio

from cordwood.cluster.metadata.pause_detector import PauseDetector

LOOK_S = 0.1
STILL_S = 2 * LOOK_S
"""Gap between two looks above which the loop has paused."""


class GroupClock:
    """The loop's time less its pauses. Pauses are detected while the clock is watched."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._paused_s = 0.0
        self._pause_detector = PauseDetector(STILL_S)
        self._looking: asyncio.TimerHandle | None = None

    def now_ms(self) -> int:
        """Return the time of the groups, in milliseconds."""
        now_s = self._loop.time()
        if self._looking is not None:
            self._paused_s += self._pause_detector.look(now_s)
        return round((now_s - self._paused_s) * 1000)

    def loop_time(self, at_ms: int) -> float:
        """Return the time of the loop at a time of the groups, if no pause comes before it."""
        return at_ms / 1000 + self._paused_s

    def watch(self) -> None:
        """Look for pauses from now on."""
        if self._looking is None:
            self._pause_detector.look(self._loop.time())
            self._looking = self._loop.call_later(LOOK_S, self._look)

    def rest(self) -> None:
        """Look for no pauses until `watch`."""
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None
            self._pause_detector.rest()

    def _look(self) -> None:
        self._paused_s += self._pause_detector.look(self._loop.time())
        self._looking = self._loop.call_later(LOOK_S, self._look)
