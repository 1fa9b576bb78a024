"""The table of all metrics, in the order of a scrape, and the generated page docs/metrics.md."""

from collections.abc import Iterator

from cordwood.cluster.http.metrics import cluster, disks, groups, memory, process, replicas, requests
from cordwood.cluster.http.metrics.family import Family

_CHAPTERS = (
    ("The broker and its cluster", cluster.FAMILIES),
    ("Requests and connections", requests.FAMILIES),
    ("Replicas", replicas.FAMILIES),
    ("Disks", disks.FAMILIES),
    ("Consumer groups", groups.FAMILIES),
    ("Memory", memory.FAMILIES),
    ("The process", process.FAMILIES),
)

FAMILIES: tuple[Family, ...] = tuple(family for _, families in _CHAPTERS for family in families)

_HEAD = """\
# Metrics

<!-- Made from cluster/http/metrics by `python docs/generate`: change it there. -->

A broker with `http.listen` tells Prometheus these at `/metrics`. They are its own: add them up over the brokers, except
where it says "as this broker knows the cluster". A histogram has `_bucket`, `_sum` and `_count`.

`deploy/prometheus` has a configuration and alerts to begin with, and `deploy/grafana/cordwood.json` is a dashboard
to import into Grafana.
"""

_TAIL = """
Beside these there are prometheus_client's `process_cpu_seconds_total`, `process_resident_memory_bytes`,
`process_virtual_memory_bytes`, `process_open_fds`, `process_max_fds` and `process_start_time_seconds`.

There are no metrics of throttling, since there are no quotas.
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
