"""Metrics of the process: event-loop latency and garbage collector pauses. prometheus_client has the others."""

from cordwood.cluster.http.metrics.family import Family, counter, histogram

FAMILIES: tuple[Family, ...] = (
    histogram(
        "loop_lateness_seconds",
        "How late a timer of 100 ms rings: what everybody waits for while the event loop is busy with one thing.",
        lambda watched: watched.watchdog.lateness_s,
    ),
    counter(
        "loop_stalls",
        "Times that the event loop stood still for 100 ms or longer. The log names the request that held it.",
        lambda watched: watched.watchdog.stalls,
    ),
    histogram(
        "garbage_collection_pause_seconds",
        "How long the garbage collector stops the process.",
        lambda watched: watched.pauses.collections_s,
    ),
)
