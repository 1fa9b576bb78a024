"""Changes of valid messages: bytes, separated fields, JSON values and JSON Web Tokens. Deterministic by `rng`."""

import base64
import hashlib
import hmac
import json
import random
from collections.abc import Callable
from typing import Any

GROWN = (1, 7, 300, 5000, 70_000)
TEXTS = (
    b"",
    b"\x00",
    b"=",
    b",",
    b"a=admin",
    b"n=admin",
    b"m=ext",
    b"p=",
    b"*",
    b"=2C=3D",
    b"=00",
    b"\xff\xfe",
    "\u2168\u017f\ufb01".encode(),
    b"tokenauth=true",
    b"c=biws",
    b"c=eSws",
    b"admin",
    b"User:admin",
    b"i=1",
)
VALUES: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    1e308,
    10**400,
    "",
    "admin",
    "User:admin",
    [],
    ["admin"],
    {},
    {"a": [{}]},
    "\x00",
    "a" * 3000,
    "\ud800",
)
ALGORITHMS: tuple[Any, ...] = (
    "none",
    "None",
    "nOnE",
    "",
    None,
    "HS256",
    "HS512",
    "RS256",
    "RS512",
    "PS256",
    "ES256",
    "EdDSA",
    ["RS256"],
    5,
    "RS256\x00",
    "dir",
)
HEADERS: tuple[tuple[str, Any], ...] = (
    ("crit", ["exp"]),
    ("crit", []),
    ("b64", False),
    ("zip", "DEF"),
    ("kid", "../../../dev/null"),
    ("kid", ["first"]),
    ("kid", None),
    ("kid", "k" * 9000),
    ("jku", "https://127.0.0.1:1/keys"),
    ("x5u", "file:///etc/passwd"),
    ("typ", "at+jwt"),
    ("cty", "JWT"),
    ("jwk", {"kty": "oct", "k": "AAAA"}),
)
CLAIMS: tuple[tuple[str, Any], ...] = (
    ("sub", "admin"),
    ("exp", 10**12),
    ("exp", 1e400),
    ("exp", -1),
    ("nbf", "now"),
    ("iat", 10**15),
    ("aud", ["cordwood", "x"]),
    ("iss", "https://id.example.org"),
    ("scope", ["admin"]),
    ("sub", {"admin": 1}),
)


def changed_bytes(rng: random.Random, content: bytes) -> bytes:
    """Change, cut, repeat, insert or append some bytes."""
    data = bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        at = rng.randrange(len(data) + 1)
        match rng.randrange(7):
            case 0 if data:
                data[at % len(data)] ^= 1 << rng.randrange(8)
            case 1 if data:
                data[at % len(data)] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
            case 2:
                del data[at:]
            case 3:
                del data[at : at + rng.choice((1, 2, 8))]
            case 4:
                piece = data[at : at + rng.randrange(1, 40)]
                data[at:at] = piece * rng.choice((1, 2, 50))
            case 5:
                data[at:at] = rng.choice(TEXTS)
            case _:
                data += rng.randbytes(rng.choice(GROWN)) if rng.random() < 0.2 else rng.randbytes(3)
    return bytes(data)


def changed_fields(rng: random.Random, content: bytes, separator: bytes) -> bytes:
    """Change, drop, swap or repeat fields of a message."""
    fields = content.split(separator)
    for _ in range(rng.choice((1, 1, 2))):
        at = rng.randrange(len(fields) + 1)
        match rng.randrange(5):
            case 0 if len(fields) > 1:
                del fields[at % len(fields)]
            case 1:
                fields.insert(at, rng.choice(TEXTS))
            case 2 if fields:
                fields.insert(at, rng.choice(fields))
            case 3 if fields:
                name, equals, value = fields[at % len(fields)].partition(b"=")
                fields[at % len(fields)] = name + equals + rng.choice((rng.choice(TEXTS), changed_bytes(rng, value)))
            case _:
                rng.shuffle(fields)
    return separator.join(fields)


