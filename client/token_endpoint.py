"""The request to a token endpoint: the grant `client_credentials`, without redirects.

A module of its own since urllib.request, with what it imports, is a sixth of what a command line tool loads.
"""

import base64
import json
import urllib.error
import urllib.request
from typing import Any, NoReturn
from urllib.parse import quote, urlencode

from cordwood.client.credentials import NotAuthenticated
from cordwood.client.tls import ClientTlsSettings

RESPONSE_BYTES_MAX = 1 << 20
LIFETIME_S = 300.0
"""The lifetime of a token whose end is unknown."""


def granted_token(
    endpoint: str, client: tuple[str, str], scope: str, tls: ClientTlsSettings, timeout_s: float
) -> tuple[str, float]:
    """Return a token for the id and secret of `client`, and its lifetime. Raises OSError and NotAuthenticated."""
    fields = {"grant_type": "client_credentials", **({"scope": scope} if scope else {})}
    quoted = ":".join(quote(each, safe="") for each in client)
    request = urllib.request.Request(
        endpoint,
        urlencode(fields).encode(),
        {"Authorization": f"Basic {base64.b64encode(quoted.encode()).decode()}", "Accept": "application/json"},
    )
    opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=tls.context()), _NoRedirects)
    try:
        with opener.open(request, timeout=timeout_s) as response:
            answer = json.loads(response.read(RESPONSE_BYTES_MAX))
        return str(answer["access_token"]), float(answer.get("expires_in", LIFETIME_S))
    except urllib.error.HTTPError as error:
        raise NotAuthenticated(f"the token endpoint refused the client with status {error.code}") from None
    except (ValueError, TypeError, KeyError, AttributeError):
        raise NotAuthenticated("the token endpoint did not send a token") from None


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the secret to another host."""

    def redirect_request(self, *_: Any) -> NoReturn:
        raise NotAuthenticated(
            "the token endpoint redirects: set sasl.oauthbearer.token.endpoint.url to its own address"
        )
