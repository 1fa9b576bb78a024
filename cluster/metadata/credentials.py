"""Credentials in the metadata: SCRAM keys of users, and delegation tokens."""

from dataclasses import dataclass, field
from enum import IntEnum


class ScramMechanism(IntEnum):
    """The SCRAM mechanisms, by Kafka's numbers (KIP-554)."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """The credential that a server stores for a password (RFC 5802, section 3).

    The key allows guesses, so that `repr` omits it.
    """

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """A delegation token (KIP-48). Its secret is derived from its id. Principals are texts; times are ms since 1970."""

    token_id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issued_ms: int
    max_ms: int
    expiry_ms: int
