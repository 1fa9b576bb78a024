"""Malformed frames: each kind of damage is a small function of a request and a seeded random generator."""

import random
import struct
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from crc32c import crc32c

from cordwood.chaos.live.wild_requests import HEAD, TOPIC, WildRequest, any_requests, served_requests, wild_request
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.storage.records import Record, encode

FRAMES_PER_CONNECTION_MAX = 12
POOL_OF_EACH = 8
CRC_AT, CRC_FROM = 17, 21
LENGTH = struct.Struct(">i")


class After(Enum):
    """The sender's behaviour with and after the last frame of a connection."""

    READ = "read until the sound request after it is answered or the broker closes"
    HANG_UP = "close its side in the middle of a frame"
    STAY = "leave the connection half-open and say nothing more"
    DRIBBLE = "send it a byte at a time, then read"


@dataclass(frozen=True, slots=True)
class Burst:
    """The frames of one connection: some that it may survive, a last one, and the behaviour after it."""

    frames: tuple[bytes, ...]
    last: bytes
    after: After
    kinds: tuple[str, ...]
    """The kinds of damage to the frames and to the last one."""

    @property
    def all_frames(self) -> tuple[bytes, ...]:
        return (*self.frames, self.last)


def framed(request: bytes) -> bytes:
    """Return a request with its length in front."""
    return LENGTH.pack(len(request)) + request


def sound(_rng: random.Random, request: WildRequest) -> bytes:
    """Return a well-formed request, with a combination of fields that no client sends."""
    return framed(request.frame)


def flipped(rng: random.Random, request: WildRequest) -> bytes:
    """Change some bytes of the body."""
    damaged = bytearray(request.frame)
    for _ in range(rng.choice((1, 1, 2, 8))):
        damaged[rng.randrange(min(request.body, len(damaged) - 1), len(damaged))] = rng.randrange(256)
    return framed(bytes(damaged))


def flipped_head(rng: random.Random, request: WildRequest) -> bytes:
    """Change a byte of the header: API, version, correlation or client id."""
    damaged = bytearray(request.frame)
    damaged[rng.randrange(request.body)] = rng.randrange(256)
    return framed(bytes(damaged))


def nonsense_batch(rng: random.Random, _request: WildRequest) -> bytes:
    """Return a Produce whose batch has a correct checksum over wrong fields."""
    produce = wild_request(rng, ApiKey.PRODUCE, rng.randrange(3, 9))
    batch = bytearray(encode([Record(0, 0, b"key", b"value", ())]))
    for _ in range(rng.randrange(1, 5)):
        batch[rng.randrange(CRC_FROM, len(batch))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
    struct.pack_into(">I", batch, CRC_AT, crc32c(batch[CRC_FROM:]))
    topic = TOPIC.encode()
    head = struct.pack(">hhiih", -1, 1, 1000, 1, len(topic)) + topic
    body = head + struct.pack(">iii", 1, 0, len(batch)) + batch
    return framed(produce.frame[: produce.body] + body)


def cut_short(rng: random.Random, request: WildRequest) -> bytes:
    """Cut the request short; its length agrees."""
    return framed(request.frame[: rng.randrange(len(request.frame))])


def grown(rng: random.Random, request: WildRequest) -> bytes:
    """Append bytes to the request; its length covers them."""
    return framed(request.frame + rng.randbytes(rng.choice((1, 3, 200))))


def giant_array(rng: random.Random, request: WildRequest) -> bytes:
    """Put the length of an array larger than the machine's memory somewhere in the body."""
    giant = rng.choice((b"\x7f\xff\xff\xff", b"\x00\xff\xff\xff", b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x07"))
    at = rng.randrange(request.body, len(request.frame) + 1)
    return framed(request.frame[:at] + giant + request.frame[at + len(giant) :])


def random_body(rng: random.Random, request: WildRequest) -> bytes:
    """Return the header of a known API before random bytes."""
    return framed(request.frame[: request.body] + rng.randbytes(rng.choice((0, 1, 4, 16, 64, 300, 4000))))


def unknown_api(rng: random.Random, request: WildRequest) -> bytes:
    """Return an API or version that does not exist, or exists only in a newer Kafka."""
    key = rng.choice((request.api_key, rng.randrange(-(2**15), 2**15), rng.randrange(100)))
    version = rng.choice((-1, rng.randrange(30), rng.randrange(-(2**15), 2**15)))
    return framed(HEAD.pack(key, version, 1) + request.frame[HEAD.size :])


def noise(rng: random.Random, _request: WildRequest) -> bytes:
    """Return random bytes after their correct length."""
    return framed(rng.randbytes(rng.choice((0, 1, 7, 8, 9, 30, 300, 3000))))


def other_protocol(rng: random.Random, _request: WildRequest) -> bytes:
    """Return the first bytes of another protocol: HTTP, TLS or SSH."""
    return rng.choice((b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc", b"SSH-2.0-x\r\n"))


def bad_length(rng: random.Random, request: WildRequest) -> bytes:
    """Return a length that is negative, tiny, or larger than any request may have."""
    length = rng.choice((-1, -(2**31), 2**31 - 1, 2**30, 200 << 20, 0, 1, 7, rng.randrange(-(2**31), 0)))
    return LENGTH.pack(length) + request.frame


def broken_off(rng: random.Random, request: WildRequest) -> bytes:
    """Return the beginning of a frame."""
    whole = (
        framed(request.frame) if rng.random() < 0.7 else LENGTH.pack(rng.choice((1 << 20, 90 << 20))) + request.frame
    )
    return whole[: rng.randrange(len(framed(request.frame)))]


Damage = Callable[[random.Random, WildRequest], bytes]

OFTEN_SURVIVED: tuple[Damage, ...] = (sound, sound, nonsense_batch, nonsense_batch, grown, grown, flipped)
"""Damage after which the broker mostly keeps the connection."""
USUALLY_FATAL: tuple[Damage, ...] = (
    flipped,
    flipped,
    flipped_head,
    cut_short,
    giant_array,
    random_body,
    unknown_api,
    noise,
    other_protocol,
    bad_length,
    broken_off,
)


def bursts(seed: str, frames: int) -> list[Burst]:
    """Return connections that send at least `frames` frames together; the same for the same seed."""
    rng = random.Random(seed)
    served, known = served_requests(rng, POOL_OF_EACH), any_requests(rng, POOL_OF_EACH // 4)
    drawn: list[Burst] = []
    left = frames
    while left > 0:
        burst = _burst(rng, served, known)
        drawn.append(burst)
        left -= len(burst.all_frames)
    return drawn


def _burst(rng: random.Random, served: list[WildRequest], known: list[WildRequest]) -> Burst:
    damages = [rng.choice(OFTEN_SURVIVED) for _ in range(rng.randrange(FRAMES_PER_CONNECTION_MAX))]
    frames = tuple(damage(rng, rng.choice(served)) for damage in damages)
    fatal = rng.choice(USUALLY_FATAL)
    last = fatal(rng, rng.choice(rng.choice((served, served, known))))
    kinds = tuple(damage.__name__ for damage in (*damages, fatal))
    return Burst(frames, last, _after(rng, fatal), kinds)


def _after(rng: random.Random, last: Damage) -> After:
    if last is broken_off:
        return rng.choice((After.HANG_UP, After.HANG_UP, After.HANG_UP, After.STAY))
    return After.DRIBBLE if rng.random() < 0.002 else After.READ
