"""An HTTP API route: method, path, request and response types, and the handler."""

import functools
import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, get_args, get_origin

import msgspec
from aiohttp import web
from kio.schema.errors import ErrorCode

from cordwood.cluster.http.bodies import JSON, JSON_BYTES_MAX, check_content_type, check_json_size
from cordwood.cluster.http.context import Context
from cordwood.cluster.http.json_rows import rows_encoded
from cordwood.cluster.http.refusal import HttpRefusal, json_response
from cordwood.cluster.http.security.rights import RouteRight

Q = TypeVar("Q", bound=msgspec.Struct)
B = TypeVar("B", bound=msgspec.Struct)


class Nothing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The type of an absent query or body."""


class DryRun(msgspec.Struct, frozen=True):
    """The options of a change."""

    dry_run: bool = False
    """Validate the request, and change nothing."""


@dataclass(frozen=True, slots=True)
class ApiRequest(Generic[Q, B]):
    """One validated request."""

    context: Context
    path: Mapping[str, str]
    """The values of the path's parameters."""
    query: Q
    body: B
    request: web.Request


@dataclass(frozen=True, slots=True)
class Route(Generic[Q, B]):
    """One route. `answer` returns a Struct, which is sent as JSON, or a response. It may raise HttpRefusal."""

    method: str
    path: str
    answer: Callable[[ApiRequest[Q, B]], Awaitable[Any]]
    query: type[Q]
    body: type[B]
    returns: type
    statuses: tuple[int, ...] = (200,)
    """Success statuses; a Struct is sent with the first."""
    requires: tuple[RouteRight, ...] = field(kw_only=True)
    """The rights that the client must have. They are checked before the body is read."""
    each: tuple[RouteRight, ...] = ()
    """The rights for each resource in the body or the response: a Kafka API checks them, or `answer` does."""
    refusals: tuple[int, ...] = ()
    """Error statuses besides those that every route may return."""
    content_types: tuple[str, ...] = (JSON,)
    """The accepted content types of the body."""
    response_types: tuple[str, ...] = (JSON,)
    body_bytes_max: int = JSON_BYTES_MAX
    reads_body_itself: bool = False
    """True if `answer` reads the body; `answer` then gets None as the body."""
    headers: tuple[dict[str, Any], ...] = ()
    """Request headers that the handler reads, as OpenAPI parameters."""

    @property
    def summary(self) -> str:
        """The first line of the handler's docstring."""
        return self.description.partition("\n")[0]

    @property
    def description(self) -> str:
        """The handler's docstring."""
        return inspect.getdoc(self.answer) or ""

    @property
    def has_body(self) -> bool:
        return self.body is not Nothing

    async def respond(self, request: web.Request, context: Context) -> web.StreamResponse:
        """Handle one request. Raises HttpRefusal."""
        for right in self.requires:
            context.access.check(right, right.name_in(request.match_info))
        query = read_query(request, self.query)
        body = await self._read_body(request, context)
        answer = await self.answer(ApiRequest(context, request.match_info, query, body, request))
        if isinstance(answer, web.StreamResponse):
            return answer
        return json_response(await context.turns.run(rows_encoded(answer)), self.statuses[0])

    async def _read_body(self, request: web.Request, context: Context) -> Any:
        if not self.has_body:
            return Nothing()
        check_content_type(request, self.content_types)
        if self.reads_body_itself:
            return None
        async with context.bodies.read(request, self.body_bytes_max) as content:
            check_json_size(content)
            return read_json(content, self.body)


def read_query(request: web.Request, shape: type[Q]) -> Q:
    """Return the query as a Struct; values are converted from text. Raises HttpRefusal."""
    if not request.query_string:
        # Most requests have no query, and no field is required.
        return shape()
    given, fields = request.rel_url.query, _fields(shape)
    for name in given:
        if name not in fields:
            known = f"There is {', '.join(fields)}." if fields else "This route has none."
            raise HttpRefusal(400, f"There is no query parameter {name!r}. {known}")
    rows = {name: given.getall(name) if is_list(fields[name].type) else given[name] for name in given}
    try:
        return msgspec.convert(rows, shape, strict=False)
    except (msgspec.ValidationError, ValueError) as error:
        raise HttpRefusal(400, f"The query is not valid: {_in_words(error)}.") from error


def read_json(content: bytes, shape: type[B]) -> B:
    """Decode a JSON body. Raises HttpRefusal."""
    try:
        return msgspec.json.decode(content, type=shape)
    except msgspec.ValidationError as error:
        raise HttpRefusal(422, f"The body is not valid: {_in_words(error)}.") from error
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise HttpRefusal(400, f"The body is not JSON: {_in_words(error)}.", ErrorCode.invalid_request) from error


@functools.cache
def _fields(shape: type[msgspec.Struct]) -> Mapping[str, msgspec.structs.FieldInfo]:
    return {field.encode_name: field for field in msgspec.structs.fields(shape)}


def is_list(annotation: Any) -> bool:
    """Return whether a query parameter may be repeated."""
    return get_origin(annotation) in (list, tuple) or any(is_list(part) for part in get_args(annotation))


def _in_words(error: Exception) -> str:
    words = str(error).rstrip(".")
    return words[:1].lower() + words[1:]
