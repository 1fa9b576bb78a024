"""Removal of expired cuts by the active controller. Pure."""

from itertools import islice

from cordwood.cluster.metadata.cuts import NEVER, DropCut
from cordwood.cluster.metadata.image import Image

INTERVAL_S = 10.0
DROPPED_MAX = 100
"""Cuts that are dropped at once."""


class CutExpiry:
    """Decides when expired cuts are dropped: within an interval of their expiry."""

    def __init__(self) -> None:
        self._due_s = 0.0

    def decide(self, image: Image, now_s: float, wall_ms: int) -> list[DropCut]:
        """Return the commands to propose now. `now_s` is the event loop's time."""
        if now_s < self._due_s:
            return []
        self._due_s = now_s + INTERVAL_S
        expired = (cut for cut in image.cuts.values() if cut.expires_ms != NEVER and cut.expires_ms <= wall_ms)
        return [DropCut(cut.name, cut.created_ms) for cut in islice(expired, DROPPED_MAX)]
