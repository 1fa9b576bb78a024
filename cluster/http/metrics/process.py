"""The process: how late its loop runs, and how long the garbage collector stops it. The rest is prometheus_client's."""

from cordwood.cluster.http.metrics.family import Family, histogram

FAMILIES: tuple[Family, ...] = (
    histogram(
        "loop_lateness_seconds",
        "How late a timer of 100 ms rings: what everybody waits for while the event loop is busy with one thing.",
        lambda watched: watched.pauses.lateness_s,
    ),
    histogram(
        "garbage_collection_pause_seconds",
        "How long the garbage collector stops the process.",
        lambda watched: watched.pauses.collections_s,
    ),
)
