"""Principals and identities: who sends a request, from where, and how that was proved."""

from dataclasses import dataclass
from typing import NamedTuple


class Principal(NamedTuple):
    """A principal as Kafka writes it: `User:alice`. ACLs name principals."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"

    @classmethod
    def of(cls, text: str) -> "Principal":
        """Parse `type:name`. Raises ValueError."""
        kind, colon, name = text.partition(":")
        if not (kind and colon and name):
            raise ValueError(f"{text!r} is not a principal: write it as type:name, such as User:alice")
        return cls(kind, name)


USER = "User"
SSL = "SSL"
"""The mechanism of an identity that a client certificate proved."""
ANONYMOUS = Principal(USER, "ANONYMOUS")
"""The principal of a client on a listener without authentication."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The sender of a request: a principal, the address that it comes from, and the proof."""

    principal: Principal = ANONYMOUS
    host: str = ""
    """The address of the client, as ACLs name hosts."""
    mechanism: str = ""
    """The SASL mechanism, or SSL for a client certificate; empty without authentication."""
    is_token: bool = False
    """Whether a delegation token proved the identity. Such a client cannot create further tokens (KIP-48)."""


NO_IDENTITY = Identity()
THIS_BROKER = Identity(Principal("Broker", "itself"))
"""The identity of the broker for its requests to itself, which may do everything.

Compare with `is`: no client has this identity.
"""
