"""Puts malformed frames on the wire, and counts how the broker took them."""

import socket
import struct
import time
from dataclasses import dataclass

from cordwood.chaos.live.malformed_frames import After, Burst, bursts, framed
from cordwood.chaos.live.wild_requests import HEAD

ANSWER_S = 0.5
LAST_ID = 0x7E57FACE
LAST_REQUEST = framed(HEAD.pack(18, 0, LAST_ID) + b"\xff\xff")
RESET_ON_CLOSE = struct.pack("ii", 1, 0)


@dataclass(frozen=True, slots=True)
class Tally:
    """How the broker took the frames of some connections."""

    taken: int = 0
    """Frames that were answered, or that ended their connection, or were left incomplete."""
    connections: int = 0
    closed_by_broker: int = 0
    stalled: int = 0
    """Connections where neither an answer nor an end came in time, as after a request that may wait."""

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(
            self.taken + other.taken,
            self.connections + other.connections,
            self.closed_by_broker + other.closed_by_broker,
            self.stalled + other.stalled,
        )


def send(port: int, burst: Burst, kept_open: list[socket.socket]) -> Tally:
    """One connection's frames. Raises OSError where the broker takes no connections."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=5)
    connection.settimeout(ANSWER_S)
    # The end of a connection is a reset: a million of them would use up the ports otherwise.
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
    data = b"".join(burst.frames)
    try:
        if burst.after is After.STAY:
            connection.sendall(data)
            kept_open.append(connection)
            return Tally(len(burst.frames), 1)
        if burst.after is After.DRIBBLE:
            data, rest = b"".join(burst.frames[:-1]), burst.frames[-1]
            connection.sendall(data)
            for at in range(min(len(rest), 100)):
                connection.sendall(rest[at : at + 1])
                time.sleep(0.001)
            data = rest[100:]
        if burst.after is After.HANG_UP:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
        else:
            connection.sendall(data + LAST_REQUEST)
        answered, is_closed = _read_answers(connection)
        taken = len(burst.frames) if answered is None else min(answered + is_closed, len(burst.frames))
        return Tally(taken, 1, int(is_closed), int(answered is not None and not is_closed))
    except (ConnectionError, TimeoutError) as error:
        is_closed = not isinstance(error, TimeoutError)
        return Tally(1, 1, int(is_closed), int(not is_closed))
    finally:
        if connection not in kept_open:
            connection.close()


def _read_answers(connection: socket.socket) -> tuple[int | None, bool]:
    """(None, False) once the last request is answered; else how many answers came, and whether the broker closed."""
    buffer = b""
    answers = 0
    while True:
        try:
            data = connection.recv(1 << 16)
        except ConnectionError:
            return answers, True
        except TimeoutError:
            return answers, False
        if not data:
            return answers, True
        buffer += data
        while len(buffer) >= 8 and len(buffer) >= 4 + (size := int.from_bytes(buffer[:4], "big")):
            if int.from_bytes(buffer[4:8], "big") == LAST_ID:
                return None, False
            answers += 1
            buffer = buffer[4 + size :]


def send_chunk(work: tuple[int, str, int]) -> Tally:
    """One chunk, in a process of its own: (port, seed, frames)."""
    port, seed, frames = work
    kept_open: list[socket.socket] = []
    tally = Tally()
    try:
        for burst in bursts(seed, frames):
            tally += send(port, burst, kept_open)
    finally:
        for connection in kept_open:
            connection.close()
    return tally
