"""Signatures with an intruder's own keys."""

import functools

from joserfc import jws
from joserfc.jwk import ECKey, Key, OKPKey, RSAKey


def sign(algorithm: str, content: bytes) -> bytes:
    """Return a signature of an algorithm with a key of our own; nothing for an algorithm without keys."""
    key = _key(algorithm[:2])
    if key is None or algorithm not in jws.JWSRegistry.algorithms:
        return b""
    return jws.JWSRegistry.algorithms[algorithm].sign(content, key)


@functools.cache
def _key(family: str) -> Key | None:
    match family:
        case "RS" | "PS":
            return RSAKey.generate_key(2048)
        case "ES":
            return ECKey.generate_key("P-256")
        case "Ed":
            return OKPKey.generate_key("Ed25519")
    return None
