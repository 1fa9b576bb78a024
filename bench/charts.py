"""Charts as SVG text: horizontal bars, and lines over a logarithmic axis, in the reader's light or dark colours."""

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape

WIDTH = 780
SIDE = 16
# Two of one hue for Cordwood, two of another for Kafka, then the rest.
LIGHT = ("#3b6fb6", "#9dbfe8", "#c2410c", "#f0b48f", "#2f855a", "#8c959f")
DARK = ("#5b93e0", "#2f5488", "#fb923c", "#8a4a1c", "#4fb07f", "#6e7781")
LETTER = 6.6
"""The approximate width of a letter of 12 px."""


def bars(
    title: str,
    unit: str,
    groups: Mapping[str, Mapping[str, float]],
    *,
    mark: tuple[str, Mapping[str, float]] | None = None,
) -> str:
    """Draw horizontal bars in groups that share one scale: group, then series, then value in `unit`.

    `mark` is a name and, for some of the groups, a value that is drawn as a stroke across the group's bars.
    """
    series = list(dict.fromkeys(name for group in groups.values() for name in group))
    strokes = mark[1] if mark else {}
    top = max([value for group in groups.values() for value in group.values()] + [*strokes.values()], default=0) or 1.0
    left = SIDE + 12 + LETTER * max(map(len, groups), default=0)
    room = WIDTH - left - SIDE - 70
    drawn, y = _legend(series, mark[0] if mark else None)
    for label, group in groups.items():
        begin = y
        for name, value in group.items():
            width = max(1.0, room * value / top)
            drawn.append(_box(left, y, width, 14, f"tone{series.index(name) % len(LIGHT)}"))
            label_text, at = number(value), left + width + 6
            if label in strokes and -6 < left + room * strokes[label] / top - at < LETTER * len(label_text):
                # Otherwise the stroke would run through the figure.
                at = left + room * strokes[label] / top + 6
            drawn.append(_text(at, y + 11, label_text, "small"))
            y += 17
        drawn.append(_text(left - 8, (begin + y) / 2 + 3, label, "small end"))
        if label in strokes:
            x = left + room * strokes[label] / top
            drawn.append(f'<path class="mark" d="M{x:.1f} {begin - 3}V{y}"/>')
        y += 12
    return _picture(title, unit, drawn, y + 4)


def lines(
    title: str,
    unit: str,
    series: Mapping[str, Sequence[tuple[float, float]]],
    *,
    x_label: str,
    log_y: bool = False,
) -> str:
    """Draw lines of (x, y) points, x above 0 on a logarithmic axis; y in `unit` from 0, or logarithmic and above 0."""
    drawn, top = _legend(list(series), None)
    xs = sorted({x for points in series.values() for x, _ in points})
    ys = [y for points in series.values() for _, y in points]
    low, high = (min(ys), max(ys)) if log_y else (0.0, max(ys))
    ticks = _powers(low, high) if log_y else _round_steps(high)
    left, right, foot = SIDE + 10 + LETTER * max(len(number(tick)) for tick in ticks), WIDTH - SIDE - 30, top + 250

    def across(x: float) -> float:
        return left + (right - left) * _share(math.log(x), math.log(xs[0]), math.log(xs[-1]))

    def up(y: float) -> float:
        ends = (ticks[0], ticks[-1])
        share = _share(math.log(y), *map(math.log, ends)) if log_y else _share(y, *ends)
        return foot - (foot - top - 6) * share

    for tick in ticks:
        drawn.append(f'<path class="grid" d="M{left:.1f} {up(tick):.1f}H{right:.1f}"/>')
        drawn.append(_text(left - 6, up(tick) + 4, number(tick), "small end"))
    for x in _apart(xs, across):
        drawn.append(_text(across(x), foot + 16, number(x), "small middle"))
    for index, points in enumerate(series.values()):
        path = " ".join(f"{across(x):.1f},{up(y):.1f}" for x, y in points)
        drawn.append(f'<polyline class="line{index % len(LIGHT)}" points="{path}"/>')
        drawn += [_dot(across(x), up(y), f"tone{index % len(LIGHT)}") for x, y in points]
    drawn.append(_text((left + right) / 2, foot + 34, x_label, "small middle"))
    return _picture(title, unit, drawn, foot + 46)


