"""An S3 server (moto) on loopback, and a proxy in front of it that fails requests as real stores do."""

import http.client
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

ACCESS_KEY, SECRET_KEY = "AKIDEXAMPLE", "wJalrXUtnFEMI"
SLOW_DOWN_BODY = b"<?xml version='1.0'?><Error><Code>SlowDown</Code><Message>Please reduce your rate.</Message></Error>"


class Fault(Enum):
    """What happens to a request."""

    SLOW_DOWN = "answered with 503, without effect"
    SILENCE = "it has its effect, and no answer"
    RESET = "it has its effect, and the connection ends"
    CUT = "the answer ends in the middle of its body"
    REFUSED = "answered with 403"


@dataclass
class FaultyS3:
    """The proxy. `faults` are for the next requests of their method, first come first served."""

    target: tuple[str, int]
    faults: list[tuple[str, Fault | None]] = field(default_factory=list)
    is_down: bool = False
    """Whether every request gets 503."""
    requests: list[tuple[str, str]] = field(default_factory=list)
    """Methods and paths of all requests."""
    bucket: str = ""
    endpoint: str = ""
    closing: threading.Event = field(default_factory=threading.Event)

    @property
    def credentials(self) -> Mapping[str, str]:
        return {
            "aws_access_key_id": ACCESS_KEY,
            "aws_secret_access_key": SECRET_KEY,
            "region": "us-east-1",
            "endpoint": self.endpoint,
        }

    def fail(self, method: str, *faults: Fault | None) -> None:
        """Let the next requests of the method fail, one for each fault. None lets one pass."""
        self.faults += [(method, fault) for fault in faults]

    def count(self, method: str) -> int:
        """Return the number of requests of the method so far."""
        return sum(one == method for one, _ in self.requests)

    def fault_of(self, method: str) -> Fault | None:
        """Take the fault of a request."""
        if self.is_down:
            return Fault.SLOW_DOWN
        for at, (one, fault) in enumerate(self.faults):
            if one == method:
                del self.faults[at]
                return fault
        return None


@contextmanager
def running_s3() -> Iterator[tuple[str, int]]:
    """Yield host and port of an S3 server with an empty bucket."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    try:
        yield server.get_host_and_port()
    finally:
        server.stop()


def new_bucket(address: tuple[str, int], bucket: str) -> None:
    """Create a bucket. Moto asks for no signature."""
    connection = http.client.HTTPConnection(*address)
    connection.request("PUT", f"/{bucket}", headers={"Authorization": "AWS4-HMAC-SHA256 Credential=a/b/us-east-1/s3/c"})
    assert connection.getresponse().status == 200
    connection.close()


@contextmanager
def faulty_proxy(target: tuple[str, int]) -> Iterator[FaultyS3]:
    """Yield a running proxy in front of an S3 server."""
    state = FaultyS3(target)

    class Handler(_Handler):
        proxy = state

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    state.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield state
    finally:
        state.closing.set()
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    proxy: FaultyS3

    def _serve(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        self.proxy.requests.append((self.command, self.path))
        fault = self.proxy.fault_of(self.command)
        if fault is Fault.SLOW_DOWN:
            self._answer(503, {"Content-Type": "application/xml"}, SLOW_DOWN_BODY)
            return
        if fault is Fault.REFUSED:
            self._answer(403, {}, b"<Error><Code>AccessDenied</Code></Error>")
            return
        status, headers, content = self._forwarded(body)
        if fault is Fault.SILENCE:
            self.proxy.closing.wait()
        if fault in (Fault.SILENCE, Fault.RESET):
            self.close_connection = True
            return
        self._answer(status, headers, content, len(content) // 2 if fault is Fault.CUT else len(content))
        self.close_connection |= fault is Fault.CUT

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _serve  # noqa: N815

    def _forwarded(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection(*self.proxy.target)
        # Moto takes only what the client has signed.
        connection.request(self.command, self.path, body or None, dict(self.headers.items()))
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        return answer.status, dict(answer.getheaders()), content

    def _answer(self, status: int, headers: Mapping[str, str], content: bytes, sent: int | None = None) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            if name.lower() not in ("connection", "transfer-encoding", "content-length"):
                self.send_header(name, value)
        size = headers.get("Content-Length", "0") if self.command == "HEAD" else str(len(content))
        self.send_header("Content-Length", size)
        self.end_headers()
        self.wfile.write(content if sent is None else content[:sent])

    def log_message(self, *_arguments: Any) -> None:
        """Print nothing."""
