"""The read-only routes of one broker: health, readiness, metrics and status."""

from aiohttp import web
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4

from cordwood.cluster.http.metrics.scrape import Scraper
from cordwood.cluster.http.refusal import json_response
from cordwood.cluster.http.status import status_of
from cordwood.cluster.http.watched import Watched


class Routes:
    """The routes of one broker. They change nothing."""

    def __init__(self, watched: Watched) -> None:
        self._watched, self._scraper = watched, Scraper(watched)

    def table(self) -> tuple[web.RouteDef, ...]:
        return (
            web.get("/healthz", self._health),
            web.get("/readyz", self._readiness),
            web.get("/metrics", self._metrics),
            web.get("/v1/status", self._status),
        )

    async def _health(self, _request: web.Request) -> web.Response:
        """Respond if the process and its event loop run."""
        return web.Response(text="alive\n")

    async def _readiness(self, _request: web.Request) -> web.Response:
        reason = self._watched.why_not_ready()
        return web.Response(text="ready\n") if reason is None else web.Response(text=f"{reason}\n", status=503)

    async def _metrics(self, _request: web.Request) -> web.Response:
        text = await self._scraper.scrape()
        return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})

    async def _status(self, _request: web.Request) -> web.Response:
        return json_response(await status_of(self._watched))
