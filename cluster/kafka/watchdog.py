"""Watchdog of the event loop: measures stalls, and logs the request that held the loop."""

import asyncio

import structlog

from cordwood.cluster.kafka.request_measures import RequestMeasures
from cordwood.replication.measures import SECONDS, Clock, Histogram

INTERVAL_S = 0.1
STALL_S = 0.1
"""Lateness of a timer that counts as a stall and is logged. All clients of the broker wait during a stall."""
CULPRIT_SHARE = 0.5
"""Share of a stall that a request must have held the loop for, to be named in the log."""

_events = structlog.get_logger("loop")


class Watchdog:
    """A watchdog, from `start` to `stop`. It finds nothing in the simulator, where code takes no time."""

    def __init__(self, clock: Clock, requests: RequestMeasures) -> None:
        self.lateness_s = Histogram(SECONDS)
        self.stalls = 0
        self._clock, self._requests = clock, requests
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0

    def start(self) -> None:
        """Begin, on the running loop."""
        self._requests.longest_held()
        self._wind_up()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wind_up(self) -> None:
        self._due = self._clock() + INTERVAL_S
        self._timer = asyncio.get_running_loop().call_later(INTERVAL_S, self._ring)

    def _ring(self) -> None:
        late_s = max(0.0, self._clock() - self._due)
        self.lateness_s.add(late_s)
        longest = self._requests.longest_held()
        if late_s >= STALL_S:
            self.stalls += 1
            if longest is not None and longest.seconds >= CULPRIT_SHARE * late_s:
                _events.warning(
                    "loop.stalled",
                    seconds=round(late_s, 3),
                    api=longest.api,
                    client=longest.client,
                    client_id=longest.client_id,
                    request=longest.correlation_id,
                    held_seconds=round(longest.seconds, 3),
                )
            else:
                _events.warning(
                    "loop.stalled",
                    seconds=round(late_s, 3),
                    api="none: no single request blocked the loop for most of that time",
                )
        self._wind_up()
