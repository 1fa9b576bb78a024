"""Memory pools that all clients of a broker share: the limit and the use of each kind of memory.

The pools of one broker have a common limit, which bounds their sum. Each has some reserved room, so that the others do
not shut it out. Only a very large request may exceed the common limit (docs/adr/0026).
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
COMMON_BYTES, COMMON_SHARE = 64 * MIB, 0.625
"""Room that the pools have in common: a share of that of the largest request, and enough to decompress any batch."""
USUAL_BYTES_SPARE = 4 * MIB
"""Receive buffers besides the large ones: room for requests of usual size while the largest request arrives."""
DECODING_BYTES_MAX, DECODING_BYTES_OWN = 80 * MIB, 16 * MIB
"""Room to decompress the largest batch, and beside it for one search or read, which must not wait for that batch."""
ANSWERS_BYTES_OWN, OWN_BYTES, LEAST_BYTES_OWN = 4 * MIB, 2 * MIB, MIB
"""Reserved room of pools: of answers, of requests that are handled, and of the rest."""
CROWDED_BYTES = 4 * MIB
"""Common room below which connections that make no progress are closed."""
SESSION_PARTITION_BYTES = 320
"""One partition of a fetch session, its key included."""


@dataclass(slots=True)
class MemoryPool:
    """Bytes of one kind. Callers change `used` themselves, so that the hot path makes no call."""

    name: str
    limit: int
    own: int = 0
    """Bytes reserved for this pool."""
    others: tuple["MemoryPool", ...] = ()
    """Pools that share the common limit `total` with this one."""
    total: int = UNLIMITED
    above: int = 0
    """Bytes above the common limit for requests that would not fit into it."""
    used: int = 0
    waits: int = 0
    """Times that work waited, or went without the memory, for lack of room."""
    closes: int = 0
    """Connections and fetch sessions closed to make room."""

    def has_room(self, size: int, above: int = 0) -> bool:
        """Return whether `size` more bytes fit, with `above` bytes added to the common limit."""
        used = self.used + size
        if used > self.limit:
            return False
        return used <= self.own or used + sum(max(pool.used, pool.own) for pool in self.others) <= self.total + above


@dataclass(frozen=True, slots=True)
class Memory:
    """The pools of one broker."""

    receive: MemoryPool
    """Receive buffers beyond their smallest size."""
    large: MemoryPool
    """Receive buffers of more than the usual size."""
    pending: MemoryPool
    """Requests that are read and not answered yet: an estimate of the memory that handling them takes."""
    answers: MemoryPool
    """Answers that are being written."""
    decoding: MemoryPool
    """Decompressed records of batches."""
    unsent: MemoryPool
    """Answers that clients do not read."""
    sessions: MemoryPool
    """Partitions of fetch sessions (KIP-227)."""
    http_bodies: MemoryPool
    """Bodies of HTTP requests, until the request is done."""
    http_unsent: MemoryPool
    """HTTP answers that clients do not read."""

    def __iter__(self) -> Iterator[MemoryPool]:
        return (getattr(self, field.name) for field in fields(self))

    @property
    def is_crowded(self) -> bool:
        """True if the pools have less than CROWDED_BYTES left in common."""
        pool = self.receive
        return sum(max(each.used, each.own) for each in (pool, *pool.others)) > pool.total - CROWDED_BYTES

    @classmethod
    def of(cls, large_bytes_max: int, session_partitions_max: int) -> "Memory":
        """Return the pools for clients. The largest request and all reserved room together are their sum at most."""
        memory = cls(
            MemoryPool("receive", large_bytes_max + USUAL_BYTES_SPARE, USUAL_BYTES_SPARE),
            MemoryPool("receive_large", large_bytes_max),
            MemoryPool("pending", PENDING_BYTES_MAX, OWN_BYTES),
            MemoryPool("answers", ANSWERS_BYTES_MAX, ANSWERS_BYTES_OWN),
            MemoryPool("decoding", DECODING_BYTES_MAX, DECODING_BYTES_OWN),
            MemoryPool("unsent", UNSENT_BYTES_MAX, LEAST_BYTES_OWN),
            MemoryPool("fetch_sessions", session_partitions_max * SESSION_PARTITION_BYTES, LEAST_BYTES_OWN),
            MemoryPool("http_bodies", HTTP_BODIES_BYTES_MAX, OWN_BYTES),
            MemoryPool("http_unsent", HTTP_UNSENT_BYTES_MAX, LEAST_BYTES_OWN),
        )
        # Large receive buffers are counted in `receive`.
        pools = [pool for pool in memory if pool is not memory.large]
        common = max(int(COMMON_SHARE * large_bytes_max), min(COMMON_BYTES, large_bytes_max))
        total = common + sum(pool.own for pool in pools)
        memory.receive.above = large_bytes_max - common
        for pool in pools:
            pool.others, pool.total = tuple(other for other in pools if other is not pool), total
        return memory

    @classmethod
    def unlimited(cls) -> "Memory":
        """Return unlimited pools, for connections that this broker opens to trusted brokers or in its own process."""
        return cls(*(MemoryPool(field.name, UNLIMITED) for field in fields(cls)))
