"""The routes of the HTTP API, from the table that serves them."""

from typing import Any

import pages

from cordwood.cluster.http.api.table import ROUTES
from cordwood.cluster.http.openapi import description_of

_HEAD = "[HTTP](../http.md) explains their use. A broker's `/openapi.json` has all schemas."


def page() -> str:
    """docs/reference/http.md."""
    description = description_of(ROUTES)
    rows = [
        (f"`{method.upper()} {path}`", operation["summary"], _parameters(operation))
        for path, methods in sorted(description["paths"].items())
        for method, operation in methods.items()
    ]
    lines = [
        "# HTTP routes",
        "",
        pages.heading_note("cluster/http/api"),
        _HEAD,
        "",
        *pages.table(["route", "what it does", "parameters"], rows),
    ]
    return "\n".join(lines) + "\n"


def _parameters(operation: dict[str, Any]) -> str:
    return ", ".join(f"`{row['name']}`" for row in operation["parameters"] if row["in"] != "path")
