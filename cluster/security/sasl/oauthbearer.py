"""SASL OAUTHBEARER, server side (RFC 7628, KIP-255): the client sends a bearer token.

A refusal takes two rounds: the server answers with a JSON object, the client sends one byte, and the exchange fails.
"""

import re

from cordwood.cluster.security.bearer import TokenRefused, ValidateToken
from cordwood.cluster.security.principal import USER, Principal
from cordwood.cluster.security.sasl.exchange import Authenticated, AuthenticationFailed

OAUTHBEARER = "OAUTHBEARER"
REFUSAL = b'{"status":"invalid_token"}'

_MALFORMED = "Invalid OAUTHBEARER client first message"
_FIRST = re.compile(
    r"n,(?:a=(?P<authzid>(?:[^\x00=,]|=2C|=3D)+))?,\x01(?P<pairs>(?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*)\x01"
)
_AUTH = re.compile(r"bearer +(?P<token>[A-Za-z0-9._~+/-]+=*)", re.IGNORECASE)


class OAuthBearerExchange:
    """One attempt."""

    def __init__(self, validate: ValidateToken) -> None:
        self.mechanism = OAUTHBEARER
        self.outcome: Authenticated | None = None
        self._validate = validate
        self._refusal: str | None = None

    def step(self, message: bytes) -> bytes:
        if self._refusal is not None:
            # Whatever follows a refusal: there is no second attempt within an exchange.
            raise AuthenticationFailed(f"Authentication failed: {self._refusal}.", self._refusal)
        authzid, token = _parsed(message)
        try:
            valid = self._validate(token)
        except TokenRefused as refused:
            self._refusal = str(refused)
            return REFUSAL
        if authzid and authzid != valid.subject:
            reason = "Authentication failed: the authorization id is not the token's user."
            raise AuthenticationFailed(reason, f"authorization id {authzid[:100]!r}", valid.subject)
        self.outcome = Authenticated(Principal(USER, valid.subject), expires_at_ms=valid.expires_at_ms)
        return b""


def _parsed(message: bytes) -> tuple[str, str]:
    """Return authorization id ("" for none) and token. Other pairs are extensions (KIP-342), which are ignored."""
    try:
        first = _FIRST.fullmatch(message.decode())
    except UnicodeDecodeError:
        first = None
    if first is None:
        raise AuthenticationFailed(_MALFORMED)
    pairs = [pair.partition("=") for pair in first["pairs"].split("\x01") if pair]
    given = [value for name, _, value in pairs if name == "auth"]
    auth = _AUTH.fullmatch(given[0]) if len(given) == 1 else None
    if auth is None:
        raise AuthenticationFailed(_MALFORMED)
    return (first["authzid"] or "").replace("=2C", ",").replace("=3D", "="), auth["token"]
