"""The rate limit of failed logins, by address and by address and user. Pure.

No limit is by user alone: an attacker who guesses at one address must not lock out the user at another.
"""

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from ipaddress import IPv6Address, ip_address

ENTRIES_MAX = 10_000
"""Remembered addresses, and pairs of address and user. Beyond it, the one that is idle for the longest time goes."""
V6_NETWORK_BITS = 64
"""One client may have this whole range of addresses."""


@dataclass(slots=True)
class Allowance:
    """A token bucket for each key: `at_once` failures, and then one in `interval_s` seconds."""

    at_once: int
    interval_s: float
    keys_max: int = ENTRIES_MAX
    _full_at: OrderedDict[Hashable, float] = field(default_factory=OrderedDict)
    """When the bucket of a key is full again: one number is its whole state."""

    def __len__(self) -> int:
        return len(self._full_at)

    def wait_s(self, key: Hashable, now: float) -> float:
        """Return how long the next attempt has to wait; 0 if it may be made now."""
        full_at = max(self._full_at.get(key, now), now)
        return max(0.0, full_at + self.interval_s - now - self.at_once * self.interval_s)

    def take(self, key: Hashable, now: float) -> None:
        """Count an attempt."""
        full_at = max(self._full_at.pop(key, now), now) + self.interval_s
        while len(self._full_at) >= self.keys_max:
            self._full_at.popitem(last=False)
        self._full_at[key] = full_at

    def give_back(self, key: Hashable) -> None:
        """Take back one attempt, which was no failure."""
        if key in self._full_at:
            self._full_at[key] -= self.interval_s

    def forget(self, key: Hashable) -> None:
        """Forget all attempts of a key."""
        self._full_at.pop(key, None)


class LoginAttempts:
    """The logins at one broker. An attempt counts from its beginning: concurrent ones cannot exceed the limit."""

    def __init__(self) -> None:
        self._by_address = Allowance(20, 3.0)
        self._by_user = Allowance(5, 15.0)

    def begin(self, host: str, user: str, now: float) -> float:
        """Count an attempt, as a failure until it has succeeded. Return 0, or the seconds to wait if it is refused."""
        network = network_of(host)
        wait_s = max(self._by_address.wait_s(network, now), self._by_user.wait_s((network, user), now))
        if wait_s <= 0:
            self._by_address.take(network, now)
            self._by_user.take((network, user), now)
        return wait_s

    def succeeded(self, host: str, user: str) -> None:
        """Count an attempt as no failure."""
        network = network_of(host)
        self._by_address.give_back(network)
        self._by_user.forget((network, user))


def network_of(host: str) -> str:
    """Return the addresses that one client may have: its address in IPv4, its network in IPv6."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return f"{int(address) >> (128 - V6_NETWORK_BITS):x}"
    return str(address)
