"""One row of the API's table: a method and a path, the shapes that go in and out, and who answers."""

import functools
import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, get_args, get_origin

import msgspec
from aiohttp import web
from kio.schema.errors import ErrorCode

from cordwood.cluster.http.bodies import JSON, check_content_type
from cordwood.cluster.http.context import Context
from cordwood.cluster.http.refusal import HttpRefusal, json_response

Q = TypeVar("Q", bound=msgspec.Struct)
B = TypeVar("B", bound=msgspec.Struct)


class Nothing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The shape of a query or a body that there is not."""


@dataclass(frozen=True, slots=True)
class Asked(Generic[Q, B]):
    """One request, read and found to have the shape that it should."""

    context: Context
    path: Mapping[str, str]
    """What stands in the path's places."""
    query: Q
    body: B
    request: web.Request


@dataclass(frozen=True, slots=True)
class Route(Generic[Q, B]):
    """`answer` gives a Struct, to be sent as JSON, or a response of its own. It may raise HttpRefusal."""

    method: str
    path: str
    answer: Callable[[Asked[Q, B]], Awaitable[Any]]
    query: type[Q]
    body: type[B]
    returns: type
    statuses: tuple[int, ...] = (200,)
    """Of success; a Struct is sent with the first."""
    refusals: tuple[int, ...] = ()
    """Statuses that it may answer with besides, and that every route may."""
    content_types: tuple[str, ...] = (JSON,)
    """Of the body."""
    response_types: tuple[str, ...] = (JSON,)
    reads_body_itself: bool = False
    """Whether `answer` reads the body, and is given None in its place."""
    headers: tuple[dict[str, Any], ...] = ()
    """Those that are looked at, as OpenAPI describes a parameter."""

    @property
    def summary(self) -> str:
        """The first line of the answerer's docstring."""
        return self.description.partition("\n")[0]

    @property
    def description(self) -> str:
        """The answerer's docstring."""
        return inspect.getdoc(self.answer) or ""

    @property
    def has_body(self) -> bool:
        return self.body is not Nothing

    async def respond(self, request: web.Request, context: Context) -> web.StreamResponse:
        """Raises HttpRefusal."""
        query = read_query(request, self.query)
        body = await self._read_body(request, context)
        answer = await self.answer(Asked(context, request.match_info, query, body, request))
        return answer if isinstance(answer, web.StreamResponse) else json_response(answer, self.statuses[0])

    async def _read_body(self, request: web.Request, context: Context) -> Any:
        if not self.has_body:
            return Nothing()
        check_content_type(request, self.content_types)
        if self.reads_body_itself:
            return None
        async with context.bodies.read(request) as content:
            return read_json(content, self.body)


def read_query(request: web.Request, shape: type[Q]) -> Q:
    """The query as a Struct: numbers and words are taken from text. Raises HttpRefusal."""
    if not request.query_string:
        # Most requests say nothing more, and nothing is required of them.
        return shape()
    given, fields = request.rel_url.query, _fields(shape)
    for name in given:
        if name not in fields:
            known = f"There is {', '.join(fields)}." if fields else "There is none here."
            raise HttpRefusal(400, f"There is no query parameter {name!r}. {known}")
    rows = {name: given.getall(name) if is_list(fields[name].type) else given[name] for name in given}
    try:
        return msgspec.convert(rows, shape, strict=False)
    except (msgspec.ValidationError, ValueError) as error:
        raise HttpRefusal(400, f"The query is not as it should be: {_in_words(error)}.") from error


def read_json(content: bytes, shape: type[B]) -> B:
    """Raises HttpRefusal."""
    try:
        return msgspec.json.decode(content, type=shape)
    except msgspec.ValidationError as error:
        raise HttpRefusal(422, f"The body is not as it should be: {_in_words(error)}.") from error
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise HttpRefusal(400, f"The body is no JSON: {_in_words(error)}.", ErrorCode.invalid_request) from error


@functools.cache
def _fields(shape: type[msgspec.Struct]) -> Mapping[str, msgspec.structs.FieldInfo]:
    return {field.encode_name: field for field in msgspec.structs.fields(shape)}


def is_list(annotation: Any) -> bool:
    """Whether a query parameter may be given more than once."""
    return get_origin(annotation) in (list, tuple) or any(is_list(part) for part in get_args(annotation))


def _in_words(error: Exception) -> str:
    words = str(error).rstrip(".")
    return words[:1].lower() + words[1:]