def changed_message(rng: random.Random, content: bytes, separator: bytes) -> bytes:
    """Return a changed message, which differs from the valid one."""
    while True:
        changed = changed_fields(rng, content, separator) if rng.random() < 0.6 else changed_bytes(rng, content)
        if changed != content:
            return changed


def changed_json(rng: random.Random, content: dict[str, Any]) -> bytes:
    """Return a JSON text with changed members: other types and values, more or fewer, one name twice, or no JSON."""
    content = dict(content)
    for _ in range(rng.choice((0, 1, 1, 2))):
        name = rng.choice((*content, "user", "admin", ""))
        content[name] = rng.choice((*VALUES, *content.values()))
        if rng.random() < 0.2:
            del content[name]
    text = json.dumps(content)
    match rng.randrange(12):
        case 0:
            text = text.replace("{", '{"user": "admin", ', 1)
        case 1:
            text = "[" * rng.choice((10, 1500)) + text
        case 2:
            text = f"[{text}]"
    encoded = text.encode("utf-8", "surrogatepass")
    return changed_bytes(rng, encoded) if rng.random() < 0.3 else encoded


def changed_token(rng: random.Random, token: str, public_key: str, sign: Callable[[str, bytes], bytes]) -> str:
    """Return a token that is not the valid one: another header, other claims, another signature or structure.

    `sign` makes a signature of an algorithm with the intruder's own key.
    """
    parts = [_decoded(part) for part in token.split(".")]
    while True:
        changed = _changed_parts(rng, list(parts), public_key, sign)
        if changed != parts:
            break
    encoded = [base64.urlsafe_b64encode(part).decode().rstrip("=") for part in changed]
    match rng.randrange(16):
        case 0:
            encoded.append(encoded[-1])
        case 1:
            encoded = encoded[: rng.randrange(3)]
        case 2:
            encoded.insert(0, "")
        case 3:
            encoded = [part + "==" for part in encoded]
    return ".".join(encoded)


def _changed_parts(
    rng: random.Random, parts: list[bytes], public_key: str, sign: Callable[[str, bytes], bytes]
) -> list[bytes]:
    header, claims = json.loads(parts[0]), json.loads(parts[1])
    match rng.randrange(6):
        case 0:
            at = rng.randrange(3)
            return [*parts[:at], changed_bytes(rng, parts[at]), *parts[at + 1 :]]
        case 1:
            return [parts[0], changed_json(rng, claims), parts[2]]
        case 2:
            return [changed_json(rng, header), parts[1], parts[2]]
    for name, value in rng.sample(CLAIMS, rng.randrange(3)):
        claims[name] = value
    if rng.random() < 0.3:
        name, value = rng.choice(HEADERS)
        header[name] = value
    header["alg"] = rng.choice(ALGORITHMS)
    if header["alg"] is None:
        del header["alg"]
    texts = [json.dumps(one).encode() for one in (header, claims)]
    signed = b".".join(base64.urlsafe_b64encode(text).rstrip(b"=") for text in texts)
    return [*texts, _signature(rng, str(header.get("alg")), signed, parts[2], public_key, sign)]


def _signature(
    rng: random.Random,
    algorithm: str,
    signed: bytes,
    original: bytes,
    public_key: str,
    sign: Callable[[str, bytes], bytes],
) -> bytes:
    """Return one of the signatures with which brokers were deceived: none, one with the public key, one's own."""
    match rng.randrange(5):
        case 0:
            return b""
        case 1:
            return original
        case 2:
            return b"\x00" * rng.choice((32, 64, 256))
        case 3:
            hash_ = hashlib.sha512 if algorithm.endswith("512") else hashlib.sha256
            secret = rng.choice((public_key, public_key.strip(), "", "\x00"))
            return hmac.digest(secret.encode(), signed, hash_)
        case _:
            return sign(algorithm, signed)


def _decoded(part: str) -> bytes:
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
