"""OAUTHBEARER tokens of a client: a given text, a file, or the token endpoint of an identity provider."""

import base64
import json
import time
import urllib.parse
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cordwood.client.tls import ClientTlsSettings, WrongSetting

RENEW_AFTER = 0.8
"""The part of a token's lifetime after which the next one is fetched."""
LIFETIME_S = 300.0
"""The lifetime of a token without an end."""
LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class BearerSource:
    """Where a client gets its tokens. Its repr has no secret.

    `endpoint` is a file: or https: URL. A file is read for each connection; a provider is asked by the grant
    `client_credentials`, and its token is kept until most of its lifetime has passed.
    """

    token: str = field(default="", repr=False)
    endpoint: str = ""
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    scope: str = ""
    extensions: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    ca_location: str = ""
    ca_pem: str = ""

    def __post_init__(self) -> None:
        """Raise WrongSetting for an endpoint that cannot be used."""
        if bool(self.token) == bool(self.endpoint):
            raise WrongSetting(
                "OAUTHBEARER needs one of sasl.oauthbearer.token and sasl.oauthbearer.token.endpoint.url"
            )
        url = urllib.parse.urlsplit(self.endpoint)
        is_local = url.scheme == "http" and url.hostname in LOOPBACK
        if self.endpoint and url.scheme not in ("file", "https") and not is_local:
            raise WrongSetting("sasl.oauthbearer.token.endpoint.url must begin with https:// or file:///")
        if url.scheme in ("http", "https") and not (self.client_id and self.client_secret):
            raise WrongSetting(
                "a token endpoint needs sasl.oauthbearer.client.id and sasl.oauthbearer.client.secret: it is asked by"
                " the grant client_credentials"
            )

    def fetch(self, timeout_s: float) -> str:
        """Return a valid token. Raises OSError, and NotAuthenticated if the provider refuses."""
        if self.token:
            return self.token
        url = urllib.parse.urlsplit(self.endpoint)
        if url.scheme == "file":
            return Path(urllib.parse.unquote(url.path)).read_text().strip()
        token, renew_s = _kept.get(self, ("", 0.0))
        if time.monotonic() >= renew_s:
            token, lifetime_s = self._ask_provider(timeout_s)
            _kept[self] = token, time.monotonic() + RENEW_AFTER * lifetime_s
        return token

    def _ask_provider(self, timeout_s: float) -> tuple[str, float]:
        """Return a token and its lifetime."""
        from cordwood.client.token_endpoint import granted_token

        tls = ClientTlsSettings(self.ca_location, self.ca_pem)
        return granted_token(self.endpoint, (self.client_id, self.client_secret), self.scope, tls, timeout_s)


_kept: dict[BearerSource, tuple[str, float]] = {}
"""The token of each source, and the time (monotonic) of the next one."""


def expires_at_s(token: str) -> float:
    """Return the wall-clock time in a token's claim `exp`; LIFETIME_S from now if it has none."""
    try:
        payload = token.split(".")[1]
        claims: Any = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        return float(claims["exp"])
    except (ValueError, TypeError, KeyError, IndexError):
        return time.time() + LIFETIME_S
