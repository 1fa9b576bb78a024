"""A TCP proxy that cuts a client's connection after the request has reached the broker: the response is lost."""

import contextlib
import random
import socket
import struct
import threading
from types import TracebackType

RESET_ON_CLOSE = struct.pack("ii", 1, 0)
PIECE_BYTES = 1 << 16


class CuttingProxy:
    """A proxy on a port of its own. At intervals it drops a response and resets the connection on both sides.

    A response here is one read from the broker, so that a cut may also fall inside a frame.
    """

    def __init__(self, target_port: int, seed: int = 1) -> None:
        self.target_port = target_port
        self.cuts = 0
        self._rng = random.Random(seed)
        self._answers_left: int | None = None
        self._between = (0, 0)
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []

    @property
    def port(self) -> int:
        port: int = self._listener.getsockname()[1]
        return port

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> "CuttingProxy":
        self._run(self._accept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in list(self._open):
            self._reset(connection)
        for thread in self._threads:
            thread.join(5)

    def cut_every(self, least: int, most: int) -> None:
        """From now on, forward at least `least` and at most `most` responses between two cuts."""
        with self._lock:
            self._between = (least, most)
            self._answers_left = self._rng.randint(least, most)

    def heal(self) -> None:
        """Stop cutting."""
        with self._lock:
            self._answers_left = None

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            broker = socket.create_connection(("127.0.0.1", self.target_port))
            for connection in (client, broker):
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._open |= {client, broker}
            self._run(self._forward, client, broker, False)
            self._run(self._forward, broker, client, True)

    def _forward(self, source: socket.socket, sink: socket.socket, is_answers: bool) -> None:
        try:
            while piece := source.recv(PIECE_BYTES):
                if is_answers and self._is_to_be_cut():
                    break
                sink.sendall(piece)
        except OSError:
            pass
        finally:
            self._reset(source)
            self._reset(sink)

    def _is_to_be_cut(self) -> bool:
        with self._lock:
            if self._answers_left is None:
                return False
            self._answers_left -= 1
            if self._answers_left > 0:
                return False
            self._answers_left = self._rng.randint(*self._between)
            self.cuts += 1
            return True

    def _reset(self, connection: socket.socket) -> None:
        with self._lock:
            if connection not in self._open:
                return
            self._open.discard(connection)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
        # A thread that reads from the connection notices a shutdown, but not a close.
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
        connection.close()

    def _run(self, work: object, *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()
