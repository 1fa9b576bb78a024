"""The report of the demo: a table and a chart of delays by carrier, and a verdict on all records read."""

from collections.abc import Mapping

from rich.bar import Bar
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from examples.flights.compare import same
from examples.flights.source import Delays, carrier_names

CHART_COLUMNS = 40


def show_delays(console: Console, expected: dict[str, Delays], found: Mapping[str, dict[str, Delays]]) -> int:
    """Print the delays computed by pandas, and the readers that differ. Return the number of differences."""
    names = carrier_names()
    table = Table(
        title=f"Delays in minutes, and whether {', '.join(found)} agree with pandas", box=SIMPLE, pad_edge=False
    )
    table.add_column("carrier", no_wrap=True, max_width=18)
    for heading in ("flights", "depart.\nmean", "depart.\nmax", "arrival\nmean", "arrival\nmax", "pandas\nsays"):
        table.add_column(heading, justify="right", no_wrap=True)
    differences = 0
    for carrier in sorted(expected.keys() | {carrier for delays in found.values() for carrier in delays}):
        pandas = expected.get(carrier)
        others = [reader for reader, delays in found.items() if not same(delays.get(carrier), pandas)]
        differences += len(others)
        verdict = f"[red]not {', '.join(others)}" if others else "same"
        table.add_row(names.get(carrier, carrier), *_cells(pandas), verdict)
    console.print(table)
    return differences


def show_chart(console: Console, delays: dict[str, Delays]) -> None:
    """Print the carriers by mean departure delay, the largest first."""
    names = carrier_names()
    means = {carrier: each.departure_mean for carrier, each in delays.items() if each.departure_mean is not None}
    chart = Table(title="Mean delay at departure in minutes", box=None, pad_edge=False, show_header=False)
    for carrier in sorted(means, key=means.__getitem__, reverse=True):
        bar = Bar(max(means.values()), 0, means[carrier], width=CHART_COLUMNS, color="cyan")
        chart.add_row(names.get(carrier, carrier), bar, f"{means[carrier]:.1f}")
    console.print(chart)


def show_verdict(console: Console, findings: Mapping[str, int]) -> int:
    """Print the count of each kind of failure. Return the exit code."""
    for what, count in findings.items():
        console.print(f"  {what}: {count:,}", style="bold red" if count else "green")
    return int(any(findings.values()))


def _cells(delays: Delays | None) -> list[str]:
    if delays is None:
        return ["none"] * len(Delays._fields)
    flights, *minutes = delays
    return [f"{flights:,}", *("-" if value is None else f"{value:.2f}" for value in minutes)]
