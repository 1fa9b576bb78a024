"""The server side of a SASL exchange: one object for each attempt, fed with the client's messages."""

from dataclasses import dataclass
from typing import Protocol

from cordwood.cluster.security.principal import Principal


class AuthenticationFailed(Exception):
    """The proof of the client is wrong, or the exchange is malformed.

    The message is for the client (SASL_AUTHENTICATION_FAILED): it does not say whether the user exists. `detail` is for
    the audit log, and has no secret either.
    """

    def __init__(self, message: str, detail: str = "", claimed: str = "") -> None:
        super().__init__(message)
        self.message, self.detail, self.claimed = message, detail or message, claimed


@dataclass(frozen=True, slots=True)
class Authenticated:
    """The outcome of an exchange. `expires_at_ms` is the wall clock's time when the credential ends; None for never."""

    principal: Principal
    is_token: bool = False
    expires_at_ms: int | None = None


class SaslExchange(Protocol):
    """One attempt with one mechanism."""

    mechanism: str
    outcome: Authenticated | None
    """None while the exchange is in progress."""

    def step(self, message: bytes) -> bytes:
        """Take a message of the client, and return the reply, even with an outcome. Raises AuthenticationFailed."""
        ...
