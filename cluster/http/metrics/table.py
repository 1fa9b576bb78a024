"""The table of all metrics, in the order of a scrape, and the generated page docs/metrics.md."""

from collections.abc import Iterator

from cordwood.cluster.http.metrics import (
    archive,
    audit,
    cluster,
    disks,
    groups,
    log_cleaner,
    moves,
    process,
    queues,
    replicas,
    requests,
    shares,
    telemetry,
    transactions,
)
from cordwood.cluster.http.metrics.family import Family

_CHAPTERS = (
    ("Broker and cluster", cluster.FAMILIES),
    ("Requests and connections", requests.FAMILIES),
    ("Replicas", replicas.FAMILIES),
    ("Reassignments", moves.FAMILIES),
    ("Disks", disks.FAMILIES),
    ("Log cleaner", log_cleaner.FAMILIES),
    ("Groups", groups.FAMILIES),
    ("Share groups", shares.FAMILIES),
    ("Queues over HTTP", queues.FAMILIES),
    ("Transactions", transactions.FAMILIES),
    ("Archive", archive.FAMILIES),
    ("Client telemetry", telemetry.FAMILIES),
    ("Audit log", audit.FAMILIES),
    ("Memory", process.MEMORY),
    ("Process", process.PROCESS),
)

FAMILIES: tuple[Family, ...] = tuple(family for _, families in _CHAPTERS for family in families)

_HEAD = """\
# Metrics

<!-- Made from cluster/http/metrics by `python docs/generate`: change it there. -->

A broker with `http.listen` serves these metrics to Prometheus at `/metrics`. Each broker reports its own values: sum
them over the brokers, except where the text says "in the metadata of this broker". A histogram has `_bucket`, `_sum`
and `_count`.

`deploy/prometheus` has an example configuration and alerts, and `deploy/grafana/cordwood.json` is a dashboard
to import into Grafana.
"""

_TAIL = """
There are also prometheus_client's `process_cpu_seconds_total`, `process_resident_memory_bytes`,
`process_virtual_memory_bytes`, `process_open_fds`, `process_max_fds` and `process_start_time_seconds`.
"""


def page() -> str:
    """Return docs/metrics.md, which `python docs/generate` writes."""
    return _HEAD + "".join(_lines()) + _TAIL


def _lines() -> Iterator[str]:
    for title, families in _CHAPTERS:
        yield f"\n## {title}\n\n| Metric | Kind | Labels | Meaning |\n| --- | --- | --- | --- |\n"
        for family in families:
            labels = ", ".join(f"`{label}`" for label in family.labels)
            yield f"| `{family.name}` | {family.kind.value} | {labels} | {family.meaning} |\n"
