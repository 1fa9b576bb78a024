"""Bearer tokens that the identity provider has not issued for this cluster, or not for now."""

import time
from collections.abc import Callable
from typing import Any

from closed_cluster import valid_token
from identity_provider import claims, curve_key, rsa_key, unsigned, with_shared_secret


def _key_of_another() -> Any:
    return curve_key("P-256", "another")


def _public_pem() -> bytes:
    return bytes(rsa_key().as_pem(private=False))


FORGED: dict[str, tuple[Callable[[], str], str]] = {
    "alg none": (lambda: unsigned(_now(), b"x", alg="none"), "the token's algorithm"),
    "alg none, without a signature": (lambda: unsigned(_now(), alg="none"), "not a signed JSON Web Token"),
    "alg none in other letters": (
        lambda: unsigned(_now(), b"x", alg="nOnE"),
        "the token's algorithm",
    ),
    "HS256 with the public key as the secret": (
        lambda: with_shared_secret(_public_pem(), kid="first"),
        "the token's algorithm",
    ),
    "no signature": (lambda: valid_token("eve").rpartition(".")[0] + ".", "not a signed JSON Web Token"),
    "the signature of another token": (
        lambda: valid_token("admin").rpartition(".")[0] + "." + valid_token("eve").rpartition(".")[2],
        "signature",
    ),
    "a critical extension": (
        lambda: valid_token("eve", header={"crit": ["exp"], "exp": 1}),
        "an extension that is not supported",
    ),
    "unencoded content (b64)": (lambda: valid_token("eve", header={"b64": False}), "an extension"),
    "the key of another provider under a known id": (
        lambda: valid_token("admin", curve_key("P-256", "impostor"), header={"kid": "now"}),
        "signature",
    ),
    "an unknown key id": (lambda: valid_token("eve", _key_of_another()), "key"),
    "its own key in the header": (
        lambda: valid_token("eve", _key_of_another(), header={"jwk": _key_of_another().as_dict(private=False)}),
        "key",
    ),
    "an address of keys in the header": (
        lambda: valid_token("eve", _key_of_another(), header={"jku": "https://evil.example.org/keys"}),
        "key",
    ),
    "another algorithm than its key's": (lambda: valid_token("eve", rsa_key(), "RS256", {"kid": "now"}), "key"),
    "another audience": (lambda: valid_token("eve", aud="payroll"), "another audience"),
    "no audience": (lambda: valid_token("eve", aud=None), "another audience"),
    "another issuer": (lambda: valid_token("eve", iss="https://evil.example.org/"), "another issuer"),
    "no issuer": (lambda: valid_token("eve", iss=None), "another issuer"),
    "an issuer with a slash less": (lambda: valid_token("eve", iss="https://id.example.org"), "another issuer"),
    "expired": (lambda: valid_token("eve", exp=int(time.time()) - 1), "the token has expired"),
    "without an expiry": (lambda: valid_token("eve", exp=None), "no claim exp"),
    "an expiry that is a text": (lambda: valid_token("eve", exp="9999999999"), "no claim exp"),
    "not valid yet": (lambda: valid_token("eve", nbf=int(time.time()) + 1000), "not valid yet"),
    "issued in the future": (lambda: valid_token("eve", iat=int(time.time()) + 1000), "issued in the future"),
    "no subject": (lambda: valid_token("eve", sub=None), "names a user"),
    "an empty subject": (
        lambda: valid_token(
            "",
        ),
        "names a user",
    ),
    "a logout token": (lambda: valid_token("eve", header={"typ": "logout+jwt"}), "not that of an access token"),
    "not a token": (lambda: "aaaa", "not a signed JSON Web Token"),
}
"""Tokens that the provider has not issued for this cluster, or not for now, and a part of the broker's reason."""


def _now() -> dict[str, Any]:
    return claims(time.time_ns() // 1_000_000, sub="admin")


def expired() -> str:
    """Return a token whose time is over."""
    return valid_token("eve", exp=int(time.time()) - 1)
