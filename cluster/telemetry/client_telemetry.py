"""Client telemetry of one broker: the subscriptions of client instances, and what they pushed."""

from collections.abc import Callable, Mapping
from uuid import UUID

from cordwood.cluster.telemetry.client_instances import ClientInstances
from cordwood.cluster.telemetry.otlp import Sample
from cordwood.cluster.telemetry.pushed_metrics import KEPT_INTERVALS, PushedMetrics


class ClientTelemetry:
    """Instances and their metrics. `configs` returns the configs of all subscriptions; `now_s` is a monotonic clock."""

    def __init__(
        self, configs: Callable[[], Mapping[str, Mapping[str, str]]], bytes_max: int, now_s: Callable[[], float]
    ) -> None:
        self.instances = ClientInstances(configs, bytes_max)
        self.metrics = PushedMetrics()
        self.now_s = now_s

    def take(self, instance_id: UUID, client: Mapping[str, str], samples: list[Sample]) -> None:
        """Take the samples of a push that has been checked."""
        now_s, instance = self.now_s(), self.instances.instances.get(instance_id)
        if instance is not None:
            wanted = instance.wanted
            until_s = now_s + KEPT_INTERVALS * wanted.interval_ms / 1000
            self.metrics.push(instance_id, client, samples, wanted.prefixes, until_s, now_s)

    def rows(self) -> list[tuple[tuple[str, ...], float]]:
        """Return the label values and the value of each series that a scrape shows."""
        return list(self.metrics.rows(self.now_s()))
