"""Cuts: a pinned range of committed offsets for each partition of some topics, by name."""

from dataclasses import dataclass
from uuid import UUID

NEVER = -1
"""The expiry of a cut that is kept until it is dropped."""


@dataclass(frozen=True, slots=True)
class CutPartition:
    """The offsets of one partition that a cut pins: from `start` up to `end`."""

    topic_id: UUID
    partition: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Cut:
    """A cut. Times are ms since 1970."""

    name: str
    created_ms: int
    expires_ms: int
    partitions: tuple[CutPartition, ...]
