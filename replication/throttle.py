"""Replication throttle: the rates at which a leader sends to replicas that are being added (KIP-73).

Followers that were replicas before the reassignment are never throttled, in sync or not: they would stay out of the ISR
for longer (KIP-352). A leader enforces its own rate, and its share of the rate of each follower.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntFlag
from typing import Protocol

from cordwood.replication.token_bucket import UNLIMITED, TokenBucket

PIECE_S = 0.05
PIECE_BYTES_MAX = 256 << 10
"""A sender waits until tokens for a piece of this time or size have arrived: smaller pushes would cost more."""
TURN_S = 0.005
RETRY_S_MAX = 1.0
"""Longest time until a sender looks again: the rate may have been raised meanwhile."""


class Charge(IntFlag):
    """The rates that the records for a replica are charged to."""

    NONE = 0
    LEADER = 1
    """leader.replication.throttled.rate of the leader."""
    FOLLOWER = 2
    """follower.replication.throttled.rate of the follower."""


class Sender(Protocol):
    """Connection of one follower."""

    broker_id: int

    def retry_in(self, delay_s: float) -> None:
        """Try again to send after this time."""
        ...


@dataclass(slots=True, eq=False)
class ReplicationThrottle:
    """Rates of one leader. Its followers take turns at the leader's own rate, in the order in which they wait."""

    sent_bytes: int = 0
    """Bytes sent to replicas that were being added, throttled or not."""
    _leader: TokenBucket = field(default_factory=TokenBucket)
    _followers: dict[int, TokenBucket] = field(default_factory=dict)
    _waiting: dict[Sender, None] = field(default_factory=dict)
    _has_turn: Sender | None = None
    _timer: asyncio.TimerHandle | None = None

    @property
    def rate(self) -> float:
        """The leader's own rate in bytes per second; UNLIMITED for none."""
        return self._leader.rate

    def set_rates(self, leader: float, followers: Mapping[int, float], now: float) -> None:
        """Set the leader's rate, and its share of the rate of each follower. A follower that is left out has no limit.

        `now` is the event loop's time.
        """
        self._leader.set_rate(leader, now)
        for broker_id in self._followers.keys() - followers.keys():
            del self._followers[broker_id]
        for broker_id, rate in followers.items():
            self._followers.setdefault(broker_id, TokenBucket(rate, at=now)).set_rate(rate, now)

    def allowed(self, sender: Sender, charge: Charge, now: float) -> int:
        """Return the bytes that may be sent to the follower now. If there are none, its sender retries later."""
        room = UNLIMITED
        follower = self._followers.get(sender.broker_id) if charge & Charge.FOLLOWER else None
        if follower is not None and (room := follower.available(now)) <= 0:
            sender.retry_in(wait_s(follower))
        elif charge & Charge.LEADER and not self._leader.is_unlimited:
            room = min(room, self._share(sender, now))
        return room

    def sent(self, sender: Sender, charge: Charge, size: int, now: float) -> None:
        """Charge `size` bytes that were sent to a replica that is being added."""
        self.sent_bytes += size
        if charge & Charge.LEADER:
            self._leader.charge(size, now)
        if charge & Charge.FOLLOWER and (follower := self._followers.get(sender.broker_id)) is not None:
            follower.charge(size, now)

    def forget(self, sender: Sender) -> None:
        """Take a closed connection out of the queue."""
        self._waiting.pop(sender, None)
        if self._has_turn is sender:
            self._has_turn = None

    def _share(self, sender: Sender, now: float) -> int:
        """Return the tokens of the leader's rate if it is the sender's turn; otherwise queue the sender."""
        if self._has_turn is sender or not self._waiting or sender is next(iter(self._waiting)):
            available = self._leader.available(now)
            if available > 0:
                self._waiting.pop(sender, None)
                return available
        self._waiting.setdefault(sender)
        if self._has_turn is sender:
            self._has_turn = None
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(wait_s(self._leader), self._next_turn)
        return 0

    def _next_turn(self) -> None:
        """Give the first sender in the queue its turn, if there are tokens."""
        self._timer = self._has_turn = None
        if not self._waiting:
            return
        loop = asyncio.get_running_loop()
        delay_s = TURN_S
        if self._leader.available(loop.time()) > 0:
            self._has_turn = next(iter(self._waiting))
            del self._waiting[self._has_turn]
            self._has_turn.retry_in(0)
        else:
            delay_s = wait_s(self._leader)
        self._timer = loop.call_later(delay_s, self._next_turn)


def wait_s(bucket: TokenBucket) -> float:
    """Return the time from the bucket's last use until it has tokens for a piece, `RETRY_S_MAX` at most."""
    if bucket.rate <= 0:
        return RETRY_S_MAX
    piece = max(min(bucket.rate * PIECE_S, PIECE_BYTES_MAX), 1)
    return min(max((piece - bucket.tokens) / bucket.rate, 0.0), RETRY_S_MAX)
