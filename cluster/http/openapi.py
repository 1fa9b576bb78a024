"""The OpenAPI document of the HTTP API (`/openapi.json`), generated from the route table and the Structs."""

import ast
import inspect
import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, get_args

import msgspec

import cordwood
from cordwood.cluster.http.bodies import JSON
from cordwood.cluster.http.refusal import Mistake
from cordwood.cluster.http.route import Nothing, Route, is_list

Json = dict[str, Any]

_PLACE = re.compile(r"\{(\w+)\}")
_REF = "#/components/schemas/{name}"

_SUCCESS = {200: "The request succeeded.", 201: "Created.", 202: "The request was accepted and is in progress."}
_MEANING = {
    400: "The request is not valid.",
    401: "The request has no valid credentials.",
    403: "The user has no right to this, or a page of another site may not send it.",
    404: "The resource does not exist.",
    408: "The body did not arrive in time.",
    409: "The state of the resource does not allow the request.",
    410: "The records are no longer locked for the receipts.",
    413: "The body, or a batch, is too large.",
    415: "The content type of the body is not supported.",
    422: "The body is not valid.",
    429: "The broker has too many requests in progress: try again later.",
    503: "The cluster cannot serve the request now: try again later.",
}
_ALWAYS = (400, 401, 403)
_WITH_BODY = (408, 413, 415, 422, 429)


def description_of(routes: Sequence[Route[Any, Any]]) -> Json:
    """Return the OpenAPI 3.1 document."""
    bodies = [shape for route in routes for shape in (route.body, route.returns) if shape is not Nothing]
    components = _components(dict.fromkeys([Mistake, *bodies]))
    queries = _components(dict.fromkeys(route.query for route in routes))
    paths: dict[str, Json] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, queries)
    for route in routes:
        queries.pop(route.query.__name__, None)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Cordwood",
            "version": cordwood.__version__,
            "description": (
                "Every broker answers for the whole cluster. Offset ranges are half-open: an end is the offset of"
                " the next record."
            ),
        },
        "paths": paths,
        "components": {"schemas": {**queries, **components}},
    }


def _operation(route: Route[Any, Any], queries: Json) -> Json:
    operation: Json = {
        "summary": route.summary,
        "description": route.description,
        "operationId": route.answer.__name__,
        "tags": [route.path.split("/")[2]],
        "parameters": [*_places(route.path), *_query(route.query, queries[route.query.__name__]), *route.headers],
        "responses": _responses(route),
    }
    if route.has_body:
        content = {kind: {"schema": _body_schema(route, kind)} for kind in route.content_types}
        operation["requestBody"] = {"required": True, "content": content}
    return operation


def _places(path: str) -> Iterable[Json]:
    for name in _PLACE.findall(path):
        yield {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}


def _query(shape: type[msgspec.Struct], schema: Json) -> Iterable[Json]:
    """Yield one parameter per field of the query."""
    for field in msgspec.structs.fields(shape):
        described = dict(schema["properties"][field.encode_name])
        note = described.pop("description", None)
        yield {
            "name": field.encode_name,
            "in": "query",
            "required": field.required,
            "schema": described,
            **({} if note is None else {"description": note}),
            **({"explode": True} if is_list(field.type) else {}),
        }


def _components(shapes: Iterable[type]) -> Json:
    """Return the schemas of these Structs and of those in them, with attribute docstrings as descriptions."""
    _, components = msgspec.json.schema_components(list(shapes), ref_template=_REF)
    for shape in _with_inner(shapes):
        properties = components[shape.__name__]["properties"]
        for name, note in notes_of(shape).items():
            # OpenAPI 3.1 allows a description beside a $ref.
            properties[name].setdefault("description", note)
    return components


def notes_of(shape: type[msgspec.Struct]) -> dict[str, str]:
    """Return the docstrings by the fields' JSON names. Fields without a docstring are left out."""
    try:
        source = inspect.getsource(shape)
    except OSError:
        # Installed without the source: there are no descriptions.
        return {}
    names = {field.name: field.encode_name for field in msgspec.structs.fields(shape)}
    return {names[name]: note for name, note in _notes(source) if name in names}


def _notes(source: str) -> Iterator[tuple[str, str]]:
    (shape,) = ast.parse(textwrap.dedent(source)).body
    assert isinstance(shape, ast.ClassDef), "a Struct is a class"
    for field, note in zip(shape.body, shape.body[1:], strict=False):
        match field, note:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                yield name, " ".join(text.split())


def _with_inner(shapes: Iterable[Any]) -> Iterable[type[msgspec.Struct]]:
    for shape in shapes:
        if isinstance(shape, type) and issubclass(shape, msgspec.Struct):
            yield shape
            yield from _with_inner(field.type for field in msgspec.structs.fields(shape))
        else:
            yield from _with_inner(get_args(shape))


def _body_schema(route: Route[Any, Any], content_type: str) -> Json:
    return _schema(route.body) if content_type == JSON else {"type": "string", "format": "binary"}


def _responses(route: Route[Any, Any]) -> Json:
    refusals = {*_ALWAYS, *route.refusals, *(_WITH_BODY if route.has_body else ())}
    answers = {kind: {"schema": _schema(route.returns)} for kind in route.response_types}
    return {
        **{str(status): {"description": _SUCCESS[status], "content": answers} for status in route.statuses},
        **{
            str(status): {"description": _MEANING[status], "content": {JSON: {"schema": _schema(Mistake)}}}
            for status in sorted(refusals)
        },
    }


def _schema(shape: type) -> Json:
    return {"$ref": _REF.format(name=shape.__name__)}
