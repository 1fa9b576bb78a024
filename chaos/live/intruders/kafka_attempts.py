"""Attempts over Kafka's protocol: valid authentications with one change, and requests before, during and after them."""

import base64
import functools
import hashlib
import hmac
import random
import ssl
from collections.abc import Generator
from typing import Any

from kio.schema.api_versions.v3.request import ApiVersionsRequest
from kio.schema.create_topics.v5.request import CreatableTopic, CreateTopicsRequest
from kio.schema.describe_user_scram_credentials.v0.request import DescribeUserScramCredentialsRequest
from kio.schema.metadata.v9.request import MetadataRequest
from kio.schema.sasl_authenticate.v2.request import SaslAuthenticateRequest
from kio.schema.sasl_handshake.v0.request import SaslHandshakeRequest as RawHandshake
from kio.schema.sasl_handshake.v1.request import SaslHandshakeRequest

from cordwood.chaos.live.intruders.changes import TEXTS, changed_bytes, changed_message, changed_token
from cordwood.chaos.live.intruders.connection import CORRELATION_IDS, BrokerClosed, IntruderConnection
from cordwood.chaos.live.intruders.keys import sign
from cordwood.chaos.live.intruders.stage import ADMIN, CLIENTS, GUEST, READABLE, USER, ClosedTarget
from cordwood.chaos.live.wild_requests import api_versions, known_apis, wild_request
from cordwood.client.codec import LENGTH_BYTES, decode_response, encode_request

CLIENT_ID = b"intruder"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
SEPARATORS = {"PLAIN": b"\0", "SCRAM-SHA-256": b",", "SCRAM-SHA-512": b",", "OAUTHBEARER": b"\x01"}
TLS_SHARE, GUEST_SHARE, RAW_SHARE = 0.1, 0.15, 0.25
STEPS_MAX = 14
VERSIONS, HANDSHAKE, MESSAGE, WILD, PROBE, JUNK = "versions", "handshake", "message", "wild", "probe", "junk"

Exchange = Generator[bytes, bytes, None]
"""Yields the client's messages, and is sent the broker's."""


@functools.cache
def _writable() -> list[tuple[int, int]]:
    return api_versions(known_apis())


