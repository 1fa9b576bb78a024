"""Kafka client settings: plain values, pickled from the driver to the executors."""

import re
from dataclasses import dataclass
from typing import NamedTuple

from cordwood.client.security import OPEN, ClientSecurity
from cordwood.columnar.ranges import Isolation

DEFAULT_PORT = 9092
ADDRESS = re.compile(r"(?:(?P<name>[^:\[\]\s]+)|\[(?P<number>[^\[\]\s]+)\])(?::(?P<port>\d{1,5}))?")
"""A host name, an IPv4 address or an IPv6 address in brackets, with an optional port."""


class Address(NamedTuple):
    """The host and port of a broker."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """The settings of a `ClusterReader`.

    `request_timeout_ms` limits a broker's silence. `retry_timeout_ms` limits the time without progress; an election has
    to fit in it. `fetch_bytes_max` limits one response, except for a larger first batch. With `delegates`, executors
    get a delegation token of the driver in place of its credentials. With a `rack`, records are read from an in-sync
    replica there (KIP-392); empty for the leaders only.
    """

    bootstrap: tuple[Address, ...]
    isolation: Isolation = Isolation.READ_COMMITTED
    client_id: str = "cordwood-spark"
    request_timeout_ms: int = 30_000
    retry_timeout_ms: int = 120_000
    fetch_bytes_max: int = 2 << 20
    fetch_wait_ms: int = 500
    security: ClientSecurity = OPEN
    delegates: bool = False
    rack: str = ""


def addresses(text: str) -> tuple[Address, ...]:
    """Parse `host:port,host:port`. Raises ValueError with a message."""
    found = tuple(_address(part.strip()) for part in text.split(",") if part.strip())
    if not found:
        raise ValueError("it has no broker: give at least one as host:port")
    return found


def _address(text: str) -> Address:
    match = ADDRESS.fullmatch(text)
    port = int(match["port"] or DEFAULT_PORT) if match else 0
    if match is None or not 0 < port < 1 << 16:
        raise ValueError(f"{text!r} is not a broker's host:port")
    return Address(match["name"] or match["number"], port)
