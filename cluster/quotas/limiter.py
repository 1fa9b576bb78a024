"""One kind of limit: a token bucket for each group of clients, in bounded memory."""

from collections.abc import Callable

from cordwood.cluster.quotas.limits import Limit, LimitedClients, Quotas
from cordwood.replication.token_bucket import BURST_S, TokenBucket

FOUND_MAX = 4096
"""Clients whose limit is remembered: a client may send any number of client ids."""
BUCKETS_MAX = 10_000
"""Groups whose use is remembered. Beyond it, full buckets are forgotten, and then the oldest ones."""

Find = Callable[[Quotas, str, str], Limit | None]
"""Finds the limit of a client by user and client id, or by address."""


class Limiter:
    """One kind of limit. `charge` counts a use, and `debt_s` returns for how long the client has to wait."""

    def __init__(self, find: Find) -> None:
        self._find = find
        self._quotas: Quotas = {}
        self._found: dict[tuple[str, str], Limit | None] = {}
        self._buckets: dict[LimitedClients, TokenBucket] = {}

    def follow(self, quotas: Quotas) -> None:
        """Apply changed quotas. The use until now stays counted."""
        self._quotas = quotas
        self._found.clear()

    def limit_of(self, user: str, client_id: str) -> Limit | None:
        """Return the limit of a client; None if it has none."""
        who = (user, client_id)
        try:
            return self._found[who]
        except KeyError:
            if len(self._found) >= FOUND_MAX:
                self._found.clear()
            limit = self._found[who] = self._find(self._quotas, user, client_id)
            return limit

    def charge(self, user: str, client_id: str, amount: float, now: float) -> float:
        """Count a use, and return the group's debt in seconds."""
        limit = self.limit_of(user, client_id)
        if limit is None:
            return 0.0
        bucket = self._bucket(limit, now)
        bucket.charge(amount, now)
        return bucket.debt_s(now)

    def debt_s(self, user: str, client_id: str, now: float) -> float:
        """Return the seconds until the group of a client has paid its debt; 0 without one."""
        return self.charge(user, client_id, 0.0, now)

    def at_once(self, user: str, client_id: str) -> float | None:
        """Return the amount that a client of an idle group may use at once; None without a limit."""
        limit = self.limit_of(user, client_id)
        return None if limit is None else limit.rate * BURST_S

    def _bucket(self, limit: Limit, now: float) -> TokenBucket:
        bucket = self._buckets.get(limit.group)
        if bucket is None:
            if len(self._buckets) >= BUCKETS_MAX:
                self._forget(now)
            bucket = self._buckets[limit.group] = TokenBucket.full(limit.rate, now)
        bucket.set_rate(limit.rate, now)
        return bucket

    def _forget(self, now: float) -> None:
        """Forget the full buckets, and the oldest ones if that is not enough."""
        self._buckets = {group: bucket for group, bucket in self._buckets.items() if not bucket.is_full(now)}
        for group in list(self._buckets)[: max(0, len(self._buckets) - BUCKETS_MAX // 2)]:
            del self._buckets[group]