def number(value: float) -> str:
    """Return the number with three significant digits, and a comma for each thousand: 2,700; 31.4; 0.052."""
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    digits = 2 - math.floor(math.log10(abs(value)))
    text = f"{value:,.{max(0, digits)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _picture(title: str, unit: str, drawn: Sequence[str], height: float) -> str:
    size = f'viewBox="0 0 {WIDTH} {height:.0f}" width="{WIDTH}" height="{height:.0f}"'
    head = [_text(SIDE, 24, title, "strong"), _text(WIDTH - SIDE, 24, unit, "small end")]
    body = "\n  ".join([*head, *drawn])
    return f"""<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">
  <title>{escape(title)}</title>
  <style>
    text {{ font: 14px system-ui, sans-serif; fill: #24292f }}
    .small {{ font-size: 12px }} .strong {{ font-weight: 600 }}
    .middle {{ text-anchor: middle }} .end {{ text-anchor: end }} polyline {{ fill: none; stroke-width: 2 }}
    .grid {{ stroke: #d0d7de }} .mark {{ stroke: #24292f; stroke-width: 2 }}
    {_tones(LIGHT)}
    @media (prefers-color-scheme: dark) {{
      text {{ fill: #e6edf3 }} .grid {{ stroke: #30363d }} .mark {{ stroke: #e6edf3 }}
      {_tones(DARK)}
    }}
  </style>
  {body}
</svg>
"""


def _tones(colours: Sequence[str]) -> str:
    rules = (f".tone{at} {{ fill: {colour} }} .line{at} {{ stroke: {colour} }}" for at, colour in enumerate(colours))
    return " ".join(rules)


def _legend(series: Sequence[str], mark: str | None) -> tuple[list[str], float]:
    """Draw the legend below the title, and return it with the top of the chart. A single series needs none."""
    drawn: list[str] = []
    x, y = float(SIDE), 40.0
    named = [(name, _box(0, 0, 12, 12, f"tone{at % len(LIGHT)}")) for at, name in enumerate(series)]
    named = named if len(series) > 1 else []
    for name, sign in [*named, *([(mark, '<path class="mark" d="M6 -1V13"/>')] if mark else [])]:
        if x + 34 + LETTER * len(name) > WIDTH:
            x, y = float(SIDE), y + 20
        drawn.append(f'<g transform="translate({x:.1f} {y:.1f})">{sign}{_text(18, 10, name, "small")}</g>')
        x += 34 + LETTER * len(name)
    return drawn, y + (28 if drawn else 4)


def _box(x: float, y: float, width: float, height: float, tone: str) -> str:
    return f'<rect class="{tone}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height}" rx="2"/>'


def _dot(x: float, y: float, tone: str) -> str:
    return f'<circle class="{tone}" cx="{x:.1f}" cy="{y:.1f}" r="3.5"/>'


def _text(x: float, y: float, text: str, kind: str) -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}">{escape(text)}</text>'


def _share(value: float, low: float, high: float) -> float:
    return (value - low) / (high - low) if high > low else 0.5


def _powers(low: float, high: float) -> list[float]:
    return [10.0**power for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)]


def _round_steps(high: float) -> list[float]:
    """Return four or five steps from 0 to at least `high`, of 1, 2, 2.5 or 5 times a power of ten."""
    size = 10.0 ** math.floor(math.log10(high / 4)) if high > 0 else 0.25
    step = next(size * factor for factor in (1, 2, 2.5, 5, 10) if size * factor * 4 >= high * 0.999)
    return [step * at for at in range(math.ceil(high / step - 0.001) + 1)]


def _apart(xs: Sequence[float], across: Callable[[float], float]) -> list[float]:
    """Return the places that can be labelled without overlap."""
    kept: list[float] = []
    for x in xs:
        if not kept or across(x) - across(kept[-1]) > 40:
            kept.append(x)
    return kept
