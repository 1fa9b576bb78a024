"""How long this process stood still, and so could hear nobody: silence in that time is not the others'. Pure."""


class PauseDetector:
    """To be looked at regularly. Seconds of one clock that never goes back."""

    def __init__(self, gap_max_s: float) -> None:
        """A longer gap between two looks means that the process stood still: its event loop was held up, or stopped."""
        self._gap_max_s = gap_max_s
        self._looked_at_s: float | None = None

    def look(self, now_s: float) -> float:
        """How long the process stood still since the last look; 0 where it did not."""
        gap_s = 0.0 if self._looked_at_s is None else now_s - self._looked_at_s
        self._looked_at_s = now_s
        return gap_s if gap_s > self._gap_max_s else 0.0

    def rest(self) -> None:
        """Nobody looks until the next look, which is like a first one."""
        self._looked_at_s = None
