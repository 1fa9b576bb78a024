"""Cross-site request protection: host and origin checks against CSRF and DNS rebinding. Pure.

The API has no cookies and no passwords. But a page of another site, in the browser of a user who can reach the broker,
must not change anything (cross-site requests). Nor may it do anything by resolving its own name to the broker's address
(DNS rebinding), after which the browser takes the page and the broker for one origin. So a request has to name the
broker by an address, which no page can choose, or by a name that is configured as the broker's.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
ANY_HOST = "*"


def is_loopback(host: str) -> bool:
    """Return whether a listen address is reachable only from this machine."""
    return host in LOOPBACK_NAMES or host.startswith("127.")


@dataclass(frozen=True, slots=True)
class Guard:
    """The request check of one broker.

    `bound_host` is the listen address of HTTP. `names` are the accepted host names in lower case; ANY_HOST accepts all.
    """

    bound_host: str
    names: frozenset[str] = frozenset()

    def why_not(self, method: str, headers: Mapping[str, str]) -> str | None:
        """Return the reason to refuse a request with these headers, as a sentence; None to accept it."""
        host = headers.get("Host", "")
        if not self._is_ours(_name_in(host)):
            return (
                f"This broker does not accept the host name {host!r}: use the broker's address, or add the name to"
                " http.allowed.hosts."
            )
        if method in SAFE_METHODS:
            return None
        origin = headers.get("Origin")
        if origin is not None and urlsplit_host(origin) != host.lower():
            return (
                f"Pages of {origin!r} may not send requests that change data: use the broker's own console, or a client"
                " that is not a browser."
            )
        if headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
            return (
                "Pages of other sites may not send requests that change data: use the broker's own console, or a"
                " client that is not a browser."
            )
        return None

    def _is_ours(self, name: str) -> bool:
        if name in LOOPBACK_NAMES or name == self.bound_host.lower() or not self.names.isdisjoint((name, ANY_HOST)):
            return True
        return not is_loopback(self.bound_host) and _is_address(name)


def urlsplit_host(origin: str) -> str | None:
    """Return host and port of an Origin header; None if it has none, as for a page opened from a file."""
    try:
        return urlsplit(origin).netloc.lower() or None
    except ValueError:
        return None


def _name_in(host: str) -> str:
    """Return the name in a Host header, without the port."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower()


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