class KafkaAttempt:
    """One connection. `outcome` is how it ended, for the tally."""

    def __init__(self, rng: random.Random, target: ClosedTarget, context: ssl.SSLContext) -> None:
        self._rng, self._target = rng, target
        self._context = context if rng.random() < TLS_SHARE else None
        self._mechanism = rng.choice(MECHANISMS)
        self._is_raw = rng.random() < RAW_SHARE
        self._replies = 0
        self.outcome = ""

    def run(self) -> list[str]:
        """Return a sentence for each intrusion. Raises OSError if the broker takes no connections."""
        rng = self._rng
        port = self._target.ports[READABLE if self._context is None else CLIENTS]
        try:
            connection = IntruderConnection(rng, port, self._context)
        except BrokerClosed:
            self.outcome = "no TLS connection"
            return []
        is_guest = rng.random() < GUEST_SHARE
        with connection:
            try:
                if is_guest:
                    self._as_guest(connection)
                elif rng.random() < 0.5:
                    self._one_change(connection)
                else:
                    self._other_order(connection)
                for _ in range(rng.choice((1, 1, 3))):
                    self._send(connection, self._probe())
            except BrokerClosed:
                pass
            is_closed = connection.drain()
            who = "guest" if is_guest else f"{self._mechanism}{' raw' if self._is_raw else ''}"
            self.outcome = f"{who}: {self._replies} replies, {'closed' if is_closed else 'open'}"
            return connection.intrusions(may_send=is_guest)

    def _one_change(self, connection: IntruderConnection) -> None:
        """Send an exchange that would let the user in, but for one change of one message."""
        rng = self._rng
        changed_at = 0 if self._mechanism in ("PLAIN", "OAUTHBEARER") else rng.randrange(2)
        if self._mechanism == "OAUTHBEARER":
            token = changed_token(rng, self._target.user_token, self._target.public_key, sign)
            exchange = _bearer(token)
        else:
            exchange = self._exchange(USER, self._target.user_password)
        if rng.random() < 0.5:
            self._send(connection, ApiVersionsRequest(client_software_name="x", client_software_version="1"))
            connection.next_frame()
        self._handshake(connection)
        reply = b""
        for number in range(STEPS_MAX):
            message = _next(exchange, reply if number else None)
            if message is None:
                break
            if number == changed_at and self._mechanism != "OAUTHBEARER":
                message = self._invalid(message)
            reply = self._message(connection, message)

    def _invalid(self, message: bytes) -> bytes:
        """Return a changed message that proves nothing: another one may mean the same as the valid one."""
        while True:
            changed = changed_message(self._rng, message, SEPARATORS[self._mechanism])
            if _meaning(changed) != _meaning(message):
                return changed

    def _other_order(self, connection: IntruderConnection) -> None:
        """Send the steps of an authentication without a valid secret, in any order, with other frames among them."""
        exchange = self._exchange(self._rng.choice((USER, ADMIN, "unknown")), "wrong")
        waits = self._rng.random() < 0.6
        reply: bytes | None = None
        for step in self._steps():
            if step == MESSAGE:
                message = _next(exchange, reply) or self._rng.choice(TEXTS)
                changed = changed_bytes(self._rng, message) if self._rng.random() < 0.3 else message
                self._send_message(connection, changed)
                reply = b""
            else:
                self._send_step(connection, step)
            if waits:
                frame = connection.next_frame(1.0)
                self._replies += bool(frame)
                if step == MESSAGE:
                    reply = _auth_bytes(frame, self._is_raw)

    def _steps(self) -> list[str]:
        """Return the steps of an authentication, some of them dropped, repeated or in another place, with others."""
        rng = self._rng
        steps = [VERSIONS, HANDSHAKE, MESSAGE, MESSAGE]
        for _ in range(rng.randrange(6)):
            at = rng.randrange(len(steps) + 1)
            match rng.randrange(4):
                case 0 if steps:
                    del steps[at % len(steps)]
                case 1 if steps:
                    steps[at:at] = [rng.choice(steps)] * rng.choice((1, 1, STEPS_MAX))
                case 2:
                    steps.insert(at, rng.choice((WILD, PROBE, JUNK, HANDSHAKE, MESSAGE, VERSIONS)))
                case _:
                    rng.shuffle(steps)
        return steps[: 3 * STEPS_MAX]

    def _send_step(self, connection: IntruderConnection, step: str) -> None:
        rng = self._rng
        if step == VERSIONS:
            self._send(connection, ApiVersionsRequest(client_software_name="x", client_software_version="1"))
        elif step == HANDSHAKE:
            self._handshake(connection, waits=False)
        elif step == PROBE:
            self._send(connection, self._probe())
        elif step == WILD:
            self._send_wild(connection, changed_share=0.3)
        else:
            length = rng.choice((-1, 0, 3, 8, 65_536, 65_537, 2**31 - 1, 100))
            connection.send(length.to_bytes(4, "big", signed=True) + rng.randbytes(rng.choice((0, 8, 200))))

    def _send_wild(self, connection: IntruderConnection, changed_share: float) -> None:
        """Send a request to any API, with any content."""
        rng = self._rng
        request = wild_request(rng, *rng.choice(_writable())).frame
        connection.send(_framed(changed_bytes(rng, request) if rng.random() < changed_share else request))

    def _as_guest(self, connection: IntruderConnection) -> None:
        """Log in as a user without rights, then send changed requests, and try to become another user."""
        rng, self._is_raw = self._rng, False
        if self._mechanism == "OAUTHBEARER":
            exchange = _bearer(self._target.guest_token)
        else:
            exchange = self._exchange(GUEST, self._target.guest_password)
        self._handshake(connection)
        reply = b""
        for number in range(3):
            message = _next(exchange, reply if number else None)
            if message is None:
                break
            reply = self._message(connection, message)
        for _ in range(rng.randrange(1, 8)):
            match rng.randrange(4):
                case 0:
                    self._send(connection, self._probe())
                case 1:
                    self._handshake(connection)
                    self._message(connection, next(self._exchange(rng.choice((ADMIN, USER)), "wrong")))
                case 2:
                    self._send_message(connection, rng.choice(TEXTS))
                case _:
                    self._send_wild(connection, changed_share=0.5)
            if rng.random() < 0.5:
                connection.next_frame(0.2)

    def _handshake(self, connection: IntruderConnection, *, waits: bool = True) -> None:
        schema: Any = RawHandshake if self._is_raw else SaslHandshakeRequest
        self._send(connection, schema(mechanism=self._mechanism))
        if waits:
            self._replies += bool(connection.next_frame())

    def _message(self, connection: IntruderConnection, message: bytes) -> bytes:
        """Send one message of an exchange. Return the broker's."""
        self._send_message(connection, message)
        frame = connection.next_frame(1.0)
        self._replies += bool(frame)
        return _auth_bytes(frame, self._is_raw)

    def _send_message(self, connection: IntruderConnection, message: bytes) -> None:
        if self._is_raw:
            connection.send(_framed(message))
        else:
            self._send(connection, SaslAuthenticateRequest(auth_bytes=message))

    def _send(self, connection: IntruderConnection, request: Any) -> None:
        connection.send(encode_request(request, self._rng.randrange(1, CORRELATION_IDS), CLIENT_ID))

    def _probe(self) -> Any:
        """Return a request that only an authenticated client gets a response to."""
        match self._rng.randrange(3):
            case 0:
                return MetadataRequest(
                    topics=None,
                    allow_auto_topic_creation=False,
                    include_cluster_authorized_operations=True,
                    include_topic_authorized_operations=True,
                )
            case 1:
                return DescribeUserScramCredentialsRequest(users=None)
        topic = CreatableTopic(name="intruded", num_partitions=1, replication_factor=1, assignments=(), configs=())
        return CreateTopicsRequest(topics=(topic,))

    def _exchange(self, user: str, password: str) -> Exchange:
        if self._mechanism == "PLAIN":
            return _plain(user, password)
        if self._mechanism == "OAUTHBEARER":
            return _bearer(changed_token(self._rng, self._target.user_token, self._target.public_key, sign))
        return _scram(self._rng, user, password, "sha256" if self._mechanism.endswith("256") else "sha512")


