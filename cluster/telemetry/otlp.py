"""The content of a push: OpenTelemetry MetricsData v1, as samples (https://opentelemetry.io/docs/specs/otlp/).

Sums and gauges are read; histograms, which no Kafka client pushes, are left out.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from cordwood.storage.errors import CorruptBatch

if TYPE_CHECKING:
    from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, MetricsData, NumberDataPoint

SAMPLES_MAX = 2_000
"""Samples of one push that are read. A Java producer pushes some hundred."""

ATTRIBUTES_CHARS_MAX = 200


class Sample(NamedTuple):
    """One number of one metric. `is_delta`: it is the growth since the last push."""

    name: str
    value: float
    is_delta: bool
    attributes: str = ""
    """The attributes that distinguish the number from others of the metric, such as `node.id=1`."""


def read(data: bytes) -> list[Sample]:
    """Return the samples of a push, at most SAMPLES_MAX. Raises CorruptBatch for bytes that are no MetricsData."""
    # Lazily: only brokers whose clients push need it.
    from google.protobuf.message import DecodeError
    from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

    try:
        pushed = MetricsData.FromString(data)
    except DecodeError as error:
        raise CorruptBatch(f"telemetry that is no MetricsData: {error}") from None
    samples: list[Sample] = []
    for metric in _metrics(pushed):
        # AGGREGATION_TEMPORALITY_DELTA is 1.
        is_delta = metric.HasField("sum") and metric.sum.aggregation_temporality == 1
        for point in (metric.sum if metric.HasField("sum") else metric.gauge).data_points:
            if len(samples) == SAMPLES_MAX:
                return samples
            value = point.as_double if point.HasField("as_double") else float(point.as_int)
            samples.append(Sample(metric.name, value, is_delta, _attributes(point)))
    return samples


def _attributes(point: "NumberDataPoint") -> str:
    """Return the attributes in one text, sorted. Values are texts and whole numbers, as Kafka's clients have them."""
    pairs = ((one.key, one.value.string_value or one.value.int_value) for one in point.attributes)
    return ",".join(sorted(f"{key}={value}" for key, value in pairs))[:ATTRIBUTES_CHARS_MAX]


def _metrics(pushed: "MetricsData") -> "Iterator[Metric]":
    for resource in pushed.resource_metrics:
        for scope in resource.scope_metrics:
            yield from scope.metrics
