"""Validation of bearer tokens: JSON Web Tokens in compact form (RFC 7519, with the practices of RFC 8725). Pure.

The keys come from the identity provider's key set (`jwks.py`), and never from the token. The algorithms are a fixed
list of signatures with a public key: where nothing is a shared secret, no public key can be taken for one.
"""

import binascii
import json
import math
import re
import warnings
from typing import Any, Protocol

from joserfc import jws
from joserfc.errors import JoseError, SecurityWarning
from joserfc.jwk import Key
from joserfc.util import urlsafe_b64decode

from cordwood.cluster.security.bearer import BearerToken, TokenRefused, TokenRules

TOKEN_CHARS_MAX = 32 << 10
HEADER_BYTES_MAX = 8 << 10
NAME_CHARS_MAX = 255
SCOPES_MAX = 1000

CURVES = {"ES256": "P-256", "ES384": "P-384", "ES512": "P-521", "EdDSA": "Ed25519", "Ed25519": "Ed25519"}
"""The curve of the key of each algorithm with elliptic curves."""
ALGORITHMS = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", *CURVES})

# RFC 9864 renames it to Ed25519; identity providers still write EdDSA.
warnings.filterwarnings("ignore", "EdDSA is deprecated", SecurityWarning)

_TYPES = frozenset({"jwt", "at+jwt", "application/jwt", "application/at+jwt"})
"""Values of `typ`, in lower case, of tokens that give access. Others, such as logout+jwt, are for another purpose."""
_PART = re.compile(r"[A-Za-z0-9_-]+")


class UnknownKey(TokenRefused):
    """No key has the token's key id: the provider may have a new key."""


class KeySource(Protocol):
    """The identity provider's public keys."""

    def find(self, key_id: str | None, algorithm: str) -> Key:
        """Return the key for a token's header. Raises TokenRefused."""
        ...


def validate(token: str, keys: KeySource, rules: TokenRules, now_ms: int) -> BearerToken:
    """Return the claims of a token. Raises TokenRefused unless its signature, times, issuer and audience are right."""
    if len(token) > TOKEN_CHARS_MAX:
        raise TokenRefused(f"the token is longer than {TOKEN_CHARS_MAX} characters")
    parts = token.split(".")
    if len(parts) != 3 or not all(map(_PART.fullmatch, parts)):
        raise TokenRefused("the token is not a signed JSON Web Token")
    header = _header(parts[0])
    key = keys.find(header.get("kid"), header["alg"])
    claims = _object(_verified(token, key, header["alg"]), "claims")
    _check_times(claims, rules, now_ms)
    _check_addressee(claims, rules)
    subject = claims.get(rules.sub_claim)
    if not isinstance(subject, str) or not 0 < len(subject) <= NAME_CHARS_MAX or not subject.isprintable():
        raise TokenRefused(f"the token has no claim {rules.sub_claim} that names a user")
    expires_at_ms = math.ceil(claims["exp"] * 1000) + rules.clock_skew_s * 1000
    return BearerToken(subject, expires_at_ms, _scopes(claims, rules))


def _header(part: str) -> dict[str, Any]:
    if len(part) > HEADER_BYTES_MAX:
        raise TokenRefused(f"the token's header is longer than {HEADER_BYTES_MAX} bytes")
    try:
        header = _object(urlsafe_b64decode(part.encode()), "header")
    except binascii.Error:
        raise TokenRefused("the token's header is not in base64url") from None
    algorithm, kind, key_id = header.get("alg"), header.get("typ", "JWT"), header.get("kid")
    if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
        raise TokenRefused(f"the token's algorithm is not one of {', '.join(sorted(ALGORITHMS))}")
    # An extension that must be understood is not: there is none here (RFC 7515, section 4.1.11). `b64` is one too.
    if "crit" in header or "b64" in header:
        raise TokenRefused("the token's header demands an extension that is not supported")
    if not isinstance(kind, str) or kind.lower() not in _TYPES:
        raise TokenRefused("the token's type is not that of an access token")
    if key_id is not None and not isinstance(key_id, str):
        raise TokenRefused("the token's key id is not a text")
    return header


def _verified(token: str, key: Key, algorithm: str) -> bytes:
    """Return the payload of a token whose signature is right. Raises TokenRefused."""
    registry = jws.JWSRegistry(algorithms=[algorithm], strict_check_header=False)
    registry.max_header_length = HEADER_BYTES_MAX
    try:
        payload = jws.deserialize_compact(token, key, registry=registry).payload
    except (JoseError, ValueError, TypeError) as error:
        raise TokenRefused("the token's signature is wrong") from error
    assert payload is not None, "a compact token has its payload"
    return payload


def _object(text: bytes, name: str) -> dict[str, Any]:
    """Parse a JSON object without repeated names: other readers of a repeated claim may take the other value."""
    try:
        value = json.loads(text.decode(), object_pairs_hook=_without_repetition, parse_constant=_no_constant)
    except _Repeated as repeated:
        raise TokenRefused(f"the token's {name} repeat a name") from repeated
    except (ValueError, RecursionError) as error:
        raise TokenRefused(f"the token's {name} are not JSON") from error
    if not isinstance(value, dict):
        raise TokenRefused(f"the token's {name} are not a JSON object")
    return value


class _Repeated(Exception):
    pass


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        raise _Repeated
    return value


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _check_times(claims: dict[str, Any], rules: TokenRules, now_ms: int) -> None:
    skew_ms = rules.clock_skew_s * 1000
    if now_ms >= _time_ms(claims, "exp") + skew_ms:
        raise TokenRefused("the token has expired")
    if now_ms < _time_ms(claims, "iat") - skew_ms:
        raise TokenRefused(
            "the token was issued in the future: compare the clocks of the identity provider and the broker"
        )
    if "nbf" in claims and now_ms < _time_ms(claims, "nbf") - skew_ms:
        raise TokenRefused("the token is not valid yet")


def _time_ms(claims: dict[str, Any], name: str) -> float:
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _SECONDS_MAX:
        raise TokenRefused(f"the token has no claim {name} that is a time")
    return value * 1000


_SECONDS_MAX = 1 << 40
"""A bound that keeps times exact; the year 36812."""


def _check_addressee(claims: dict[str, Any], rules: TokenRules) -> None:
    if rules.issuer and claims.get("iss") != rules.issuer:
        raise TokenRefused("the token is of another issuer")
    audience = claims.get("aud")
    audiences = [audience] if isinstance(audience, str) else audience
    if audiences is None and not rules.audiences:
        return
    # As in Kafka, a token with an audience is not for a broker without one.
    if not isinstance(audiences, list) or not any(
        name in rules.audiences for name in audiences if isinstance(name, str)
    ):
        raise TokenRefused("the token is for another audience")


def _scopes(claims: dict[str, Any], rules: TokenRules) -> frozenset[str]:
    found = claims.get(rules.scope_claim, [])
    scopes = found.split(" ") if isinstance(found, str) else found
    if not isinstance(scopes, list) or len(scopes) > SCOPES_MAX or not all(isinstance(one, str) for one in scopes):
        raise TokenRefused(f"the token's claim {rules.scope_claim} is neither a text nor a list of texts")
    return frozenset(filter(None, map(str.strip, scopes)))
