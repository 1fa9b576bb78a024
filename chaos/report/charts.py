"""The timeline of a run as one SVG: fault lanes above throughput, latency and unavailability."""

from collections.abc import Callable, Sequence
from html import escape
from itertools import groupby

from cordwood.chaos.report.axes import Linear, Logarithmic, clock, linear_to, logarithmic_to, ticks
from cordwood.chaos.report.series import Series
from cordwood.chaos.report.summary import RunReport, Span

LEFT_PX, RIGHT_PX, WIDTH_PX = 130, 12, 1160
PLOT_PX = WIDTH_PX - LEFT_PX - RIGHT_PX
LANE_PX, GAP_PX = 20, 40
TALL_PX, LOW_PX = 130, 60
SPAN_PX_MIN = 2.0

Scale = Linear | Logarithmic


def timeline(report: RunReport) -> str:
    """Return the whole SVG."""
    lanes = list(dict.fromkeys(span.fault for span in report.faults))
    top = GAP_PX // 2 + len(lanes) * LANE_PX
    panels: list[str] = []
    for draw in (_throughput, _latency, _unavailability):
        panel, height = draw(report)
        panels.append(f'<g transform="translate({LEFT_PX} {top + GAP_PX:g})">{panel}</g>')
        top += GAP_PX + height
    shades = "".join(_shade(span, report.series, top) for span in report.faults)
    rows = "".join(_lane(name, row, report) for row, name in enumerate(lanes))
    height = top + GAP_PX
    return (
        f'<svg id="timeline" viewBox="0 0 {WIDTH_PX} {height:g}" role="img" aria-label="Faults over time">'
        f'<g transform="translate({LEFT_PX} 0)">{shades}</g>{rows}{"".join(panels)}'
        f'<g transform="translate({LEFT_PX} {top:g})">{_time_axis(report.series)}</g>'
        f'<line id="cursor" y1="0" y2="{top:g}" visibility="hidden"/></svg>'
    )


def _throughput(report: RunReport) -> tuple[str, int]:
    values = report.series.acknowledged_per_s
    scale = linear_to(max(values), TALL_PX)
    area = _outline(values, scale, "throughput")
    return _panel("acknowledged records per second", scale, "{:,.0f}".format, area), TALL_PX


def _latency(report: RunReport) -> tuple[str, int]:
    known = [value for value in (*report.series.p50_ms, *report.series.p99_ms) if value is not None]
    scale = logarithmic_to(min(known, default=1), max(known, default=1000), TALL_PX)
    lines = _line(report.series.p50_ms, scale, "p50") + _line(report.series.p99_ms, scale, "p99")
    return _panel("acknowledged after, ms (p50, p99)", scale, "{:g}".format, lines), TALL_PX


def _unavailability(report: RunReport) -> tuple[str, int]:
    values = report.series.partitions_unserved
    scale = Linear(report.partitions, LOW_PX)
    area = _outline(values, scale, "unserved")
    return _panel("partitions that acknowledge nothing", scale, "{:.0f}".format, area), LOW_PX


def _panel(title: str, scale: Scale, written: Callable[[float], str], content: str) -> str:
    lines = "".join(
        f'<line class="grid" x1="0" x2="{PLOT_PX}" y1="{scale.y(value):.1f}" y2="{scale.y(value):.1f}"/>'
        f'<text class="tick" x="-8" y="{scale.y(value) + 4:.1f}" text-anchor="end">{written(value)}</text>'
        for value in scale.lines()
    )
    return f'<text class="title" x="0" y="-8">{escape(title)}</text>{lines}{content}'


def _outline(values: Sequence[float], scale: Scale, name: str) -> str:
    """Return a filled step function with one height per slice."""
    width = PLOT_PX / len(values)
    stairs = " ".join(f"V{scale.y(value):.1f}H{(slot + 1) * width:.2f}" for slot, value in enumerate(values))
    return f'<path class="{name}" d="M0 {scale.y(0):.1f}{stairs}V{scale.y(0):.1f}Z"/>'


def _line(values: Sequence[float | None], scale: Scale, name: str) -> str:
    """Return a line with a gap where the value is None."""
    width = PLOT_PX / len(values)
    points = [
        None if value is None else f"{(slot + 0.5) * width:.2f} {scale.y(value):.1f}"
        for slot, value in enumerate(values)
    ]
    pieces = (list(piece) for is_known, piece in groupby(points, lambda point: point is not None) if is_known)
    path = "".join("M" + "L".join(point for point in piece if point) for piece in pieces)
    return f'<path class="{name}" d="{path}"/>'


def _lane(name: str, row: int, report: RunReport) -> str:
    middle = GAP_PX // 2 + row * LANE_PX
    label = f'<text class="lane" x="{LEFT_PX - 8}" y="{middle + 13:g}" text-anchor="end">{escape(name)}</text>'
    bars = "".join(
        f'<rect class="fault" x="{LEFT_PX + left:.2f}" width="{width:.2f}" y="{middle + 3:g}" height="{LANE_PX - 6}">'
        f"<title>{escape(f'{clock(span.start_s)} to {clock(span.end_s)}: {span.what}')}</title></rect>"
        for span in report.faults
        if span.fault == name
        for left, width in (_extent(span, report.series),)
    )
    return label + bars


def _shade(span: Span, series: Series, height: float) -> str:
    left, width = _extent(span, series)
    return f'<rect class="shade" x="{left:.2f}" width="{width:.2f}" y="0" height="{height:g}"/>'


def _extent(span: Span, series: Series) -> tuple[float, float]:
    left = _x(span.start_s, series)
    return left, max(_x(span.end_s, series) - left, SPAN_PX_MIN)


def _time_axis(series: Series) -> str:
    return "".join(
        f'<line class="mark" x1="{_x(second, series):.2f}" x2="{_x(second, series):.2f}" y1="0" y2="5"/>'
        f'<text class="tick" x="{_x(second, series):.2f}" y="20" text-anchor="middle">{clock(second)}</text>'
        for second in ticks(series.duration_s)
    )


def _x(seconds: float, series: Series) -> float:
    return PLOT_PX * min(max(seconds / series.duration_s, 0), 1)
