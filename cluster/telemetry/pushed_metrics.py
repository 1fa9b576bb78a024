"""The newest value of each metric that clients have pushed, for a scrape. Bounded in series, names and time."""

import re
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from cordwood.cluster.config.client_metrics import ALL_METRICS
from cordwood.cluster.telemetry.otlp import Sample

SERIES_MAX = 20_000
"""Series of all clients together. Further ones are counted and left out."""
KEPT_INTERVALS = 3
"""Push intervals after which a silent client's metrics are left out."""
LABEL_CHARS_MAX = 100

_NAME = re.compile(r"[A-Za-z0-9._-]{1,200}")


class ClientLabels(NamedTuple):
    """The labels of a client in a scrape."""

    client_id: str
    instance: str
    software: str
    version: str


@dataclass(slots=True)
class _Pushed:
    labels: ClientLabels
    values: dict[tuple[str, str], float]
    """By name and attributes."""
    until_s: float


@dataclass(slots=True)
class PushedMetrics:
    """The metrics of all client instances, by instance: the one that pushed least recently first."""

    pushes: int = 0
    left_out: int = 0
    """Samples that were left out: too many series, or a name that no subscription asked for."""
    series: int = 0
    _by_instance: "OrderedDict[UUID, _Pushed]" = field(default_factory=OrderedDict)

    def push(
        self,
        instance_id: UUID,
        client: Mapping[str, str],
        samples: Iterable[Sample],
        prefixes: tuple[str, ...],
        until_s: float,
        now_s: float,
    ) -> None:
        """Take the samples of one push. A delta is added to the values that the instance has pushed before."""
        self.pushes += 1
        self._expire(now_s)
        pushed = self._by_instance.get(instance_id)
        if pushed is None:
            pushed = self._by_instance[instance_id] = _Pushed(_labels(client), {}, until_s)
        pushed.until_s = until_s
        self._by_instance.move_to_end(instance_id)
        for name, value, is_delta, attributes in samples:
            key = name, attributes
            known = pushed.values.get(key)
            if known is None:
                if self.series >= SERIES_MAX or not _is_wanted(name, prefixes):
                    self.left_out += 1
                    continue
                self.series += 1
            pushed.values[key] = value + (known or 0.0) if is_delta else value

    def rows(self, now_s: float) -> Iterator[tuple[tuple[str, ...], float]]:
        """Yield the label values and the value of each series: its name and attributes, then the client."""
        self._expire(now_s)
        for pushed in list(self._by_instance.values()):
            for key, value in list(pushed.values.items()):
                yield (*key, *pushed.labels), value

    def _expire(self, now_s: float) -> None:
        """Forget the clients that have been silent for too long. Intervals differ, so that all are looked at."""
        for instance_id in [one for one, pushed in self._by_instance.items() if pushed.until_s < now_s]:
            self.series -= len(self._by_instance.pop(instance_id).values)


def _is_wanted(name: str, prefixes: tuple[str, ...]) -> bool:
    return _NAME.fullmatch(name) is not None and (prefixes == (ALL_METRICS,) or name.startswith(prefixes))


def _labels(client: Mapping[str, str]) -> ClientLabels:
    keys = ("client_id", "client_instance_id", "client_software_name", "client_software_version")
    return ClientLabels(*(client[key][:LABEL_CHARS_MAX] for key in keys))
