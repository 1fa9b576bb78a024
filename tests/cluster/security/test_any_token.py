"""Any bytes as a token, a key set or a message of OAUTHBEARER: they are refused with the errors that are foreseen."""

import json
from contextlib import suppress
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from identity_provider import AUDIENCE, ISSUER, NOW_MS, claims, key_set, key_set_text, rsa_key, signed, token

from cordwood.cluster.security.bearer import BearerToken, TokenRefused, TokenRules
from cordwood.cluster.security.jwks import UnusableKeys, parse
from cordwood.cluster.security.jwt import validate
from cordwood.cluster.security.sasl.exchange import AuthenticationFailed
from cordwood.cluster.security.sasl.oauthbearer import OAuthBearerExchange

KEYS, RULES = parse(key_set_text()), TokenRules([AUDIENCE], ISSUER)
RIGHT = token()
MESSAGE = f"n,,\x01auth=Bearer {RIGHT}\x01\x01".encode()

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
edits = st.lists(st.tuples(st.integers(0, len(MESSAGE) - 1), st.integers(0, 2), st.integers(0, 255)), max_size=4)


def accepted(text: str) -> BearerToken | None:
    with suppress(TokenRefused):
        return validate(text, KEYS, RULES, NOW_MS)
    return None


def edited(content: bytes, changes: list[tuple[int, int, int]]) -> bytes:
    for at, kind, byte in changes:
        content = content[:at] + (b"", bytes([byte]), content[at : at + 1] * 2)[kind] + content[at + 1 :]
    return content


@settings(max_examples=300)
@given(st.text(max_size=60) | st.lists(st.text("abcAZ019-_=.", max_size=40), max_size=5).map(".".join))
def test_any_text_is_refused(text: str) -> None:
    assert accepted(text) is None


@settings(max_examples=200)
@given(edits)
def test_an_edited_message_authenticates_no_other_user(changes: list[tuple[int, int, int]]) -> None:
    exchange = OAuthBearerExchange(lambda text: validate(text, KEYS, RULES, NOW_MS))
    with suppress(AuthenticationFailed):
        exchange.step(edited(MESSAGE, changes))
    assert exchange.outcome is None or exchange.outcome.principal.name == "alice"


@settings(max_examples=80)
@given(st.dictionaries(st.sampled_from(["alg", "kid", "typ", "crit", "b64", "jwk", "jku", "zip", "enc"]), values))
def test_any_header_is_refused_or_verified(header: dict[str, Any]) -> None:
    text = json.dumps({"alg": "RS256", "kid": "first", **header}).encode()
    said = accepted(signed(text, None, rsa_key(), "RS256"))
    assert said is None or header.get("alg", "RS256") == "RS256"
    assert accepted(signed(text, None, rsa_key("mallory"), "RS256")) is None


@settings(max_examples=200)
@given(st.dictionaries(st.sampled_from(["iss", "aud", "sub", "exp", "iat", "nbf", "scope"]), values))
def test_any_claims_are_refused_or_right(changes: dict[str, Any]) -> None:
    said = accepted(token(claims() | changes))
    if said is not None:
        assert changes.get("iss", ISSUER) == ISSUER
        assert said.subject == changes.get("sub", "alice")
        assert said.expires_at_ms > NOW_MS


@settings(max_examples=200)
@given(st.binary(max_size=60) | values.map(lambda value: json.dumps({"keys": [value, *key_set()["keys"]]}).encode()))
def test_any_key_set_is_refused_or_read(text: bytes) -> None:
    with suppress(UnusableKeys):
        assert parse(text).count <= 1


@settings(max_examples=80)
@given(
    st.dictionaries(st.sampled_from(["kty", "alg", "use", "key_ops", "kid", "n", "e", "crv", "x", "y", "d"]), values)
)
def test_any_key_is_ignored_or_read(changes: dict[str, Any]) -> None:
    parse(json.dumps({"keys": [key_set()["keys"][0] | changes]}).encode())
