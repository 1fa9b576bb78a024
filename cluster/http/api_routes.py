"""The HTTP API on aiohttp: validated requests, JSON responses and error responses for every route."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from aiohttp import web
from kio.schema.errors import ErrorCode

from cordwood.cluster.http.api.table import ROUTES
from cordwood.cluster.http.cluster_client import Unanswered
from cordwood.cluster.http.context import Context
from cordwood.cluster.http.openapi import description_of
from cordwood.cluster.http.refusal import HttpRefusal, json_response
from cordwood.cluster.http.route import Route

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class ApiRoutes:
    """The routes `/v1/…` and `/openapi.json`."""

    def __init__(self, context: Context, routes: Sequence[Route[Any, Any]] = ROUTES) -> None:
        self._context, self._routes = context, routes

    def table(self) -> list[web.RouteDef]:
        """Return the route definitions in the order of matching."""
        return [web.get("/openapi.json", self._openapi), *map(self._row, self._routes)]

    def _row(self, route: Route[Any, Any]) -> web.RouteDef:
        # A HEAD request for a stream would take as long as the stream.
        options = {"allow_head": False} if route.method == "GET" else {}
        return web.route(route.method, route.path, self._handler(route), **options)

    def _handler(self, route: Route[Any, Any]) -> Handler:
        async def handle(request: web.Request) -> web.StreamResponse:
            try:
                return await route.respond(request, self._context)
            except HttpRefusal as refusal:
                return refusal.response()
            except Unanswered as unanswered:
                return HttpRefusal(503, str(unanswered), ErrorCode.broker_not_available).response()

        return handle

    async def _openapi(self, _request: web.Request) -> web.Response:
        return json_response(description_of(self._routes))
