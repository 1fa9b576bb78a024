"""Metrics that clients push to this broker (KIP-714)."""

from cordwood.cluster.http.metrics.family import Family, counter, gauge, gauges

FAMILIES: tuple[Family, ...] = (
    counter(
        "client_telemetry_pushes",
        "Pushes of client metrics that this broker has taken.",
        lambda watched: watched.telemetry.metrics.pushes,
    ),
    counter(
        "client_telemetry_left_out_samples",
        "Pushed samples that are not shown: no subscription asked for them, or there are too many series.",
        lambda watched: watched.telemetry.metrics.left_out,
    ),
    gauge(
        "client_telemetry_instances",
        "Client instances with a subscription at this broker.",
        lambda watched: len(watched.telemetry.instances.instances),
    ),
    gauges(
        "client_metric",
        "The newest value that a client has pushed, by the metric's OpenTelemetry name. A client that is silent for"
        " three push intervals is left out.",
        ("metric", "attributes", "client_id", "client_instance_id", "software", "version"),
        lambda watched: watched.telemetry.rows(),
    ),
)
