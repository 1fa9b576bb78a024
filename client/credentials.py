"""SASL mechanisms and credentials of clients. It imports nothing, for commands that authenticate to no broker."""

from dataclasses import dataclass, field
from enum import StrEnum


class NotAuthenticated(ConnectionError):
    """The broker refused the credentials or the mechanism, or did not prove itself. A retry is of no use."""


class Mechanism(StrEnum):
    """A SASL mechanism, by Kafka's name."""

    PLAIN = "PLAIN"
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"
    OAUTHBEARER = "OAUTHBEARER"


HASHES = {Mechanism.SCRAM_SHA_256: "sha256", Mechanism.SCRAM_SHA_512: "sha512"}


@dataclass(frozen=True, slots=True)
class SaslCredentials:
    """The credentials of a client. Its repr has no secret.

    With `is_delegation_token`, `username` and `password` are the id and the HMAC (base64) of a delegation token
    (KIP-48), for SCRAM only. `bearer_token` and `extensions` are for OAUTHBEARER.
    """

    mechanism: Mechanism
    username: str = ""
    password: str = field(default="", repr=False)
    is_delegation_token: bool = False
    bearer_token: str = field(default="", repr=False)
    extensions: tuple[tuple[str, str], ...] = field(default=(), repr=False)
