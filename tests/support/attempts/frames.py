"""Frames before authentication that claim more than they have, to make the broker allocate memory or wait."""

from collections.abc import Iterator
from functools import partial

from attempts.attempt import CLOSED, Attempt, Port, Stranger, closed_after, unproved
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.authenticator import FRAME_BYTES_MAX

HUGE = b"\xff\xff\xff\xff\x07"
"""2^31 - 1 as a varint."""
NO_TAGS = b"\x00"


def _head(api: ApiKey, version: int, tags: bytes = b"") -> bytes:
    return api.to_bytes(2, "big") + version.to_bytes(2, "big") + b"\x00\x00\x00\x01\x00\x01x" + tags


def _frame(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def _handshake(version: int, mechanism: bytes) -> bytes:
    return _frame(_head(ApiKey.SASL_HANDSHAKE, version) + len(mechanism).to_bytes(2, "big") + mechanism)


_VERSIONS = _head(ApiKey.API_VERSIONS, 3, NO_TAGS)
_AUTHENTICATE = _head(ApiKey.SASL_AUTHENTICATE, 2, NO_TAGS)
_SCRAM = _handshake(1, b"SCRAM-SHA-256")
FRAMES: dict[str, bytes] = {
    "a length of 2 GiB": b"\x7f\xff\xff\xff" + _VERSIONS,
    "a negative length": b"\xff\xff\xff\xff" + _VERSIONS,
    "a length above the limit": (FRAME_BYTES_MAX + 1).to_bytes(4, "big") + _VERSIONS,
    "a Produce as large as a client's": (1 << 20).to_bytes(4, "big") + _head(ApiKey.PRODUCE, 9, NO_TAGS),
    "no bytes": _frame(b""),
    "half a header": _frame(b"\x00\x12\x00"),
    "2^31 tagged fields in the header": _frame(_head(ApiKey.API_VERSIONS, 3, HUGE)),
    "2^31 tagged fields in the body": _frame(_VERSIONS + b"\x02x\x02x" + HUGE),
    "10,001 tagged fields": _frame(_VERSIONS + b"\x02x\x02x" + b"\x91\x4e" + b"\x00\x00" * 10_001),
    "a tagged field of 2 GiB": _frame(_VERSIONS + b"\x02x\x02x" + b"\x01\x00" + HUGE),
    "a text of 2 GiB": _frame(_VERSIONS + HUGE + b"x"),
    "a varint without an end": _frame(_VERSIONS + b"\xff" * 40),
    "a client id that is longer than the frame": _frame(b"\x00\x12\x00\x03\x00\x00\x00\x01\x7f\xffx"),
    "a mechanism that is longer than the frame": _frame(_head(ApiKey.SASL_HANDSHAKE, 1) + b"\x7f\xffx"),
    "a mechanism of negative length": _frame(_head(ApiKey.SASL_HANDSHAKE, 1) + b"\x80\x00"),
    "a mechanism that is not UTF-8": _handshake(1, b"\xff\xfe"),
    "a handshake of an unknown version": _frame(_head(ApiKey.SASL_HANDSHAKE, 99) + b"\x00\x05PLAIN"),
    "a proof of 2 GiB": _SCRAM + _frame(_AUTHENTICATE + HUGE + b"n,,"),
    "an authentication above the limit": _SCRAM + (FRAME_BYTES_MAX + 1).to_bytes(4, "big"),
    "2^31 tagged fields after a proof": _SCRAM + _frame(_AUTHENTICATE + b"\x04n,," + HUGE),
    "a message without a header of 2 GiB": _handshake(0, b"SCRAM-SHA-256") + b"\x7f\xff\xff\xff",
    "a message without a header of negative length": _handshake(0, b"SCRAM-SHA-256") + b"\x80\x00\x00\x00",
    "an API that does not exist": _frame(_head(ApiKey.API_VERSIONS, 3).replace(b"\x00\x12", b"\x03\xe7", 1)),
    "HTTP": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
}
ANSWERS_BYTES_MAX = 200
"""The largest answer to a handshake, which is sent before the rest is refused."""


def _sent(port: Port, content: bytes, stranger: Stranger) -> str:
    tls = stranger.cluster.trusting if port is Port.KAFKA else None
    received = stranger.send(port, content, tls)
    if content.startswith((_SCRAM, _handshake(0, b"SCRAM-SHA-256"))):
        return CLOSED if len(received) < ANSWERS_BYTES_MAX else closed_after(received)
    return closed_after(received)


def _attempts() -> Iterator[Attempt]:
    for port in (Port.KAFKA, Port.KAFKA_UNENCRYPTED):
        for name, content in FRAMES.items():
            yield Attempt(f"{port.name}: {name}", port, partial(_sent, port, content), CLOSED, unproved("listener"))


FRAMES_BEFORE_AUTHENTICATION = tuple(_attempts())
