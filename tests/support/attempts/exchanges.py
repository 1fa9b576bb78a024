"""Parts of attempts by SASL: one connection, and its refusal."""

from collections.abc import Callable

from kio.schema.errors import ErrorCode
from sasl_client import SaslClient

from attempts.attempt import Attempt, Port, Send, Stranger, refusal_of, unproved

FAILED = ErrorCode.sasl_authentication_failed.name.upper()
ILLEGAL = ErrorCode.illegal_sasl_state.name.upper()
UNSUPPORTED = ErrorCode.unsupported_sasl_mechanism.name.upper()
SCRAM = "SCRAM-SHA-256"
GUESS = "planted-guess-of-a-password"
"""A wrong password, which no log may have."""


def with_client(do: Callable[[SaslClient], object], port: Port = Port.KAFKA) -> Send:
    """Return what does something with a connection that proves nothing yet."""

    def send(stranger: Stranger) -> str:
        with stranger.kafka(port) as client:
            return refusal_of(lambda: do(client))

    return send


def plain(authzid: str, user: str, password: str) -> Send:
    """Return what sends a password."""
    return with_client(lambda client: client.authenticate("PLAIN", f"{authzid}\0{user}\0{password}".encode()))


def bearer(make: Callable[[], str]) -> Send:
    """Return what sends a token."""
    return with_client(lambda client: client.bearer(make()))


def kafka(name: str, send: Send, detail: str, refusal: str = FAILED, **audited: str) -> Attempt:
    """Return an attempt at the port with TLS and SASL."""
    return Attempt(name, Port.KAFKA, send, refusal, unproved(detail, **audited))
