"""Token bucket of one limit: an allowance that fills at the limit's rate, and the debt of use beyond it."""

WINDOW_S = 1.0
"""Use of this much time may come at once: the allowance of a client that was idle."""


class Window:
    """A token bucket. A request may overdraw it: then the group is in debt, for as long as the rate takes to pay it.

    `now` is in seconds of one monotonic clock.
    """

    __slots__ = ("_allowance", "_at", "_rate")

    def __init__(self, rate: float, now: float) -> None:
        self._rate, self._allowance, self._at = rate, rate * WINDOW_S, now

    def change(self, rate: float, now: float) -> None:
        """Continue at another rate. The debt from the former rate stays."""
        if rate != self._rate:
            self._fill(now)
            self._rate, self._allowance = rate, min(self._allowance, rate * WINDOW_S)

    def charge(self, amount: float, now: float) -> None:
        """Take `amount` from the allowance. A negative amount gives it back."""
        self._fill(now)
        self._allowance -= amount

    def debt_s(self, now: float) -> float:
        """Return the seconds until the debt is paid; 0 without one."""
        self._fill(now)
        return max(0.0, -self._allowance / self._rate)

    def is_full(self, now: float) -> bool:
        """Return whether the group has used nothing lately: a new window would be the same."""
        self._fill(now)
        return self._allowance >= self._rate * WINDOW_S

    def _fill(self, now: float) -> None:
        filled = self._allowance + (now - self._at) * self._rate
        self._allowance, self._at = min(filled, self._rate * WINDOW_S), now
