"""Pools of memory that all clients of a broker share: how much of each kind there may be, and how much is in use.

The pools of one broker have a common limit, so that their sum is bounded, and each has some room of its own, so that
none is shut out by the others (docs/adr/0026).
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields

MIB = 1 << 20
UNLIMITED = (1 << 63) - 1

PENDING_BYTES_MAX = 64 * MIB
ANSWERS_BYTES_MAX = 48 * MIB
UNSENT_BYTES_MAX = 64 * MIB
HTTP_BODIES_BYTES_MAX = 64 * MIB
HTTP_UNSENT_BYTES_MAX = 32 * MIB
USUAL_BYTES_SPARE = 4 * MIB
"""Of receive buffers, beside the large ones: room for requests of usual size while the largest request arrives."""
DECODING_BYTES_MAX = 80 * MIB
ANSWERS_BYTES_OWN, OWN_BYTES, LEAST_BYTES_OWN = 4 * MIB, 2 * MIB, MIB
"""As much is there whatever the others hold: of answers, of what requests need that are handled, and of the rest."""
CROWDED_BYTES = 4 * MIB
"""With less than this left to all pools in common, whoever does not get on makes room for others."""
SESSION_PARTITION_BYTES = 320
"""One partition of a fetch session, its key included."""


@dataclass(slots=True)
class MemoryPool:
    """Bytes of one kind. Whoever takes or gives back memory changes `used`, so that the hot path makes no call."""

    name: str
    limit: int
    own: int = 0
    """So much of it no other pool can take."""
    others: tuple["MemoryPool", ...] = ()
    """Those that have a limit in common with it, `total`."""
    total: int = UNLIMITED
    used: int = 0
    waits: int = 0
    """How often something had to wait, or was done without, because there was no room."""
    closes: int = 0
    """Connections, and fetch sessions, that were ended to make room."""

    def has_room(self, size: int) -> bool:
        used = self.used + size
        if used > self.limit:
            return False
        return used <= self.own or used + sum(max(pool.used, pool.own) for pool in self.others) <= self.total


@dataclass(frozen=True, slots=True)
class Memory:
    """The pools of one broker."""

    receive: MemoryPool
    """Receive buffers beyond their smallest size."""
    large: MemoryPool
    """Those among them that are larger than usual."""
    pending: MemoryPool
    """Requests that are read and not answered yet, by an estimate of what handling them keeps in memory."""
    answers: MemoryPool
    """Answers that are being written."""
    decoding: MemoryPool
    """Records of batches, out of their compression."""
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

    @property
    def is_crowded(self) -> bool:
        """Whether the pools have hardly any room left in common."""
        pool = self.receive
        return sum(max(each.used, each.own) for each in (pool, *pool.others)) > pool.total - CROWDED_BYTES

    @classmethod
    def of(cls, large_bytes_max: int, session_partitions_max: int) -> "Memory":
        """The pools for what clients do. Together they have room for the largest request beside what each has alone."""
        memory = cls(
            MemoryPool("receive", large_bytes_max + USUAL_BYTES_SPARE, USUAL_BYTES_SPARE),
            MemoryPool("receive_large", large_bytes_max),
            MemoryPool("pending", PENDING_BYTES_MAX, OWN_BYTES),
            MemoryPool("answers", ANSWERS_BYTES_MAX, ANSWERS_BYTES_OWN),
            MemoryPool("decoding", DECODING_BYTES_MAX, OWN_BYTES),
            MemoryPool("unsent", UNSENT_BYTES_MAX, LEAST_BYTES_OWN),
            MemoryPool("fetch_sessions", session_partitions_max * SESSION_PARTITION_BYTES, LEAST_BYTES_OWN),
            MemoryPool("http_bodies", HTTP_BODIES_BYTES_MAX, OWN_BYTES),
            MemoryPool("http_unsent", HTTP_UNSENT_BYTES_MAX, LEAST_BYTES_OWN),
        )
        # Large receive buffers are counted among all of them.
        pools = [pool for pool in memory if pool is not memory.large]
        total = large_bytes_max + sum(pool.own for pool in pools)
        for pool in pools:
            pool.others, pool.total = tuple(other for other in pools if other is not pool), total
        return memory

    @classmethod
    def unlimited(cls) -> "Memory":
        """For connections that this broker opens itself, to brokers that it trusts or within its own process."""
        return cls(*(MemoryPool(field.name, UNLIMITED) for field in fields(cls)))
