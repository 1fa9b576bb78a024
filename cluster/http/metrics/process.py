"""Metrics of the process: event-loop latency and garbage collector pauses. prometheus_client has the others."""

from cordwood.cluster.http.metrics.family import Family, counter, histogram

FAMILIES: tuple[Family, ...] = (
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
