"""An identity provider: keys, tokens with any header and claims, and its key set."""

import base64
import functools
import hashlib
import hmac
import json
from typing import Any

from joserfc import jws
from joserfc.jwk import ECKey, Key, OKPKey, RSAKey

NOW_MS = 1_700_000_000_000
ISSUER, AUDIENCE = "https://id.example.org/", "cordwood"


@functools.cache
def rsa_key(name: str = "first", bits: int = 2048) -> RSAKey:
    return RSAKey.generate_key(bits, {"kid": name})


@functools.cache
def curve_key(curve: str, name: str = "curve") -> Key:
    if curve.startswith("Ed"):
        return OKPKey.generate_key(curve, {"kid": name})  # type: ignore[arg-type]
    return ECKey.generate_key(curve, {"kid": name})  # type: ignore[arg-type]


def claims(now_ms: int = NOW_MS, **changes: Any) -> dict[str, Any]:
    """Return the claims of a valid token. A change to None removes a claim."""
    now_s = now_ms // 1000
    usual = {"iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "iat": now_s, "exp": now_s + 300, "scope": "read write"}
    return {name: value for name, value in {**usual, **changes}.items() if value is not None}


def token(payload: dict[str, Any] | bytes | None = None, key: Key | None = None, **header: Any) -> str:
    """Return a signed token. A change of the header to None removes a parameter."""
    key = key or rsa_key()
    usual = {"alg": "RS256", "typ": "JWT", "kid": key.kid}
    wanted = {name: value for name, value in {**usual, **header}.items() if value is not None}
    return signed(json.dumps(wanted).encode(), payload, key, wanted["alg"])


def signed(header: bytes, payload: dict[str, Any] | bytes | None, key: Key, algorithm: str) -> str:
    """Return a token with exactly these bytes of a header."""
    content = payload if isinstance(payload, bytes) else json.dumps(payload or claims()).encode()
    body = b".".join(map(_base64, (header, content)))
    model = jws.JWSRegistry.algorithms[algorithm]
    return (body + b"." + _base64(model.sign(body, key))).decode()


def unsigned(payload: dict[str, Any] | None = None, signature: bytes = b"", **header: Any) -> str:
    parts = (json.dumps(header).encode(), json.dumps(payload or claims()).encode(), signature)
    return b".".join(map(_base64, parts)).decode()


def with_shared_secret(secret: bytes, **header: Any) -> str:
    """Return a token whose HS256 is made with any bytes as the secret, such as a public key."""
    parts = (json.dumps({"alg": "HS256", **header}).encode(), json.dumps(claims()).encode())
    body = b".".join(map(_base64, parts))
    return (body + b"." + _base64(hmac.digest(secret, body, hashlib.sha256))).decode()


def key_set(*keys: Key, **changes: Any) -> dict[str, Any]:
    """Return a JSON Web Key Set with the public keys."""
    return {"keys": [{**key.as_dict(private=False), **changes} for key in keys or (rsa_key(),)]}


def key_set_text(*keys: Key, **changes: Any) -> bytes:
    return json.dumps(key_set(*keys, **changes)).encode()


def _base64(content: bytes) -> bytes:
    return base64.urlsafe_b64encode(content).rstrip(b"=")
