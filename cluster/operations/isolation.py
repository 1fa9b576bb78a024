"""Isolation level of a reader (KIP-98), as users name it."""

from enum import Enum


class IsolationLevel(Enum):
    """Which records a reader sees."""

    READ_COMMITTED = "read_committed"
    """Records up to the first transaction that is undecided, without those of aborted transactions."""
    READ_UNCOMMITTED = "read_uncommitted"
    """All committed records, of transactions too."""

    @property
    def level(self) -> int:
        """The isolation level in Fetch and ListOffsets requests."""
        return int(self is IsolationLevel.READ_COMMITTED)
