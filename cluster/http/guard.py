"""Who may ask: nobody by way of a browser that shows a page of another site. Pure.

There are no cookies and no passwords to steal here; but a page from elsewhere, in the browser of somebody who can reach
the broker, must not be able to change anything (cross-site requests), nor to read anything by having its own name lead
to the broker's address (DNS rebinding).
"""

from collections.abc import Mapping
from urllib.parse import urlsplit

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


def is_loopback(host: str) -> bool:
    """Whether an address to listen on is reached from this machine alone."""
    return host in LOOPBACK_NAMES or host.startswith("127.")


def why_not(method: str, headers: Mapping[str, str], bound_host: str) -> str | None:
    """In a sentence why a request with these headers is not answered; None where it is."""
    host = headers.get("Host", "")
    if is_loopback(bound_host) and _name_in(host) not in LOOPBACK_NAMES | {bound_host.lower()}:
        return f"This broker listens on {bound_host} only: ask it by that name, and not as {host!r}."
    if method in SAFE_METHODS:
        return None
    origin = headers.get("Origin")
    if origin is not None and urlsplit_host(origin) != host.lower():
        return f"Pages of {origin!r} may not change anything here."
    if headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
        return "Pages of other sites may not change anything here."
    return None


def urlsplit_host(origin: str) -> str | None:
    """Host and port of a page's origin; None where there are none, as of a page out of a file."""
    try:
        return urlsplit(origin).netloc.lower() or None
    except ValueError:
        return None


def _name_in(host: str) -> str:
    """A Host header without its port."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower()
