"""Progress of a run: one live screen on a terminal; without a terminal, one line for each fault."""

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import typer
from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from cordwood.chaos.live.campaign import Campaign
from cordwood.chaos.live.client_rows import SENDS, SendKind, Tail
from cordwood.chaos.report.axes import clock

LINES_SHOWN = 8
RECENT_S = 5.0
PER_SECOND = 2


class RunProgress:
    """The events of a run so far. `screen` shows them on a terminal; without one, each line is printed."""

    def __init__(self) -> None:
        self.console = Console(stderr=True)
        self.lines: list[str] = []

    def tell(self, line: str) -> None:
        """Add one event."""
        self.lines.append(line)
        if not self.console.is_terminal:
            typer.echo(line, err=True)


@contextmanager
def screen(campaign: Campaign, progress: RunProgress, goal: str) -> Iterator[None]:
    """Keep the terminal, if there is one, up to date until the end of the block. `goal` is when the run is over."""
    if not progress.console.is_terminal:
        yield
        return
    view = _View(campaign, progress, goal)
    with Live(get_renderable=view.render, console=progress.console, refresh_per_second=PER_SECOND, transient=True):
        yield


class _View:
    def __init__(self, campaign: Campaign, progress: RunProgress, goal: str) -> None:
        self._campaign, self._progress, self._goal = campaign, progress, goal
        self._tails = [Tail(path, SENDS) for path in campaign.clients.producer_files]
        self._recent = np.empty(0, SENDS)
        self._total = 0

    def render(self) -> Group:
        """Return the current screen."""
        self._look()
        campaign = self._campaign
        now_ns = time.monotonic_ns()
        waits = (self._recent["at_ns"] - self._recent["invoked_ns"]) / 1e6
        unserved = campaign.clients.load.partitions - len(
            np.unique(self._recent["partition"][self._recent["at_ns"] > now_ns - 1e9])
        )
        figures = Table.grid(padding=(0, 3))
        figures.add_row(
            f"[b]{clock(campaign.now_s)}[/b] of {self._goal}",
            f"{len(self._recent) / RECENT_S:,.0f} acknowledged/s, {self._total:,} in all",
            f"p99 {np.quantile(waits, 0.99):,.1f} ms" if len(waits) else "p99 unknown",
            Text(f"{unserved} partitions unserved", style="red" if unserved else "green"),
        )
        counts = Counter(span.fault for span in campaign.spans)
        faults = ", ".join(f"{name} {count}" for name, count in sorted(counts.items())) or "none yet"
        going_on = "; ".join(f"{each.fault.name}: {each.what}" for each in list(campaign.struck)) or "nothing"
        acknowledged = Text("\n".join(self._progress.lines[-LINES_SHOWN:]), style="dim")
        now = Text(f"faults so far: {faults}\ngoing on: {going_on}\nanomalies: {len(campaign.anomalies)}")
        return Group(Panel(Group(figures, now), title=f"cordwood chaos run, {campaign.target.name}"), acknowledged)

    def _look(self) -> None:
        new_rows = [tail.new_rows() for tail in self._tails]
        acknowledged = np.concatenate([rows[rows["kind"] == SendKind.ACKNOWLEDGED] for rows in new_rows])
        self._total += len(acknowledged)
        recent = np.concatenate([self._recent, acknowledged])
        self._recent = recent[recent["at_ns"] > time.monotonic_ns() - int(RECENT_S * 1e9)]
