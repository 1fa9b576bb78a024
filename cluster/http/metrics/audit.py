"""Metrics of the audit log. A broker without one reports zeros."""

from cordwood.cluster.http.metrics.family import Family, counter, gauge

FAMILIES: tuple[Family, ...] = (
    counter(
        "audit_lines", "Lines written to the audit log since the broker started.", lambda watched: watched.audit.written
    ),
    gauge(
        "audit_waiting_lines",
        "Lines in memory that are not in the audit log yet. They wait while its disk is full or fails.",
        lambda watched: watched.audit.waiting,
    ),
    counter(
        "audit_lost_lines",
        "Administrative acts and refusals that are not in the audit log, because too many lines waited.",
        lambda watched: watched.audit.lost,
    ),
)
