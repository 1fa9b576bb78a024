"""Attempts over HTTP: logins, tokens, cookies and headers that are not valid, and malformed HTTP."""

import base64
import json
import random
import re
import ssl

from cordwood.chaos.live.intruders.changes import changed_bytes, changed_json, changed_token
from cordwood.chaos.live.intruders.connection import BrokerClosed, IntruderConnection
from cordwood.chaos.live.intruders.keys import sign
from cordwood.chaos.live.intruders.stage import ADMIN, HOST, USER, ClosedTarget

PATHS = (
    "/v1/topics",
    "/v1/topics/bystander",
    "/v1/brokers",
    "/v1/cluster",
    "/v1/groups",
    "/v1/session",
    "/v1/status",
    "/metrics",
    "/openapi.json",
    "/console/pulse",
    "/v1/topics/bystander/partitions/0/records",
)
METHODS = ("GET", "GET", "GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "TRACE")
HEADERS = (
    "X-Forwarded-For: 127.0.0.1",
    "X-Forwarded-Proto: https",
    "X-Original-URL: /healthz",
    "X-HTTP-Method-Override: GET",
    "X-CSRF-Token: x",
    "Origin: https://evil.example.org",
    "Sec-Fetch-Site: cross-site",
    "Transfer-Encoding: chunked",
    "Transfer-Encoding: chunked\r\nContent-Length: 5",
    "Content-Length: -1",
    "Content-Length: 99999999999",
    "Content-Encoding: gzip",
    "Content-Encoding: br",
    "Expect: 100-continue",
    "Upgrade: websocket\r\nConnection: Upgrade",
    "Host: evil.example.org",
    "Accept: text/event-stream",
    "Range: bytes=0-1",
)
COOKIE_NAMES = ("__Host-cordwood-1", "cordwood-1", "__host-cordwood-1", "__Host-cordwood-2")
CHANGED_SHARE = 0.2
_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3})")
_SESSION = re.compile(rb"set-cookie: *[^\r\n=]*cordwood-1=\"?[A-Za-z0-9_-]{20}", re.IGNORECASE)
ANSWER_S = 3.0


class HttpAttempt:
    """One connection with one to three requests, none of which has valid credentials."""

    def __init__(self, rng: random.Random, target: ClosedTarget, context: ssl.SSLContext) -> None:
        self._rng, self._target, self._context = rng, target, context
        self.outcome = ""

    def run(self) -> list[str]:
        """Return a sentence for each intrusion. Raises OSError if the broker takes no connections."""
        rng = self._rng
        try:
            connection = IntruderConnection(rng, self._target.http_port, self._context)
        except BrokerClosed:
            self.outcome = "HTTP: no TLS connection"
            return []
        is_intact = rng.random() > CHANGED_SHARE
        requests = [self._request() for _ in range(rng.choice((1, 1, 1, 2, 3)) if is_intact else 1)]
        if not is_intact:
            requests = [changed_bytes(rng, request) for request in requests]
        with connection:
            try:
                connection.send(b"".join(requests))
                seconds = ANSWER_S if is_intact else 0.5
                while len(_STATUS.findall(connection.received)) < len(requests):
                    if not connection.receive(seconds):
                        break
                connection.receive(0.01)
            except BrokerClosed:
                pass
            received = bytes(connection.received)
            statuses = [int(status) for status in _STATUS.findall(received)]
            self.outcome = f"HTTP: {' '.join(map(str, sorted(set(statuses)))) or 'no response'}"
            found = connection.intrusions(may_send=True)
            if _SESSION.search(received):
                found.append(f"a session began: {received[:300]!r}")
            if is_intact and any(200 <= status < 300 for status in statuses):
                found.append(f"{requests!r} were answered with {received[:300]!r}")
            if any(status >= 500 and status not in (501, 503) for status in statuses):
                found.append(f"{requests!r} failed: {received[:300]!r}")
            return found

    def _request(self) -> bytes:
        """Return one request."""
        rng = self._rng
        headers = [f"Host: {HOST}:{self._target.http_port}"]
        method, path, body = rng.choice(METHODS), rng.choice(PATHS), b""
        match rng.randrange(6):
            case 0 | 1:
                method, path, body = "POST", "/v1/login", self._login()
                headers.append(
                    f"Content-Type: {rng.choice(('application/json', 'application/json', 'text/plain', ''))}"
                )
            case 2:
                token = changed_token(rng, self._target.user_token, self._target.public_key, sign)
                headers.append(f"Authorization: {rng.choice(('Bearer', 'bearer', 'BEARER', 'Bearer '))} {token}")
            case 3:
                pair = rng.choice((f"{USER}:wrong", f"{ADMIN}:", ":", "delegation-token:x:y", f"{USER}:\x00"))
                content = base64.b64encode(pair.encode())
                if rng.random() < 0.5:
                    content = changed_bytes(rng, content)
                headers.append(f"Authorization: Basic {content.decode('latin-1')}")
            case 4:
                secret = base64.urlsafe_b64encode(rng.randbytes(32)).decode().rstrip("=")
                if rng.random() < 0.5:
                    secret = changed_bytes(rng, secret.encode()).decode("latin-1")
                headers.append(f"Cookie: {rng.choice(COOKIE_NAMES)}={secret}")
                headers.append("X-CSRF-Token: " + secret)
        if rng.random() < 0.3:
            headers.append(rng.choice(HEADERS))
        if body or rng.random() < 0.2:
            headers.append(f"Content-Length: {len(body)}")
        text = f"{method} {path} HTTP/1.1\r\n" + "".join(f"{header}\r\n" for header in headers) + "\r\n"
        return text.encode("latin-1", "replace") + body

    def _login(self) -> bytes:
        """Return the body of a login with a wrong password."""
        password = self._target.user_password
        wrong = self._rng.choice(("", "x", password[:-1], password + "x", password + "\x00", password.swapcase() + "!"))
        login = {"user": self._rng.choice((USER, ADMIN, "unknown")), "password": wrong}
        return json.dumps(login).encode() if self._rng.random() < 0.3 else changed_json(self._rng, login)
