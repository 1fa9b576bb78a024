"""Removal of expired delegation tokens and cuts by the active controller. Pure."""

from itertools import islice

from cordwood.cluster.metadata.commands import RemoveDelegationTokens
from cordwood.cluster.metadata.cuts import DropCut
from cordwood.cluster.metadata.image import Image
from cordwood.storage.types import NEVER_EXPIRES

REMOVED_MAX = 1000
"""Tokens in one command: every broker applies it in one step."""
CUTS_INTERVAL_S = 10.0
DROPPED_MAX = 100
"""Cuts that are dropped at once."""


class TokenExpiry:
    """Decides when expired tokens are removed: within an interval of their expiry, several at once."""

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._due_s = 0.0

    def decide(self, image: Image, now_s: float, wall_ms: int) -> RemoveDelegationTokens | None:
        """Return the command to propose now, if any. `now_s` is the event loop's time."""
        if now_s < self._due_s:
            return None
        expired = [
            (one.token_id, one.expiry_ms) for one in image.delegation_tokens.values() if one.expiry_ms <= wall_ms
        ]
        if len(expired) <= REMOVED_MAX:
            self._due_s = now_s + self._interval_s
        return RemoveDelegationTokens(tuple(expired[:REMOVED_MAX])) if expired else None


class CutExpiry:
    """Decides when expired cuts are dropped: within an interval of their expiry."""

    def __init__(self) -> None:
        self._due_s = 0.0

    def decide(self, image: Image, now_s: float, wall_ms: int) -> list[DropCut]:
        """Return the commands to propose now. `now_s` is the event loop's time."""
        if now_s < self._due_s:
            return []
        self._due_s = now_s + CUTS_INTERVAL_S
        expired = (cut for cut in image.cuts.values() if cut.expires_ms != NEVER_EXPIRES and cut.expires_ms <= wall_ms)
        return [DropCut(cut.name, cut.created_ms) for cut in islice(expired, DROPPED_MAX)]
