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
        "In use: receive buffers beyond their first 4 KiB (receive), those above 256 KiB (receive_large), requests that"
        " wait for their answers (pending), answers that are being written (answers) and those that clients do not take"
        " (unsent), records out of their compression (decoding), fetch sessions, and over HTTP"
        " bodies that arrive (http_bodies) and answers that are not taken (http_unsent).",
        ("pool",),
        _of_each_pool(lambda pool: pool.used),
    ),
    gauges("memory_pool_limit_bytes", "The most there may be.", ("pool",), _of_each_pool(lambda pool: pool.limit)),
    counters(
        "memory_pool_waits",
        "Connections that were not read from for want of memory, and fetch sessions and HTTP bodies that were refused.",
        ("pool",),
        _of_each_pool(lambda pool: pool.waits),
    ),
    counters(
        "memory_pool_closes",
        "Connections, and fetch sessions, that were ended to make room for others.",
        ("pool",),
        _of_each_pool(lambda pool: pool.closes),
    ),
)
