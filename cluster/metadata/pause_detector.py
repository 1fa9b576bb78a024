"""Detection of pauses of this process: silence of others during a pause is not their failure. Pure."""


class PauseDetector:
    """A detector. Call `look` regularly, with seconds of one monotonic clock."""

    def __init__(self, gap_max_s: float) -> None:
        """A gap of more than `gap_max_s` between two looks is a pause: the loop was held up, or the process stopped."""
        self._gap_max_s = gap_max_s
        self._looked_at_s: float | None = None

    def look(self, now_s: float) -> float:
        """Return the length of the pause since the last look; 0 without one."""
        gap_s = 0.0 if self._looked_at_s is None else now_s - self._looked_at_s
        self._looked_at_s = now_s
        return gap_s if gap_s > self._gap_max_s else 0.0

    def rest(self) -> None:
        """Stop looking. The next look is like the first one."""
        self._looked_at_s = None
