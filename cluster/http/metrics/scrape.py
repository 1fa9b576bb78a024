"""One scrape: all metrics as text, made a few lines at a time, so that no request waits for more than those."""

import asyncio
from itertools import islice

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest

from cordwood.cluster.http.metrics.table import FAMILIES
from cordwood.cluster.http.metrics.text import lines_of
from cordwood.cluster.http.watched import Watched

LINES_PER_TURN = 100
"""They take about 0.1 ms."""


class Scraper:
    """Makes the text of one broker's metrics."""

    def __init__(self, watched: Watched) -> None:
        self._watched = watched
        self._process = CollectorRegistry()
        ProcessCollector(registry=self._process)

    async def scrape(self) -> bytes:
        """In Prometheus' text format. Others have their turns meanwhile, so not all numbers are of the same moment."""
        texts: list[str] = []
        # A turn ends with each family: a single number may be counted over all partitions.
        for family in FAMILIES:
            lines = lines_of(family, self._watched)
            while text := "".join(islice(lines, LINES_PER_TURN)):
                texts.append(text)
                await asyncio.sleep(0)
        return "".join(texts).encode() + generate_latest(self._process)
