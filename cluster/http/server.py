"""The HTTP server: one listener, a bounded number of connections, and an error message for every mistake."""

import asyncio
import functools
import itertools
import logging
import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import msgspec
import structlog
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.typedefs import Handler
from aiohttp.web_protocol import RequestHandler
from kio.schema.errors import ErrorCode

from cordwood.cluster.config.listeners import HTTP
from cordwood.cluster.http.api.table import ROUTES
from cordwood.cluster.http.bodies import HEADER_BYTES_MAX, JSON
from cordwood.cluster.http.console.routes import ConsoleRoutes
from cordwood.cluster.http.context import Context
from cordwood.cluster.http.guard import Guard
from cordwood.cluster.http.openapi import description_of
from cordwood.cluster.http.readers import Readers
from cordwood.cluster.http.refusal import HttpRefusal
from cordwood.cluster.http.route import Route
from cordwood.cluster.http.routes import Routes
from cordwood.cluster.http.security.access import Access, AccessControl
from cordwood.cluster.http.watched import Watched
from cordwood.cluster.kafka.cluster_client import Unanswered
from cordwood.cluster.security.tls_listener import TlsListener
from cordwood.cluster.security.tls_owner import TlsState
from cordwood.cluster.security.tls_transport import TlsTransport

if TYPE_CHECKING:
    from cordwood.cluster.security.tls import Tls

CONNECTIONS_MAX = 256
BACKLOG = 16
LINE_BYTES_MAX = 4096
HEADERS_MAX = 40
IDLE_S = 75.0
"""The idle timeout of a connection. Since 3.14, aiohttp counts this from the beginning of the connection."""
UNREAD_BODY_S = 1.0
CLOSE_S = 1.0
FOR_ALL = frozenset({"/healthz", "/readyz", "/metrics"})
"""Paths that are served under any host name, for monitoring."""

REQUEST_ID = "X-Request-ID"
"""The header of a request's id, for finding the request in the broker's log."""

HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
"""Default headers of all responses: no page may keep, run, frame or embed a response."""

_ID = web.RequestKey("_ID", str)
_ACCESS = web.RequestKey("_ACCESS", Access)
_QUOTED = re.compile(r"\\n|\n|\bb['\"]")
_SAFE_ID = re.compile(r"[\w.:/+-]{1,100}", re.ASCII)
_events = structlog.get_logger("http")