def _next(exchange: Exchange, reply: bytes | None) -> bytes | None:
    """Return the next message; None if there is none to this reply. The first one has no reply."""
    try:
        return next(exchange) if reply is None else exchange.send(reply)
    except (StopIteration, ValueError, KeyError):
        return None


def _plain(user: str, password: str) -> Exchange:
    yield f"\0{user}\0{password}".encode()


def _bearer(token: str) -> Exchange:
    yield f"n,,\x01auth=Bearer {token}\x01\x01".encode("utf-8", "surrogatepass")
    yield b"\x01"


def _scram(rng: random.Random, user: str, password: str, hash_name: str) -> Exchange:
    bare = f"n={user},r=intruder{rng.randrange(1 << 30)}"
    first = yield f"n,,{bare}".encode()
    fields = dict(part.split("=", 1) for part in first.decode().split(","))
    salted = _salted(hash_name, password, base64.b64decode(fields["s"]), int(fields["i"]))
    final = f"c=biws,r={fields['r']}"
    client_key = hmac.digest(salted, b"Client Key", hash_name)
    stored = hashlib.new(hash_name, client_key).digest()
    signature = hmac.digest(stored, f"{bare},{first.decode()},{final}".encode(), hash_name)
    proof = bytes(one ^ other for one, other in zip(client_key, signature, strict=True))
    yield f"{final},p={base64.b64encode(proof).decode()}".encode()


@functools.lru_cache(1000)
def _salted(hash_name: str, password: str, salt: bytes, iterations: int) -> bytes:
    return hashlib.pbkdf2_hmac(hash_name, password.encode(), salt, iterations)


def _meaning(message: bytes) -> bytes:
    """Return a message without what may differ between equal ones.

    That is the last bits of a proof in base64, and an authorization id that is the user's name.
    """
    authzid, _, words = message.partition(b"\0")
    if words.startswith(authzid + b"\0"):
        return b"\0" + words
    head, mark, proof = message.rpartition(b",p=")
    try:
        return head + mark + base64.b64decode(proof)
    except ValueError:
        return message


def _auth_bytes(frame: bytes, is_raw: bool) -> bytes:
    """Return the message in a response; nothing if it is none."""
    if is_raw:
        return frame
    try:
        return decode_response(SaslAuthenticateRequest, memoryview(frame)).auth_bytes or b""
    except ConnectionError:
        return b""


def _framed(content: bytes) -> bytes:
    return len(content).to_bytes(LENGTH_BYTES, "big") + content
