"""The target of a flood: the addresses of one broker, and the names that exist on it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Names:
    """Names of the flood, which it may write to and delete, and of the bystander, which it may only read."""

    topics: tuple[str, ...]
    groups: tuple[str, ...]
    bystander_topic: str
    bystander_groups: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FloodTarget:
    """One broker and its names. Addresses are host:port."""

    address: str
    http_address: str
    names: Names