class HttpServer:
    """The HTTP server of one broker, on that broker's event loop."""

    def __init__(
        self,
        watched: Watched,
        access_control: AccessControl,
        context: Context | None = None,
        names: frozenset[str] = frozenset(),
    ) -> None:
        """Serve only this broker's own state if `context` is None. `names` are the accepted host names."""
        self._access_control, self._names, self._context = access_control, names, context
        self._proved: set[RequestHandler] = set()
        """The connections with a request that had valid credentials. Closed ones go when the next client connects."""
        self._pauses, self._clock = watched.pauses, watched.requests.clock
        application = web.Application(middlewares=[_mistakes_in_words, self._guarded])
        RequestIds().join(application)
        application.add_routes(Routes(watched).table())
        if context is not None:
            application.add_routes(_api_routes(context))
            application.add_routes(ConsoleRoutes(watched, access_control).table())
        application.on_response_prepare.append(_protect)
        self._runner = web.AppRunner(
            application,
            access_log=None,
            logger=library_log(),
            keepalive_timeout=IDLE_S,
            lingering_time=UNREAD_BODY_S,
            max_line_size=LINE_BYTES_MAX,
            max_field_size=HEADER_BYTES_MAX,
            max_headers=HEADERS_MAX,
            # A client that has not logged in could otherwise keep the event loop busy with decompression.
            auto_decompress=False,
            shutdown_timeout=CLOSE_S,
            # aiohttp otherwise notices a closed connection only on the next write, which may never happen.
            handler_cancellation=True,
        )
        self._listening: asyncio.Server | None = None
        self._handshakes: TlsListener | None = None
        self._shaking: dict[TlsTransport, None] = {}
        self._readers = Readers(self._connections, watched.memory.http_unsent)

    async def start(self, host: str, port: int, tls: "Tls | None" = None) -> int:
        """Listen, with TLS if it is given. Return the port, which the system chooses for 0. Raises OSError."""
        self._guard = Guard(host, self._names)
        await self._runner.setup()
        loop = asyncio.get_running_loop()
        try:
            listening = await loop.create_server(self._factory(tls), host, port, backlog=BACKLOG)
        except OSError as error:
            raise OSError(error.errno, f"cannot listen: {error.strerror}", f"http.listen on {host}:{port}") from error
        self._listening = listening
        self._pauses.start()
        self._readers.start()
        bound: int = listening.sockets[0].getsockname()[1]
        _events.info("http.listening", host=host, port=bound)
        return bound

    async def close(self) -> None:
        """Finish the responses in progress, and close all connections."""
        self._pauses.stop()
        self._readers.stop()
        if self._listening is not None:
            self._listening.close()
        if self._handshakes is not None:
            self._handshakes.close()
        await self._runner.cleanup()
        if self._context is not None:
            await self._context.close()

    @property
    def routes(self) -> Iterable[web.AbstractRoute]:
        """All routes."""
        return self._runner.app.router.routes()

    @web.middleware
    async def _guarded(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            self._admit(request)
            answer = await handler(request)
        except HttpRefusal as refusal:
            answer = refusal.response()
        self._readers.check()
        return answer

    def _admit(self, request: web.Request) -> None:
        """Find out who sends a request. Raises HttpRefusal."""
        reason = None if request.path in FOR_ALL else self._guard.why_not(request.method, request.headers)
        if reason is not None:
            refused = HttpRefusal(403, reason)
            self._access_control.note_refusal(request, refused)
            raise refused
        request[_ACCESS] = access = self._access_control.admit(request)
        if access.identity.mechanism:
            self._proved.add(request.protocol)

    def _connections(self) -> list[RequestHandler]:
        return [] if self._runner.server is None else self._runner.server.connections

    def _factory(self, tls: "Tls | None") -> Callable[[], asyncio.BaseProtocol]:
        if tls is None:
            return self._connection
        self._handshakes = TlsListener(HTTP, tls.server_context, self, self._clock)
        return self._handshake

    def _handshake(self) -> asyncio.BaseProtocol:
        assert self._handshakes is not None
        assert self._runner.server is not None, "no client connects before the start"
        return self._handshakes.wrap(self._runner.server())

    def shaking(self, transport: TlsTransport) -> None:
        """Count a TLS connection before its handshake; the oldest above CONNECTIONS_MAX is refused."""
        self._shaking[transport] = None
        if len(self._shaking) > CONNECTIONS_MAX:
            next(iter(self._shaking)).refuse(f"more than {CONNECTIONS_MAX} HTTP connections are in their handshake")

    def shaken(self, transport: TlsTransport) -> None:
        self._shaking.pop(transport, None)
        if transport.state is TlsState.OPEN:
            self._make_room()

    def failed(self, _listener: str, host: str, reason: str) -> None:
        """Take note of a TLS handshake that failed."""
        self._access_control.note_handshake(host, reason)

    def _connection(self) -> asyncio.Protocol:
        """Accept a connection, and abort the oldest above CONNECTIONS_MAX, so that health checks get through."""
        server = self._runner.server
        assert server is not None, "no client connects before the start"
        self._make_room()
        return server()

    def _make_room(self) -> None:
        """Abort the oldest connections above CONNECTIONS_MAX.

        Clients without a login are closed first, so that they cut off no streams of users.
        """
        connections = self._connections()
        self._proved.intersection_update(connections)
        count = max(0, len(connections) + 1 - CONNECTIONS_MAX)
        for oldest in sorted(connections, key=self._proved.__contains__)[:count] if count else ():
            if oldest.transport is not None:
                oldest.transport.abort()


DESCRIPTION_BYTES = 1 << 20
"""More than the OpenAPI document has."""


@functools.cache
def _description() -> bytes:
    """Return the OpenAPI document, which takes a fifth of a second to make."""
    return msgspec.json.encode(description_of(ROUTES))


def _api_routes(context: Context) -> list[web.RouteDef]:
    """Return `/openapi.json` and the routes `/v1/…`, in the order of matching."""

    async def openapi(_request: web.Request) -> web.Response:
        return web.Response(body=await context.decoding.run(_description, size=DESCRIPTION_BYTES), content_type=JSON)

    return [web.get("/openapi.json", openapi), *(_api_route(route, context) for route in ROUTES)]


def _api_route(route: Route[Any, Any], context: Context) -> web.RouteDef:
    async def handle(request: web.Request) -> web.StreamResponse:
        try:
            return await route.respond(request, context.under(request[_ACCESS]))
        except HttpRefusal as refusal:
            return refusal.response()
        except Unanswered as unanswered:
            return HttpRefusal(503, str(unanswered), ErrorCode.broker_not_available).response()

    # A HEAD request for a stream would take as long as the stream.
    options = {"allow_head": False} if route.method == "GET" else {}
    return web.route(route.method, route.path, handle, **options)


class _Retelling(logging.Handler):
    """Forwards aiohttp's log to the broker's. A client's protocol error is one line, without a traceback."""

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, HttpProcessingError):
            # The message quotes the request, which may have a password or a token.
            _events.warning("http.refused", reason=_QUOTED.split(error.message)[0].strip())
        elif not isinstance(error, ConnectionError):
            # Otherwise the client has disconnected before its response, such as that to `Expect: 100-continue`.
            _events.error("http.failed", message=record.getMessage(), exc_info=error)


