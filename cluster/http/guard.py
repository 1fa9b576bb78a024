"""Which requests HTTP answers: none that a page of another site makes a browser send. Pure.

There are no cookies and no passwords to steal here; but a page from elsewhere, in the browser of somebody who can reach
the broker, must not be able to change anything (cross-site requests), nor to do anything at all by having its own name
lead to the broker's address (DNS rebinding): by then the page and the broker are of one origin. So a request has to
name the broker by an address, which no page can choose, or by a name that is known to be the broker's.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
ANY_HOST = "*"


def is_loopback(host: str) -> bool:
    """Whether an address to listen on is reached from this machine alone."""
    return host in LOOPBACK_NAMES or host.startswith("127.")


@dataclass(frozen=True, slots=True)
class Guard:
    """`bound_host` is what HTTP listens on; `names`, in lower case, are the broker's, ANY_HOST among them for all."""

    bound_host: str
    names: frozenset[str] = frozenset()

    def why_not(self, method: str, headers: Mapping[str, str]) -> str | None:
        """In a sentence why a request with these headers is not answered; None where it is."""
        host = headers.get("Host", "")
        if not self._is_ours(_name_in(host)):
            return (
                f"This broker is not known as {host!r}: ask it by its address, or add the name to http.allowed.hosts."
            )
        if method in SAFE_METHODS:
            return None
        origin = headers.get("Origin")
        if origin is not None and urlsplit_host(origin) != host.lower():
            return f"Pages of {origin!r} may not change anything here."
        if headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
            return "Pages of other sites may not change anything here."
        return None

    def _is_ours(self, name: str) -> bool:
        if name in LOOPBACK_NAMES or name == self.bound_host.lower() or not self.names.isdisjoint((name, ANY_HOST)):
            return True
        return not is_loopback(self.bound_host) and _is_address(name)


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


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
