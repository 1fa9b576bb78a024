"""The numbers that a log is made of, told apart by type."""

from typing import NewType

Offset = NewType("Offset", int)
"""A record's place in its partition. Ranges are half-open: an `end` is the next offset, never the last."""

LeaderEpoch = NewType("LeaderEpoch", int)
"""Counts the leaders of a partition; every batch carries the epoch of the leader that took it (KIP-101)."""

NO_EPOCH = LeaderEpoch(-1)
