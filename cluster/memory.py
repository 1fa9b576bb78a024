"""Pools of memory that all clients of a broker share: how much of each kind there may be, and how much is in use."""

from collections.abc import Iterator
from dataclasses import dataclass, fields

MIB = 1 << 20
UNLIMITED = (1 << 63) - 1

PENDING_BYTES_MAX = 64 * MIB
UNSENT_BYTES_MAX = 64 * MIB
HTTP_BODIES_BYTES_MAX = 64 * MIB
HTTP_UNSENT_BYTES_MAX = 32 * MIB
USUAL_BYTES_SPARE = 8 * MIB
"""Of receive buffers, beside the large ones: room for requests of usual size while the largest request arrives."""
SESSION_PARTITION_BYTES = 320
"""One partition of a fetch session, its key included."""


@dataclass(slots=True)
class MemoryPool:
    """Bytes of one kind. Whoever takes or gives back memory changes `used`, so that the hot path makes no call."""

    name: str
    limit: int
    used: int = 0
    waits: int = 0
    """How often something had to wait, or was done without, because there was no room."""
    closes: int = 0
    """Connections, and fetch sessions, that were ended to make room."""

    def has_room(self, size: int) -> bool:
        return self.used + size <= self.limit


@dataclass(frozen=True, slots=True)
class Memory:
    """The pools of one broker."""

    receive: MemoryPool
    """Receive buffers beyond their smallest size."""
    large: MemoryPool
    """Those among them that are larger than usual."""
    pending: MemoryPool
    """Requests that are read and not answered yet, by an estimate of what handling them keeps in memory."""
    unsent: MemoryPool
    """Answers that their clients do not take."""
    sessions: MemoryPool
    """Partitions of fetch sessions (KIP-227)."""
    http_bodies: MemoryPool
    """Bodies of HTTP requests, until what they ask for has been done."""
    http_unsent: MemoryPool
    """Answers over HTTP that their clients do not take."""

    def __iter__(self) -> Iterator[MemoryPool]:
        return (getattr(self, field.name) for field in fields(self))

    @classmethod
    def of(cls, large_bytes_max: int, session_partitions_max: int) -> "Memory":
        """The pools for what clients do."""
        return cls(
            MemoryPool("receive", large_bytes_max + USUAL_BYTES_SPARE),
            MemoryPool("receive_large", large_bytes_max),
            MemoryPool("pending", PENDING_BYTES_MAX),
            MemoryPool("unsent", UNSENT_BYTES_MAX),
            MemoryPool("fetch_sessions", session_partitions_max * SESSION_PARTITION_BYTES),
            MemoryPool("http_bodies", HTTP_BODIES_BYTES_MAX),
            MemoryPool("http_unsent", HTTP_UNSENT_BYTES_MAX),
        )

    @classmethod
    def unlimited(cls) -> "Memory":
        """For connections that this broker opens itself, to brokers that it trusts or within its own process."""
        return cls(*(MemoryPool(field.name, UNLIMITED) for field in fields(cls)))
