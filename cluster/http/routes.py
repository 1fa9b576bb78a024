"""What there is to be asked over HTTP."""

import asyncio
from collections.abc import Iterable

from aiohttp import web
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from cordwood.cluster.http.metrics import registry_of
from cordwood.cluster.http.status import status_of
from cordwood.cluster.http.watched import Watched


class Routes:
    """Answers for one broker. Whoever asks only reads."""

    def __init__(self, watched: Watched) -> None:
        self._watched, self._registry = watched, registry_of(watched)

    def table(self) -> tuple[web.RouteDef, ...]:
        return (
            web.get("/healthz", self._health),
            web.get("/readyz", self._readiness),
            web.get("/metrics", self._metrics),
            web.get("/v1/status", self._status),
        )

    async def _health(self, _request: web.Request) -> web.Response:
        """The process runs, and so does its loop."""
        return web.Response(text="alive\n")

    async def _readiness(self, _request: web.Request) -> web.Response:
        reason = self._watched.why_not_ready()
        return web.Response(text="ready\n") if reason is None else web.Response(text=f"{reason}\n", status=503)

    async def _metrics(self, _request: web.Request) -> web.Response:
        text = bytearray()
        for metric in self._registry.collect():
            text += generate_latest(_Only(metric))
            # A metric of a thousand partitions takes milliseconds to write: requests do not wait for more than one.
            await asyncio.sleep(0)
        return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})

    async def _status(self, _request: web.Request) -> web.Response:
        return web.json_response(status_of(self._watched))


class _Only(Collector):
    """One metric, for a writer that asks for all there are."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def collect(self) -> Iterable[Metric]:
        return (self._metric,)
