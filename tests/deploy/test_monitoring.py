"""Prometheus rules and Grafana dashboard of `deploy/`: valid, and only about metrics that exist."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from requirements import Requirement, check

from cordwood.cluster.http.metrics.family import MetricType
from cordwood.cluster.http.metrics.table import FAMILIES

ROOT = Path(__file__).resolve().parents[2]
ALERTS = ROOT / "deploy/prometheus/alerts.yml"
PROMETHEUS = ROOT / "deploy/prometheus/prometheus.yml"
DASHBOARD = ROOT / "deploy/grafana/cordwood.json"
IN_TIME = ROOT / "tests/deploy/alerts_in_time.yml"

OF_HISTOGRAMS = ("_bucket", "_sum", "_count")
METRIC = re.compile(r"\b(?:cordwood|process)_[a-z_]+\b|\bup\b")
ALL_SERIES = {
    *(family.name + end for family in FAMILIES if family.kind is MetricType.HISTOGRAM for end in OF_HISTOGRAMS),
    *(family.name for family in FAMILIES if family.kind is not MetricType.HISTOGRAM),
    *("up", "process_cpu_seconds_total", "process_resident_memory_bytes"),
}


def alerts() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    return [panel for panel in json.loads(DASHBOARD.read_text())["panels"] if panel["type"] != "row"]


def queries() -> Iterator[str]:
    yield from (rule["expr"] for rule in alerts())
    yield from (target["expr"] for panel in panels() for target in panel["targets"])


@pytest.mark.parametrize("query", sorted(set(queries())))
def test_every_query_is_about_series_that_there_are(query: str) -> None:
    # Remove labels in braces, whose values may look like metric names.
    named = set(METRIC.findall(re.sub(r"\{[^}]*\}", "", query)))
    assert named
    assert named <= ALL_SERIES


@pytest.mark.parametrize("rule", alerts(), ids=lambda rule: rule["alert"])
def test_every_alert_says_what_to_do(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in ("critical", "warning")
    assert rule["annotations"]["summary"].endswith(".")
    assert rule["annotations"]["description"].endswith(".")
    page, _, anchor = rule["annotations"]["runbook_url"].partition("#")
    headings = re.findall(r"^#+ (.*)$", (ROOT / page).read_text(), re.MULTILINE)
    assert anchor in {heading.lower().replace(" ", "-") for heading in headings}


def test_every_panel_is_explained_and_has_a_place_of_its_own() -> None:
    places = set()
    for panel in panels():
        assert panel["description"].endswith("."), panel["title"]
        place = panel["gridPos"]
        fields = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not fields & places, f"{panel['title']} lies on another panel"
        assert place["x"] + place["w"] <= 24
        places |= fields
    ids = [panel["id"] for panel in json.loads(DASHBOARD.read_text())["panels"]]
    assert len(ids) == len(set(ids)) > 20


def test_the_dashboard_asks_whatever_prometheus_there_is() -> None:
    sources = [target["datasource"]["uid"] for panel in panels() for target in panel["targets"]]
    assert set(sources) == {"${datasource}"}


@pytest.fixture
def promtool() -> str:
    found = shutil.which("promtool")
    check(Requirement.PROMTOOL, found is not None, "promtool is not installed: Debian has it in the package prometheus")
    return str(found)


@pytest.mark.parametrize(
    "words",
    [("check", "rules", str(ALERTS)), ("check", "config", str(PROMETHEUS)), ("test", "rules", str(IN_TIME))],
    ids=["the rules", "the configuration", "the rules in time"],
)
def test_promtool_finds_them_sound(promtool: str, words: tuple[str, ...]) -> None:
    reported = subprocess.run([promtool, *words], capture_output=True, text=True)
    assert reported.returncode == 0, reported.stdout + reported.stderr


def test_promtool_reads_every_query_of_the_dashboard(promtool: str, tmp_path: Path) -> None:
    """Check each query as a recording rule, with Grafana's variables replaced."""
    rules = [
        {"record": f"panel:{number}", "expr": query.replace("$__rate_interval", "1m").replace("$instance", ".*")}
        for number, query in enumerate(queries())
    ]
    path = tmp_path / "queries.yml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    reported = subprocess.run([promtool, "check", "rules", str(path)], capture_output=True, text=True)
    assert reported.returncode == 0, reported.stdout + reported.stderr
