"""Metrics of the process: memory pools, event-loop latency, garbage collector pauses. prometheus_client has others."""

from collections.abc import Callable, Iterator

from cordwood.cluster.http.metrics.family import Family, Row, counter, counters, gauges, histogram
from cordwood.cluster.http.watched import Watched
from cordwood.cluster.resources.memory import MemoryPool


def _of_each_pool(number: Callable[[MemoryPool], float]) -> Callable[[Watched], Iterator[Row]]:
    def rows(watched: Watched) -> Iterator[Row]:
        return (((pool.name,), number(pool)) for pool in watched.memory)

    return rows


MEMORY: tuple[Family, ...] = (
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

PROCESS: tuple[Family, ...] = (
    histogram(
        "loop_lateness_seconds",
        "Lateness of a timer of 100 ms: the time for which the event loop is blocked.",
        lambda watched: watched.watchdog.lateness_s,
    ),
    counter(
        "loop_stalls",
        "Times that the event loop was blocked for 100 ms or longer. The log names the request that blocked it.",
        lambda watched: watched.watchdog.stalls,
    ),
    histogram(
        "garbage_collection_pause_seconds",
        "Duration of the garbage collector's pauses.",
        lambda watched: watched.pauses.collections_s,
    ),
)
