"""One Prometheus scrape, which yields to the event loop every few lines, so that it delays no request."""

import asyncio
from itertools import islice

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest

from cordwood.cluster.http.metrics.table import FAMILIES
from cordwood.cluster.http.metrics.text import lines_of
from cordwood.cluster.http.watched import Watched

LINES_PER_TURN = 100
"""They take about 0.1 ms, as do as many partitions that have no line."""


class Scraper:
    """Renders the metrics of one broker."""

    def __init__(self, watched: Watched) -> None:
        self._watched = watched
        self._process = CollectorRegistry()
        ProcessCollector(registry=self._process)

    async def scrape(self) -> bytes:
        """Return all metrics in Prometheus' text format. The numbers are not all of the same instant."""
        texts: list[str] = []
        # Each family ends an iteration: a single number may be a count over all partitions.
        for family in FAMILIES:
            lines = lines_of(family, self._watched)
            while some := list(islice(lines, LINES_PER_TURN)):
                texts.append("".join(some))
                await asyncio.sleep(0)
        return "".join(texts).encode() + generate_latest(self._process)
