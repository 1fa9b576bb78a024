"""Offset and leader epoch types of a log."""

from typing import NewType

Offset = NewType("Offset", int)
"""Offset of a record in its partition. Ranges are half-open: an `end` is the next offset, never the last."""

LeaderEpoch = NewType("LeaderEpoch", int)
"""Count of a partition's leaders. Each batch has the epoch of the leader that appended it (KIP-101)."""

NO_EPOCH = LeaderEpoch(-1)
NO_OFFSET = Offset(-1)
