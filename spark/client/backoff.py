"""Retry policy: exponential backoff with a timeout without progress."""

import time

from cordwood.spark.client.connection import ConnectionFailed
from cordwood.spark.errors import Unavailable

FIRST_PAUSE_S = 0.02
PAUSE_S_MAX = 1.0


class Backoff:
    """The backoff of one operation. The timeout begins with the first failure; `progressed` resets it."""

    def __init__(self, what: str, timeout_ms: int) -> None:
        """`what` describes the operation in words that follow "could not"."""
        self._what, self._timeout_s = what, timeout_ms / 1000
        self.progressed()

    def progressed(self) -> None:
        """Reset the backoff and the timeout after a success."""
        self._deadline: float | None = None
        self._pause_s = FIRST_PAUSE_S

    def wait(self, failure: ConnectionFailed) -> None:
        """Sleep before the next attempt. Raises Unavailable with the last failure after the timeout."""
        now = time.monotonic()
        if self._deadline is None:
            self._deadline = now + self._timeout_s
        if now + self._pause_s > self._deadline:
            raise Unavailable(f"could not {self._what} within {self._timeout_s:g} s: {failure}") from failure
        time.sleep(self._pause_s)
        self._pause_s = min(2 * self._pause_s, PAUSE_S_MAX)
