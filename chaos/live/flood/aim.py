"""What a flood is aimed at: the addresses of one broker, and the names that exist on it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Names:
    """Those of the flood, which it may write to and delete, and those of the bystander, which it may only read."""

    topics: tuple[str, ...]
    groups: tuple[str, ...]
    bystander_topic: str
    bystander_groups: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Aim:
    """Addresses are host:port."""

    address: str
    http_address: str
    names: Names
