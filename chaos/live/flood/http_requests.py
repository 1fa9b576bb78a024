"""HTTP requests of the largest size: every route that only reads, and the one that produces records."""

import json
import random
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from cordwood.chaos.live.flood.aim import Names
from cordwood.cluster.http.api.table import ROUTES
from cordwood.cluster.http.records import write
from cordwood.cluster.http.route import Route, is_list

PLAIN_PATHS = ("/metrics", "/v1/status", "/healthz", "/readyz", "/openapi.json")
READ = tuple(route for route in ROUTES if route.method == "GET")
PLACE = re.compile(r"\{(\w+)\}")
COUNTS = (1, 100, 10_000)
RECORD_CHARS = (0, 100, 1000)
PLAIN_SHARE, WRITE_SHARE = 0.2, 0.2
STREAMED_SHARE = 0.1
WORDS = ("0", "1", "1000000", "earliest", "@0", "k", "true")


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One request, and its description."""

    what: str
    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes | None = None


def http_request(rng: random.Random, names: Names) -> HttpRequest:
    """Return a random request."""
    share = rng.random()
    if share < PLAIN_SHARE:
        path = rng.choice(PLAIN_PATHS)
        return HttpRequest(f"GET {path}", "GET", path, {})
    if share < PLAIN_SHARE + WRITE_SHARE:
        return _write(rng, names)
    return _read(rng, rng.choice(READ), names)


def _write(rng: random.Random, names: Names) -> HttpRequest:
    count, chars = rng.choice(COUNTS), rng.choice(RECORD_CHARS)
    body = json.dumps({"records": [{"key": "k", "value": "x" * chars}] * count}).encode()
    path = write.ROUTE.path.replace("{topic}", rng.choice(names.topics))
    what = f"POST {write.ROUTE.path}, {count:,} records, {len(body):,} bytes"
    return HttpRequest(what, "POST", path, {"Content-Type": "application/json"}, body)


def _read(rng: random.Random, route: Route[Any, Any], names: Names) -> HttpRequest:
    values = {"topic": (*names.topics, names.bystander_topic), "group": (*names.groups, *names.bystander_groups)}
    path = PLACE.sub(lambda place: quote(rng.choice(values.get(place[1], ("1", "unknown")))), route.path)
    query: list[tuple[str, str]] = []
    for field in msgspec.structs.fields(route.query):
        if rng.random() < 0.4:
            count = rng.choice((1, 100)) if is_list(field.type) else 1
            query += [(field.encode_name, rng.choice(WORDS)) for _ in range(count)]
    is_streamed = len(route.response_types) > 1 and rng.random() < STREAMED_SHARE
    headers = {"Accept": "text/event-stream"} if is_streamed else {}
    target = f"{path}?{urlencode(query)}" if query else path
    return HttpRequest(f"GET {target[:200]}", "GET", target, headers)
