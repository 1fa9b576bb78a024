"""The HTML page of a report: text, tables and the timeline in a template without external resources."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from html import escape
from importlib.resources import files
from string import Template

from cordwood.chaos.checks import Anomaly
from cordwood.chaos.report.axes import clock
from cordwood.chaos.report.charts import LEFT_PX, PLOT_PX, WIDTH_PX, timeline
from cordwood.chaos.report.summary import RunReport, Span

TEMPLATE = "page.html"
ANOMALIES_SHOWN = 200


def page(report: RunReport) -> str:
    """Return the whole HTML document."""
    template = Template(files(__package__).joinpath(TEMPLATE).read_text(encoding="utf-8"))
    return template.substitute(
        title=escape(f"Cordwood under faults: seed {report.seed}"),
        mood="bad" if report.anomalies else "good",
        sentence=escape(report.sentence),
        seed=report.seed,
        commit=escape(report.commit),
        facts=_pairs(report.facts),
        timeline=timeline(report),
        anomalies=_anomalies(report),
        faults="".join(map(_fault, report.faults)),
        log=_log(report.log),
        settings=_pairs(report.settings),
        series=_series(report),
    )


def _series(report: RunReport) -> str:
    drawn = {"width_px": WIDTH_PX, "left_px": LEFT_PX, "plot_px": PLOT_PX}
    # The JSON has no strings from outside, so that it cannot end the script element around it.
    return json.dumps(asdict(report.series) | drawn)


def _pairs(pairs: Mapping[str, str]) -> str:
    return "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in pairs.items())


def _fault(span: Span) -> str:
    cells = (clock(span.start_s), clock(span.end_s), span.fault, span.what)
    return "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>"


def _log(lines: Sequence[str]) -> str:
    if not lines:
        return ""
    return f'<h2>What happened</h2><pre id="log">{escape(chr(10).join(lines))}</pre>'


def _anomalies(report: RunReport) -> str:
    if not report.anomalies:
        return "<p>None.</p>"
    shown = "".join(map(_anomaly, report.anomalies[:ANOMALIES_SHOWN]))
    more = len(report.anomalies) - ANOMALIES_SHOWN
    return shown + (f"<p>And {more} more.</p>" if more > 0 else "")


def _anomaly(anomaly: Anomaly) -> str:
    return (
        f"<article><h3>{escape(anomaly.kind)}</h3><p>{escape(anomaly.sentence)}</p>"
        f"{_operations(anomaly.operations)}</article>"
    )


def _operations(operations: tuple[Mapping[str, object], ...]) -> str:
    """Return a table with one column per field that any operation has."""
    if not operations:
        return ""
    names = list(dict.fromkeys(name for operation in operations for name in operation))
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    rows = "".join(
        "<tr>" + "".join(f"<td>{escape(str(operation.get(name, '')))}</td>" for name in names) + "</tr>"
        for operation in operations
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
