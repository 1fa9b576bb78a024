"""The listening side of HTTP: one address, few connections, and a sentence for every mistake."""

import asyncio
import logging

import structlog
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.typedefs import Handler

from cordwood.cluster.http.routes import Routes
from cordwood.cluster.http.watched import Watched

CONNECTIONS_MAX = 64
BACKLOG = 16
HEADERS_MAX = 64
HEADER_BYTES_MAX = 4096
IDLE_S = 75.0
"""A connection without a whole request for this long is closed. aiohttp counts from its beginning since 3.14."""
UNREAD_BODY_S = 1.0
CLOSE_S = 1.0

_events = structlog.get_logger("http")


class HttpServer:
    """What is told of one broker, in that broker's own loop."""

    def __init__(self, watched: Watched) -> None:
        application = web.Application(middlewares=[_mistakes_in_words])
        application.add_routes(Routes(watched).table())
        self._runner = web.AppRunner(
            application,
            access_log=None,
            logger=_library_log(),
            keepalive_timeout=IDLE_S,
            lingering_time=UNREAD_BODY_S,
            max_line_size=HEADER_BYTES_MAX,
            max_field_size=HEADER_BYTES_MAX,
            max_headers=HEADERS_MAX,
            shutdown_timeout=CLOSE_S,
        )
        self._listening: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen and answer. Returns the port, which the system chooses for 0. Raises OSError."""
        await self._runner.setup()
        loop = asyncio.get_running_loop()
        try:
            listening = await loop.create_server(self._connection, host, port, backlog=BACKLOG)
        except OSError as error:
            raise OSError(error.errno, f"cannot listen: {error.strerror}", f"http.listen on {host}:{port}") from error
        self._listening = listening
        bound: int = listening.sockets[0].getsockname()[1]
        _events.info("http.listening", host=host, port=bound)
        return bound

    async def close(self) -> None:
        """Finish the answers that are under way, and end all connections."""
        if self._listening is not None:
            self._listening.close()
        await self._runner.cleanup()

    def _connection(self) -> asyncio.Protocol:
        """One more. The oldest makes room where there are too many: those that hang keep no health check out."""
        server = self._runner.server
        assert server is not None, "nobody connects before the start"
        connections = server.connections
        for oldest in connections[: max(0, len(connections) + 1 - CONNECTIONS_MAX)]:
            if oldest.transport is not None:
                oldest.transport.abort()
        return server()


class _Retelling(logging.Handler):
    """The library's log in ours. What a client gets wrong is a line there, and no traceback."""

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, HttpProcessingError):
            _events.warning("http.refused", reason=error.message)
        else:
            _events.error("http.failed", message=record.getMessage(), exc_info=error)


def _library_log() -> logging.Logger:
    log = logging.Logger("http", logging.INFO)
    log.addHandler(_Retelling())
    return log


@web.middleware
async def _mistakes_in_words(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except web.HTTPMethodNotAllowed as refused:
        methods = ", ".join(sorted(refused.allowed_methods))
        return _mistake(405, f"{request.path} takes {methods}, and not {request.method}.", {"Allow": methods})
    except web.HTTPNotFound:
        known = sorted({resource.canonical for resource in request.app.router.resources()})
        return _mistake(404, f"There is nothing at {request.path}. There is {', '.join(known)}.")
    except web.HTTPException:
        raise
    except Exception as error:
        _events.error("http.failed", path=request.path, exc_info=error)
        return _mistake(500, "The broker could not answer: its log says why.")


def _mistake(status: int, sentence: str, headers: dict[str, str] | None = None) -> web.Response:
    return web.json_response({"error": sentence}, status=status, headers=headers)
