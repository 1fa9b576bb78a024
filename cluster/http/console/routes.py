"""The routes of the web console: its page, scripts and style, and the counters of its charts."""

from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from html import escape
from importlib.resources import files
from string import Template
from typing import NamedTuple

import msgspec
from aiohttp import web

from cordwood import __version__
from cordwood.cluster.http.refusal import HttpRefusal, json_response
from cordwood.cluster.http.security.access import AccessControl
from cordwood.cluster.http.watched import Watched
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.replication.measures import Histogram

HTML = "text/html"
_TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
_HEADERS = {
    "Cross-Origin-Opener-Policy": "same-origin",
    # The page loads only the broker's own files, and no other site may put the page into a frame.
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    # Revalidate the cached files on each use: scripts of two versions do not work together.
    "Cache-Control": "no-cache",
}
_NOT_STORED = {"Cache-Control": "no-store"}


class _File(NamedTuple):
    """A file of the package, ready to send."""

    content: bytes
    content_type: str
    tag: str


class Spread(msgspec.Struct, frozen=True):
    """A histogram of seconds: bounds, the number of values up to each bound, and the total number."""

    bounds: list[float]
    counts: list[int]
    count: int


class Pulse(msgspec.Struct, frozen=True):
    """Counters of this broker since its start, of which two samples make a rate. `/metrics` has these and more."""

    broker_id: int
    why_not_ready: str | None
    connections: int
    produced_bytes: int
    """Bytes of Produce requests."""
    fetched_bytes: int
    """Bytes of Fetch responses."""
    produce_seconds: Spread
    flush_seconds: Spread
    """Group commits: one fdatasync for all batches that were waiting."""


def pulse_of(watched: Watched) -> Pulse:
    """Return the current counters."""
    produce, fetch = watched.requests.by_api[ApiKey.PRODUCE], watched.requests.by_api[ApiKey.FETCH]
    return Pulse(
        broker_id=int(watched.broker_id),
        why_not_ready=watched.why_not_ready(),
        connections=watched.connection_count(),
        produced_bytes=produce.received_bytes,
        fetched_bytes=fetch.sent_bytes,
        produce_seconds=_spread(produce.seconds),
        flush_seconds=_spread(watched.flushes.seconds),
    )


def _spread(histogram: Histogram) -> Spread:
    pairs = list(histogram.cumulative())
    return Spread([bound for bound, _ in pairs], [count for _, count in pairs], histogram.count)


class ConsoleRoutes:
    """The console of one broker, which shows the whole cluster as that broker sees it."""

    def __init__(self, watched: Watched, access_control: AccessControl) -> None:
        self._watched, self._access_control = watched, access_control

    def table(self) -> list[web.RouteDef]:
        return [
            web.get("/", self._page),
            web.get("/login", self._login),
            web.get("/console/pulse", self._pulse),
            web.get("/console/{file}", self._static),
        ]

    async def _page(self, request: web.Request) -> web.Response:
        """Send the page. It has the name of the user and the CSRF token, which pages of other sites cannot read."""
        try:
            access = self._access_control.of(request)
        except HttpRefusal as refused:
            if refused.status != 401:
                raise
            if "Authorization" in request.headers:
                self._access_control.note_refusal(request, refused)
            # The browser keeps the part of the address after the #, which names the view.
            return web.Response(status=302, headers={**_HEADERS, **_NOT_STORED, "Location": "/login"})
        identity, session = access.identity, access.session
        page = _template("page.html").substitute(
            broker=int(self._watched.broker_id),
            cluster=escape(self._watched.quorum.image.cluster_id),
            version=escape(__version__),
            user=escape(identity.principal.name) if identity.mechanism else "",
            csrf=escape("" if session is None else session.csrf_token),
            may_log_in="" if self._access_control.may_log_in else "hidden",
        )
        response = _sent(request, _file(page.encode(), HTML))
        if identity.mechanism:
            response.headers.update(_NOT_STORED)
        return response

    async def _login(self, request: web.Request) -> web.Response:
        page = _template("login.html").substitute(broker=int(self._watched.broker_id))
        return _sent(request, _file(page.encode(), HTML))

    async def _static(self, request: web.Request) -> web.Response:
        found = _static_files().get(request.match_info["file"])
        if found is None:
            return HttpRefusal(404, f"The console has no file {request.match_info['file']!r}.").response()
        return _sent(request, found)

    async def _pulse(self, _request: web.Request) -> web.Response:
        return json_response(pulse_of(self._watched), headers=_NOT_STORED)


def _sent(request: web.Request, file: _File) -> web.Response:
    headers = {**_HEADERS, "ETag": f'"{file.tag}"'}
    if any(tag.value == file.tag for tag in request.if_none_match or ()):
        return web.Response(status=304, headers=headers)
    return web.Response(body=file.content, content_type=file.content_type, charset="utf-8", headers=headers)


@cache
def _template(name: str) -> Template:
    return Template(files(__package__).joinpath(name).read_text("utf-8"))


@cache
def _static_files() -> Mapping[str, _File]:
    """Return the console's files by name. They are read on the first request."""
    found = files(__package__).joinpath("static").iterdir()
    return {each.name: _file(each.read_bytes(), _TYPES[each.name.rpartition(".")[2]]) for each in found}


def _file(content: bytes, content_type: str) -> _File:
    return _File(content, content_type, sha256(content).hexdigest()[:16])
