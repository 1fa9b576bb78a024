"""Token bucket: the amount that a rate allows, and the debt of use beyond it."""

import math
from dataclasses import dataclass

UNLIMITED = (1 << 63) - 1
"""Rate without a limit: the default of Kafka's configs."""
BURST_S = 1.0
"""The allowance of this much time may be used at once; an older one is lost."""


@dataclass(slots=True)
class TokenBucket:
    """Tokens that arrive at a rate. Pure; times are seconds of any monotonic clock.

    A charge may take more tokens than there are. The rest is a debt, which the next tokens pay.
    """

    rate: float = UNLIMITED
    """Tokens per second."""
    burst: float | None = None
    """Most tokens that are kept; None for those of `BURST_S`."""
    tokens: float = 0.0
    at: float = 0.0

    @classmethod
    def full(cls, rate: float, now: float) -> "TokenBucket":
        """Return a bucket whose burst may be used at once."""
        return cls(rate, tokens=rate * BURST_S, at=now)

    @property
    def is_unlimited(self) -> bool:
        return self.rate >= UNLIMITED

    def set_rate(self, rate: float, now: float) -> None:
        """Change the rate. A debt stays, but an unlimited rate forgets it."""
        if rate != self.rate:
            was_unlimited = self.is_unlimited
            self._fill(now)
            self.rate = rate
            if was_unlimited or self.is_unlimited:
                self.tokens = 0.0

    def available(self, now: float) -> int:
        """Return the whole tokens that there are now; negative for a debt."""
        self._fill(now)
        return UNLIMITED if self.is_unlimited else math.floor(self.tokens)

    def charge(self, amount: float, now: float) -> None:
        """Take tokens. A negative amount gives them back."""
        self._fill(now)
        if not self.is_unlimited:
            self.tokens -= amount

    def debt_s(self, now: float) -> float:
        """Return the seconds until a debt is paid; 0 without one. The rate is above 0."""
        self._fill(now)
        return max(0.0, -self.tokens / self.rate)

    def is_full(self, now: float) -> bool:
        """Return whether a new full bucket would be the same."""
        self._fill(now)
        return self.tokens >= self._most

    @property
    def _most(self) -> float:
        return self.rate * BURST_S if self.burst is None else self.burst

    def _fill(self, now: float) -> None:
        if not self.is_unlimited:
            self.tokens = min(self.tokens + (now - self.at) * self.rate, self._most)
        self.at = now