def library_log() -> logging.Logger:
    """Return a log for aiohttp."""
    log = logging.Logger("http", logging.INFO)
    log.addHandler(_Retelling())
    return log


@web.middleware
async def _mistakes_in_words(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except web.HTTPMethodNotAllowed as refused:
        methods = ", ".join(sorted(refused.allowed_methods))
        sentence = f"{request.path} does not support {request.method}: use {methods}."
        response = HttpRefusal(405, sentence).response()
        response.headers["Allow"] = methods
        return response
    except web.HTTPNotFound:
        known = sorted({resource.canonical for resource in request.app.router.resources()})
        return HttpRefusal(404, f"There is no route {request.path}. The routes are {', '.join(known)}.").response()
    except web.HTTPException as refused:
        return HttpRefusal(refused.status, f"{refused.reason}.").response()
    except (ConnectionError, asyncio.CancelledError):
        # The client has disconnected: there is no response to send.
        raise
    except Exception as error:
        _events.error("http.failed", request=id_of(request), method=request.method, path=request.path, exc_info=error)
        sentence = "The broker failed to answer the request: see its log."
        return HttpRefusal(500, sentence, ErrorCode.unknown_server_error).response()


class RequestIds:
    """Takes the client's request id if it is safe for a log line, otherwise the next number."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    def join(self, application: web.Application) -> None:
        """Assign an id to each request of the application, and send it with each response."""
        application.middlewares.insert(0, self._name)
        application.on_response_prepare.append(_add_request_id)

    @web.middleware
    async def _name(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        given = request.headers.get(REQUEST_ID, "")
        request[_ID] = given if _SAFE_ID.fullmatch(given) else str(next(self._numbers))
        return await handler(request)


def id_of(request: web.Request) -> str:
    """Return the request's id."""
    return request[_ID]


async def _protect(_request: web.Request, response: web.StreamResponse) -> None:
    for name, text in HEADERS.items():
        response.headers.setdefault(name, text)


async def _add_request_id(request: web.Request, response: web.StreamResponse) -> None:
    # aiohttp itself refuses an unknown Expect header, before the request has an id.
    if _ID in request:
        response.headers[REQUEST_ID] = id_of(request)
