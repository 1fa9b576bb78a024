"""Senders of malformed frames, with counts of answers, closed connections and stalls."""

import socket
import struct
import time
from dataclasses import dataclass

from cordwood.chaos.live.malformed_frames import After, Burst, bursts, framed
from cordwood.chaos.live.wild_requests import HEAD
from cordwood.client.codec import ResponseFrames, correlation_id_of

CONNECT_S = 10.0
ANSWER_S = 0.5
DRIBBLED_BYTES_MAX = 100
DRIBBLE_PAUSE_S = 0.001
FENCE_ID = 0x7E57FACE
FENCE = framed(HEAD.pack(18, 0, FENCE_ID) + b"\xff\xff")
"""A well-formed ApiVersions request. Answers come in order, so its answer shows that all frames before it were taken.
"""
RESET_ON_CLOSE = struct.pack("ii", 1, 0)


@dataclass(frozen=True, slots=True)
class SenderTally:
    """Counts over some connections."""

    taken: int = 0
    """Frames that were answered, ended their connection, or were left incomplete."""
    connections: int = 0
    closed_by_broker: int = 0
    stalled: int = 0
    """Connections with neither an answer nor a close in time, for example after a request that may wait."""

    def __add__(self, other: "SenderTally") -> "SenderTally":
        return SenderTally(
            self.taken + other.taken,
            self.connections + other.connections,
            self.closed_by_broker + other.closed_by_broker,
            self.stalled + other.stalled,
        )


class Ended(Exception):
    """The broker closed the connection after `answers` answers."""

    def __init__(self, answers: int) -> None:
        self.answers = answers


class Stalled(Exception):
    """The broker neither answered in time nor closed the connection, after `answers` answers."""

    def __init__(self, answers: int) -> None:
        self.answers = answers


def send(port: int, burst: Burst, kept_open: list[socket.socket]) -> SenderTally:
    """Send one connection's frames. Raises OSError where the broker accepts no connections."""
    connection = socket.create_connection(("127.0.0.1", port), CONNECT_S)
    connection.settimeout(ANSWER_S)
    # Close with a reset: a million connections in TIME_WAIT would use up the ports.
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
    taken = 0
    try:
        _exchange(connection, b"".join(burst.frames) + FENCE)
        taken = len(burst.frames)
        _send_last(connection, burst)
        return SenderTally(taken + 1, 1)
    except Ended as ended:
        return SenderTally(min(taken + ended.answers, len(burst.frames)) + 1, 1, closed_by_broker=1)
    except Stalled as stalled:
        return SenderTally(min(taken + stalled.answers, len(burst.frames)), 1, stalled=1)
    finally:
        if burst.after is After.STAY:
            kept_open.append(connection)
        else:
            connection.close()


def _send_last(connection: socket.socket, burst: Burst) -> None:
    """Send the last frame in the manner of `burst.after`. Raises Ended and Stalled."""
    match burst.after:
        case After.READ:
            _exchange(connection, burst.last + FENCE)
        case After.HANG_UP:
            _exchange(connection, burst.last, hangs_up=True)
        case After.STAY:
            _exchange(connection, burst.last, waits=False)
        case After.DRIBBLE:
            for at in range(min(len(burst.last), DRIBBLED_BYTES_MAX)):
                _exchange(connection, burst.last[at : at + 1], waits=False)
                time.sleep(DRIBBLE_PAUSE_S)
            _exchange(connection, burst.last[DRIBBLED_BYTES_MAX:] + FENCE)


def _exchange(connection: socket.socket, data: bytes, *, hangs_up: bool = False, waits: bool = True) -> None:
    """Send, then read until the fence is answered. Raises Ended and Stalled."""
    frames = ResponseFrames()
    answers = 0
    try:
        connection.sendall(data)
        if hangs_up:
            connection.shutdown(socket.SHUT_WR)
        while waits:
            received = connection.recv_into(frames.room())
            if not received:
                raise Ended(answers)
            frames.received(received)
            while (frame := frames.next()) is not None:
                if correlation_id_of(frame) == FENCE_ID:
                    return
                answers += 1
    except TimeoutError:
        raise Stalled(answers) from None
    except OSError:
        raise Ended(answers) from None


def send_chunk(work: tuple[int, str, int]) -> SenderTally:
    """Send one chunk: (port, seed, frames). Runs in a process of its own."""
    port, seed, frames = work
    kept_open: list[socket.socket] = []
    tally = SenderTally()
    try:
        for burst in bursts(seed, frames):
            tally += send(port, burst, kept_open)
    finally:
        for connection in kept_open:
            connection.close()
    return tally
