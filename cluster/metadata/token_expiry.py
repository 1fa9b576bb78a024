"""Removal of expired delegation tokens by the active controller. Pure."""

from cordwood.cluster.metadata.commands import RemoveDelegationTokens
from cordwood.cluster.metadata.image import Image

REMOVED_MAX = 1000
"""Tokens in one command: every broker applies it in one step."""


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
