"""Metrics of the memory pools that all client connections share."""

from collections.abc import Callable, Iterator

from cordwood.cluster.http.metrics.family import Family, Row, counters, gauges
from cordwood.cluster.http.watched import Watched
from cordwood.cluster.resources.memory import MemoryPool


def _of_each_pool(number: Callable[[MemoryPool], float]) -> Callable[[Watched], Iterator[Row]]:
    def rows(watched: Watched) -> Iterator[Row]:
        return (((pool.name,), number(pool)) for pool in watched.memory)

    return rows


FAMILIES: tuple[Family, ...] = (
    gauges(
        "memory_pool_used_bytes",
        "Memory in use: receive buffers beyond their first 4 KiB (receive), receive buffers above 256 KiB"
        " (receive_large), requests that wait for their responses (pending), responses that are being"
        " encoded (answers), responses that clients have not read (unsent), decompressed records"
        " (decoding), fetch sessions, and over HTTP incoming bodies (http_bodies) and responses that"
        " clients have not read (http_unsent).",
        ("pool",),
        _of_each_pool(lambda pool: pool.used),
    ),
    gauges("memory_pool_limit_bytes", "Limit of the memory pool.", ("pool",), _of_each_pool(lambda pool: pool.limit)),
    counters(
        "memory_pool_waits",
        "Times that the pool was full: a connection was not read, or a fetch session or HTTP body was refused.",
        ("pool",),
        _of_each_pool(lambda pool: pool.waits),
    ),
    counters(
        "memory_pool_closes",
        "Connections and fetch sessions that were closed to free memory for others.",
        ("pool",),
        _of_each_pool(lambda pool: pool.closes),
    ),
)
