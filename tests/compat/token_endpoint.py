"""Token endpoint of an identity provider, for clients that fetch their tokens (KIP-768)."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from secured_brokers import bearer_token

AZURE_IMDS = {"api-version", "resource", "client_id"}
"""Parameters of a request to Azure's metadata service."""


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        """Answer as Azure's metadata service does, which takes no credentials."""
        is_complete = parse_qs(urlsplit(self.path).query).keys() >= AZURE_IMDS
        self._answer(HTTPStatus.OK if is_complete else HTTPStatus.BAD_REQUEST)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self._answer(HTTPStatus.OK)

    def _answer(self, status: HTTPStatus) -> None:
        tokens = {
            "/valid": bearer_token(client_id="alice")[0],
            "/expired": bearer_token(-60)[0],
            "/malformed": "not a token",
        }
        token = {"access_token": tokens[urlsplit(self.path).path], "token_type": "Bearer"}
        body = json.dumps(token if status == HTTPStatus.OK else {"error": "invalid_request"}).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def token_endpoint() -> Iterator[str]:
    """Serve tokens. Yield an address that is to be followed by /valid, /expired or /malformed."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
