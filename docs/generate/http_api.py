"""The routes of the HTTP API, from the table that serves them."""

from typing import Any

import pages

from cordwood.cluster.http.api.table import ROUTES
from cordwood.cluster.http.openapi import description_of
from cordwood.cluster.http.security.rights import OPEN_ROUTES

_HEAD = (
    "[HTTP](../http.md) explains their use. A broker's `/openapi.json` has all schemas. *Each* means the rights on each"
    " resource of the request or the response, as the Kafka API for the same purpose requires them."
)


def page() -> str:
    """docs/reference/http.md."""
    description = description_of(ROUTES)
    rows = [
        (f"`{method.upper()} {path}`", operation["summary"], _rights(method, path), _parameters(operation))
        for path, methods in sorted(description["paths"].items())
        for method, operation in methods.items()
    ]
    lines = [
        "# HTTP routes",
        "",
        pages.heading_note("cluster/http/api"),
        _HEAD,
        "",
        *pages.table(["route", "what it does", "rights", "parameters"], rows),
    ]
    return "\n".join(lines) + "\n"


def _rights(method: str, path: str) -> str:
    if (method.upper(), path) in OPEN_ROUTES:
        return "none, without a login"
    (route,) = (route for route in ROUTES if (route.method, route.path) == (method.upper(), path))
    each = [f"{right} of each" for right in route.each]
    return ", ".join([*map(str, route.requires), *each]) or "any login"


def _parameters(operation: dict[str, Any]) -> str:
    return ", ".join(f"`{row['name']}`" for row in operation["parameters"] if row["in"] != "path")
