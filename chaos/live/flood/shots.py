"""Shots of a flood: one request each, drawn from a seed, and the manner in which a client sends it."""

import http.client
import math
import random
import time
from dataclasses import dataclass
from enum import Enum

from kio.schema.api_versions.v0.request import ApiVersionsRequest

from cordwood.chaos.live.flood.aim import FloodTarget
from cordwood.chaos.live.flood.http_requests import HttpRequest, http_request
from cordwood.chaos.live.flood.large_requests import LargeRequest, large_request, versions_known
from cordwood.chaos.live.flood.raw_connection import RawConnection, ask

ANSWER_S = 10.0
SHORTEST_S = 0.01
SEND_S = 1.0
"""The time that a client that reads nothing tries to send."""
COPIES = (2, 5, 20)
UNREAD_COPIES_MAX = 200
COPIES_BYTES_MAX = 32 << 20
SMALLEST_BUFFER_BYTES = 4096
HELD_MAX = 10
HTTP_SHARE = 0.1

Api = tuple[int, int]
"""Key and version."""


class Manner(Enum):
    """The way in which a client sends a request."""

    ASKED = "one request, whose answer is read"
    PIPELINED = "several at once, whose answers are read"
    ABANDONED = "one request, and the connection is reset"
    UNREAD = "many at once, whose answers are not read while the connection stays open"


MANNERS = (Manner.ASKED, Manner.ASKED, Manner.PIPELINED, Manner.ABANDONED, Manner.UNREAD)


class ShotOutcome(Enum):
    """The outcome of a shot, as the client sees it."""

    ANSWERED = "answered"
    CLOSED = "closed by the broker"
    UNANSWERED = "not answered in time"
    LEFT = "not waited for"


@dataclass(frozen=True, slots=True)
class Shot:
    """One request sent. Times in seconds of the monotonic clock."""

    name: str
    """Seed, chunk and number: `--shot` sends it again."""
    what: str
    began_s: float
    ended_s: float
    outcome: ShotOutcome


@dataclass(frozen=True, slots=True)
class ShotRange:
    """The shots of one process: a range of one seed's, at any of the brokers."""

    aims: tuple[FloodTarget, ...]
    apis: tuple[Api, ...]
    seed: int
    number: int
    shots: range
    end_s: float = math.inf
    """The time after which no shot begins, in seconds of the monotonic clock, which processes share."""


def announced(address: str) -> tuple[Api, ...]:
    """Return every version of every API that a broker announces, newest last. Raises OSError, UnknownApi."""
    answer = ask(address, ApiVersionsRequest())
    return tuple(
        (row.api_key, version)
        for row in answer.api_keys
        for version in versions_known(row.api_key, row.min_version, row.max_version)
    )


def send_chunk(chunk: ShotRange) -> list[Shot]:
    """Send one shot after the other; runs in a process of its own."""
    held: list[RawConnection] = []
    try:
        return [_shoot(chunk, number, held) for number in chunk.shots if time.monotonic() < chunk.end_s]
    finally:
        for connection in held:
            connection.close()


def _shoot(chunk: ShotRange, number: int, held: list[RawConnection]) -> Shot:
    name = f"{chunk.seed}/{chunk.number}/{number}"
    rng = random.Random(name)
    aim = rng.choice(chunk.aims)
    if rng.random() < HTTP_SHARE:
        request = http_request(rng, aim.names)
        began_s = time.monotonic()
        outcome = _get(aim.http_address, request, is_abandoned=rng.random() < 0.3)
        return Shot(name, request.what, began_s, time.monotonic(), outcome)
    large = large_request(rng, *rng.choice(chunk.apis), aim.names)
    manner = rng.choice(MANNERS)
    began_s = time.monotonic()
    outcome = _send(aim.address, large, manner, rng.choice(COPIES), held)
    return Shot(name, f"{large.what}; {manner.value}", began_s, time.monotonic(), outcome)


def _send(address: str, large: LargeRequest, manner: Manner, copies: int, held: list[RawConnection]) -> ShotOutcome:
    affordable = max(COPIES_BYTES_MAX // len(large.frame), 1)
    try:
        if manner is Manner.UNREAD:
            return _leave_unread(address, large.frame * min(affordable, UNREAD_COPIES_MAX), held)
        with RawConnection(address, ANSWER_S) as connection:
            count = min(copies, affordable) if manner is Manner.PIPELINED else 1
            connection.socket.sendall(large.frame * count)
            if manner is Manner.ABANDONED or not large.is_answered:
                return ShotOutcome.LEFT
            deadline_s = time.monotonic() + ANSWER_S
            for _ in range(count):
                connection.socket.settimeout(max(deadline_s - time.monotonic(), SHORTEST_S))
                connection.receive_frame()
    except TimeoutError:
        return ShotOutcome.UNANSWERED
    except OSError:
        return ShotOutcome.CLOSED
    return ShotOutcome.ANSWERED


def _leave_unread(address: str, frames: bytes, held: list[RawConnection]) -> ShotOutcome:
    """Send without reading. Raises OSError."""
    connection = RawConnection(address, SEND_S, SMALLEST_BUFFER_BYTES)
    held.append(connection)
    if len(held) > HELD_MAX:
        held.pop(0).close()
    connection.socket.sendall(frames)
    return ShotOutcome.LEFT


def _get(address: str, request: HttpRequest, *, is_abandoned: bool) -> ShotOutcome:
    connection = http.client.HTTPConnection(address, timeout=ANSWER_S)
    try:
        connection.request(request.method, request.target, request.body, dict(request.headers))
        if is_abandoned:
            return ShotOutcome.LEFT
        connection.getresponse().read()
    except TimeoutError:
        return ShotOutcome.UNANSWERED
    except (OSError, http.client.HTTPException):
        return ShotOutcome.CLOSED
    finally:
        connection.close()
    return ShotOutcome.ANSWERED
