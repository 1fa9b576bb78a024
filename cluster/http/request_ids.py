"""HTTP request ids (X-Request-ID), for finding a request in the broker's log."""

import itertools
import re

from aiohttp import web
from aiohttp.typedefs import Handler

HEADER = "X-Request-ID"

_ID = web.RequestKey("_ID", str)
_NAME = re.compile(r"[\w.:/+-]{1,100}", re.ASCII)


class RequestIds:
    """Takes the client's request id if it is safe for a log line, otherwise the next number."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    def join(self, application: web.Application) -> None:
        """Assign an id to each request of the application, and send it with each response."""
        application.middlewares.insert(0, self._name)
        application.on_response_prepare.append(_tell)

    @web.middleware
    async def _name(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        given = request.headers.get(HEADER, "")
        request[_ID] = given if _NAME.fullmatch(given) else str(next(self._numbers))
        return await handler(request)


def id_of(request: web.Request) -> str:
    """Return the request's id."""
    return request[_ID]


async def _tell(request: web.Request, response: web.StreamResponse) -> None:
    response.headers[HEADER] = id_of(request)
