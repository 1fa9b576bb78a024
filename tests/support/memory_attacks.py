"""Clients that make a broker hold memory: each sends valid Kafka requests and reads as little as possible."""

import contextlib
import socket
import struct
import time
from collections.abc import Iterator

from cordwood.chaos.live.malformed import resident_mb

HEAD = struct.Struct(">ihhih")
FETCH, METADATA, PRODUCE, API_VERSIONS = 1, 3, 0, 18
CONNECT_S = 10.0


def frame(api: int, version: int, body: bytes, *, number: int = 7, flexible: bool = False) -> bytes:
    """Return a request with its length prefix, from a client without a client id."""
    head = HEAD.pack(HEAD.size - 4 + flexible + len(body), api, version, number, 0)
    return head + (b"\x00" if flexible else b"") + body


def fetch_of_unknown(partitions: int, *, wait_ms: int = 0, session: tuple[int, int] = (0, 0)) -> bytes:
    """Return a Fetch that creates a session with `partitions` partitions of a topic that does not exist."""
    return fetch_of("missing", partitions, wait_ms, session)


def fetch_of(topic: str, partitions: int, wait_ms: int, session: tuple[int, int] = (0, -1)) -> bytes:
    """Return a Fetch of `partitions` partitions; by default without a session."""
    rows = b"".join(struct.pack(">iiqiqi", index, -1, 0, -1, 0, 1 << 20) + b"\x00" for index in range(partitions))
    body = struct.pack(">iiiib", -1, wait_ms, 1, 1 << 20, 0) + struct.pack(">ii", *session)
    body += b"\x02" + _uvarint(len(topic) + 1) + topic.encode() + _uvarint(partitions + 1) + rows + b"\x00"
    return frame(FETCH, 12, body + b"\x01\x01\x00", flexible=True)


def metadata_of_all(number: int = 7) -> bytes:
    """Return a Metadata request for all topics."""
    return frame(METADATA, 1, struct.pack(">i", -1), number=number)


def produce_head(size: int) -> bytes:
    """Return the first bytes of a Produce request of `size` bytes."""
    return HEAD.pack(size, PRODUCE, 7, 7, 0)


def produce_of(topic: str, size: int) -> bytes:
    """Return a Produce request with `size` bytes that are no batch."""
    body = struct.pack(">hhii", -1, -1, 30_000, 1) + struct.pack(">h", len(topic)) + topic.encode()
    return frame(PRODUCE, 7, body + struct.pack(">iii", 1, 0, size) + bytes(size))


@contextlib.contextmanager
def connections(port: int, count: int) -> Iterator[list[socket.socket]]:
    """Yield `count` connections, closed at the end."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(socket.create_connection(("127.0.0.1", port), CONNECT_S)) for _ in range(count)]


def send_as_far_as_taken(opened: socket.socket, data: bytes, silent_s: float = 0.5) -> int:
    """Send until all is sent, the broker hangs up, or it reads nothing for `silent_s`. Return the bytes sent."""
    opened.settimeout(silent_s)
    view, sent = memoryview(data), 0
    with contextlib.suppress(TimeoutError, OSError):
        while sent < len(view):
            sent += opened.send(view[sent : sent + (1 << 20)])
    return sent


def read_frame(opened: socket.socket, seconds: float = 30.0) -> bytes:
    """Return one response without its length prefix. Raises ConnectionError at the end of the connection."""
    opened.settimeout(seconds)
    size = int.from_bytes(_exactly(opened, 4), "big")
    return _exactly(opened, size)


def is_hung_up(opened: socket.socket, seconds: float = 5.0) -> bool:
    """Return whether the broker closes the connection within that time. Bytes that arrive meanwhile are discarded."""
    deadline = time.monotonic() + seconds
    try:
        while (left := deadline - time.monotonic()) > 0:
            opened.settimeout(left)
            if not opened.recv(1 << 16):
                return True
    except TimeoutError:
        return False
    except OSError:
        return True
    return False


class Resident:
    """The growth of a process's resident memory in MB: its maximum over all calls of `look`."""

    def __init__(self, pid: int) -> None:
        self._pid, self._before = pid, resident_mb(pid)
        self.most_mb = 0.0

    def look(self) -> float:
        """Return the present growth."""
        grown_mb = resident_mb(self._pid) - self._before
        self.most_mb = max(self.most_mb, grown_mb)
        return grown_mb


def _exactly(opened: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        piece = opened.recv(min(size - len(data), 1 << 20))
        if not piece:
            raise ConnectionError("the broker hung up")
        data += piece
    return bytes(data)


def _uvarint(number: int) -> bytes:
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])
