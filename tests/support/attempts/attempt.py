"""Attempts to get in: what is sent to which port, how it is refused, and what the audit log has then."""

import http.client
import json
import socket
import ssl
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from typing import Any
from uuid import UUID

from closed_cluster import CLIENTS, UNENCRYPTED, ClosedCluster, valid_token
from requests_without_rights import codes_in
from sasl_client import Refusal, SaslClient
from secure_cluster import ANSWER_S, HOST

from cordwood.cluster.broker.quorums import JOIN_QUORUM
from cordwood.cluster.security.audit.event import AUTHENTICATE, FAILED

BROKER = 1
"""The broker that attempts go to, but for requests to a coordinator."""
CLOSED = "CLOSED"
"""The observed refusal of a broker that ends the connection without an answer."""
NOTHING_SHOWN = "NOTHING SHOWN"
"""The observed refusal of a list that leaves out what the client may not see."""
ALERT_BYTES_MAX = 10
"""The largest answer of TLS to a client that does not speak it."""


class Port(Enum):
    """The kind of port that an attempt goes to."""

    KAFKA = "Kafka with TLS and SASL"
    KAFKA_UNENCRYPTED = "Kafka with SASL, without TLS"
    REPLICATION = "the listener of the brokers, which requires a certificate"
    QUORUM = "the metadata quorum"
    HTTP = "HTTP with TLS"


@dataclass(frozen=True, slots=True)
class Audited:
    """A line that the audit log must have about the client. Empty fields may have any value."""

    action: str
    outcome: str
    principal: str = ""
    detail: str = ""

    def fits(self, line: Mapping[str, Any]) -> bool:
        """Return whether a line is the expected one. `detail` is a part of it."""
        wanted = {"action": self.action, "outcome": self.outcome, "principal": self.principal}
        return all(line[name] == value for name, value in wanted.items() if value) and self.detail in line["detail"]


def unproved(detail: str = "", principal: str = "", outcome: str = FAILED) -> Audited:
    """Return the line about an authentication that failed."""
    return Audited(AUTHENTICATE, outcome, principal, detail)


def not_of_the_quorum(detail: str) -> Audited:
    """Return the line about a connection that the quorum refused."""
    return Audited(JOIN_QUORUM, FAILED, detail=detail)


class Stranger:
    """The client of one attempt, at an address of its own, by which the audit log is searched."""

    def __init__(self, cluster: ClosedCluster, host: str, topic_id: UUID) -> None:
        self.cluster, self.host, self.topic_id = cluster, host, topic_id

    def port(self, port: Port, broker_id: int = BROKER) -> int:
        """Return the number of a port of a broker."""
        match port:
            case Port.KAFKA:
                return self.cluster.ports[CLIENTS][broker_id]
            case Port.KAFKA_UNENCRYPTED:
                return self.cluster.ports[UNENCRYPTED][BROKER]
            case Port.REPLICATION:
                return self.cluster.brokers[BROKER].port
            case Port.QUORUM:
                return self.cluster.quorum_ports[BROKER]
            case Port.HTTP:
                return self.cluster.http_ports[BROKER]

    def kafka(self, port: Port = Port.KAFKA, tls: ssl.SSLContext | None = None) -> SaslClient:
        """Connect without proof, with TLS where the port has it."""
        if port is not Port.KAFKA_UNENCRYPTED:
            tls = tls or self.cluster.trusting
        return SaslClient(self.port(port), tls, self.host)

    def as_user(self, user: str, broker_id: int = BROKER) -> SaslClient:
        """Connect to a broker as a user, with a token of the identity provider."""
        client = SaslClient(self.port(Port.KAFKA, broker_id), self.cluster.trusting, self.host)
        client.bearer(valid_token(user))
        return client

    def send(self, port: Port, content: bytes, tls: ssl.SSLContext | None = None) -> bytes:
        """Send bytes, with TLS if there is a context. Return all that comes until the broker ends the connection."""
        received = b""
        with suppress(ConnectionError, ssl.SSLError), self.connected(port, tls) as connection:
            connection.sendall(content)
            while data := connection.recv(1 << 16):
                received += data
        return received

    def connected(self, port: Port, tls: ssl.SSLContext | None) -> socket.socket:
        """Connect, with TLS if there is a context."""
        connection = socket.create_connection((HOST, self.port(port)), ANSWER_S, (self.host, 0))
        return connection if tls is None else tls.wrap_socket(connection, server_hostname=HOST)

    def http(
        self,
        method: str,
        path: str,
        content: bytes | None = None,
        headers: Mapping[str, str] = {},
        tls: ssl.SSLContext | None = None,
    ) -> "HttpReply":
        """Send an HTTP request over a connection of its own."""
        connection = http.client.HTTPSConnection(
            HOST,
            self.port(Port.HTTP),
            timeout=ANSWER_S,
            context=tls or self.cluster.trusting,
            source_address=(self.host, 0),
        )
        try:
            connection.request(method, path, content, dict(headers))
            answer = connection.getresponse()
            return HttpReply(answer.status, dict(answer.getheaders()), answer.read())
        finally:
            connection.close()


@dataclass(frozen=True, slots=True)
class HttpReply:
    """An HTTP response."""

    status: int
    headers: Mapping[str, str]
    content: bytes

    @property
    def refusal(self) -> str:
        """The status, and Kafka's name of the error if there is one."""
        try:
            return f"{self.status} {json.loads(self.content)['code']}"
        except (ValueError, KeyError, TypeError):
            return str(self.status)


Send = Callable[[Stranger], str]
"""Sends something, and returns the observed refusal."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt. `refusal` is what `send` must return; a line of the audit log must fit `audited`, if it is given."""

    name: str
    port: Port
    send: Send = field(repr=False)
    refusal: str
    audited: Audited | None


def closed_after(received: bytes) -> str:
    """Return CLOSED if at most an alert of TLS came, which is no answer."""
    return CLOSED if len(received) < ALERT_BYTES_MAX else f"an answer of {len(received)} bytes"


def codes_of(answer: Any) -> str:
    """Return the names of the error codes of a Kafka response, without repetition."""
    return " ".join(sorted({code.name.upper() for code in codes_in(answer)})) or "NONE"


def refusal_of(do: Callable[[], object]) -> str:
    """Return the name of the error code of a failed authentication, or CLOSED."""
    try:
        do()
    except Refusal as refusal:
        return refusal.code.name.upper()
    except (ConnectionError, ssl.SSLError):
        return CLOSED
    return "NONE"


def named(attempts: Iterable[Attempt]) -> tuple[Attempt, ...]:
    """Return the attempts. Their names differ."""
    listed = tuple(attempts)
    assert len({one.name for one in listed}) == len(listed), "each attempt has a name of its own"
    return listed
