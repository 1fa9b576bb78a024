"""How often and how long something is tried again."""

import time

from cordwood.spark.client.connection import ConnectionFailed
from cordwood.spark.errors import Unavailable

FIRST_PAUSE_S = 0.02
PAUSE_S_MAX = 1.0


class Patience:
    """Begins with the first trouble, ends after a time without progress, and starts anew with `progressed`."""

    def __init__(self, what: str, timeout_ms: int) -> None:
        """`what` was wanted, in words that stand behind "could not"."""
        self._what, self._timeout_s = what, timeout_ms / 1000
        self.progressed()

    def progressed(self) -> None:
        """It went well: the next trouble has all the time again."""
        self._deadline: float | None = None
        self._pause_s = FIRST_PAUSE_S

    def wait(self, trouble: ConnectionFailed) -> None:
        """Let some time pass. Raises Unavailable with the trouble's words where there has been enough."""
        now = time.monotonic()
        if self._deadline is None:
            self._deadline = now + self._timeout_s
        if now + self._pause_s > self._deadline:
            raise Unavailable(f"could not {self._what} within {self._timeout_s:g} s: {trouble}") from trouble
        time.sleep(self._pause_s)
        self._pause_s = min(2 * self._pause_s, PAUSE_S_MAX)
