"""Checks that a verdict and a report show acknowledged records that were lost."""

from pathlib import Path
from typing import Any

IDENTITY = ("operation", "producer", "sequence", "partition", "invoked_ns")
"""The first columns of the report's tables of sends."""


def assert_lost_records_are_shown(verdict: dict[str, Any], report: Path) -> None:
    """Check that the report shows every send that the verdict calls lost, with its acknowledgement."""
    lost = [anomaly for anomaly in verdict["anomalies"] if anomaly["kind"] == "lost-write"]
    sends = [operation for anomaly in lost for operation in anomaly["operations"] if operation["operation"] == "send"]
    assert sends, f"nothing is lost: {verdict['kinds']}"
    text = report.read_text(encoding="utf-8")
    assert "<h3>lost-write</h3>" in text
    for send in sends:
        assert send["outcome"] == "ok", "a lost record was acknowledged"
        assert "".join(f"<td>{send[column]}</td>" for column in IDENTITY) in text
