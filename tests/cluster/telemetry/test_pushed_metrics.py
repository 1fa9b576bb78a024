"""Metrics that clients pushed, in a scrape."""

from uuid import UUID

import pytest

from cordwood.cluster.telemetry import pushed_metrics
from cordwood.cluster.telemetry.otlp import Sample
from cordwood.cluster.telemetry.pushed_metrics import PushedMetrics

ONE, TWO = UUID(int=1), UUID(int=2)


def client(instance: UUID) -> dict[str, str]:
    return {
        "client_id": "loader",
        "client_instance_id": str(instance),
        "client_software_name": "librdkafka",
        "client_software_version": "2.10",
    }


def push(
    metrics: PushedMetrics, instance: UUID, now_s: float, *samples: Sample, prefixes: tuple[str, ...] = ("*",)
) -> None:
    metrics.push(instance, client(instance), samples, prefixes, now_s + 30, now_s)


def shown(metrics: PushedMetrics, now_s: float) -> dict[tuple[str, str], float]:
    return {(labels[0], labels[3]): value for labels, value in metrics.rows(now_s)}


def test_deltas_add_up_and_gauges_are_replaced() -> None:
    metrics = PushedMetrics()
    push(metrics, ONE, 0, Sample("sent", 5, True), Sample("queue", 3, False))
    push(metrics, ONE, 10, Sample("sent", 2, True), Sample("queue", 1, False))
    push(metrics, TWO, 10, Sample("sent", 1, True))
    assert shown(metrics, 11) == {("sent", str(ONE)): 7, ("queue", str(ONE)): 1, ("sent", str(TWO)): 1}


def test_numbers_of_one_metric_differ_by_their_attributes() -> None:
    metrics = PushedMetrics()
    push(metrics, ONE, 0, Sample("latency", 5, False, "node.id=1"), Sample("latency", 7, False, "node.id=2"))
    assert [(labels[1], value) for labels, value in metrics.rows(1)] == [("node.id=1", 5), ("node.id=2", 7)]


def test_a_silent_client_is_left_out() -> None:
    metrics = PushedMetrics()
    push(metrics, ONE, 0, Sample("sent", 5, True))
    push(metrics, TWO, 20, Sample("sent", 5, True))
    assert shown(metrics, 31) == {("sent", str(TWO)): 5}
    assert metrics.series == 1


def test_a_metric_that_no_subscription_asked_for_is_left_out() -> None:
    metrics = PushedMetrics()
    push(metrics, ONE, 0, Sample("a.b", 1, False), Sample("c", 1, False), prefixes=("a.",))
    assert (shown(metrics, 1), metrics.left_out) == ({("a.b", str(ONE)): 1}, 1)


def test_a_name_with_other_characters_is_left_out() -> None:
    metrics = PushedMetrics()
    push(metrics, ONE, 0, Sample('a"} 1\nb', 1, False), Sample("x" * 201, 1, False))
    assert (shown(metrics, 1), metrics.left_out) == ({}, 2)


def test_the_series_of_all_clients_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pushed_metrics, "SERIES_MAX", 3)
    metrics = PushedMetrics()
    push(metrics, ONE, 0, *[Sample(f"m{number}", 1, False) for number in range(5)])
    push(metrics, TWO, 0, Sample("m0", 1, False))
    assert (metrics.series, metrics.left_out) == (3, 3)
    assert shown(metrics, 31) == {}
    push(metrics, TWO, 31, Sample("m0", 1, False))
    assert metrics.series == 1
