"""Memory of a set of connections: which of them wait for room in a pool, and which have to make room."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Protocol

from cordwood.cluster.memory import Memory, MemoryPool

RETRY_INTERVAL_S = 0.05
HELD_BYTES_FREE = 8 << 10
"""A connection that has no more than this of the pools is never closed to make room."""
HELD_BYTES_LARGE = 256 << 10
"""With less than this, none is closed because other pools hold what its own lacks."""
HELD_S_MAX = 1.0
"""While others wait, a connection may keep memory for as long, unless its request goes on arriving."""
ARRIVAL_BYTES_PER_SECOND_MIN = 256 << 10


class Holder(Protocol):
    """A connection, as the memory that it holds is seen here."""

    is_broker: bool
    stalled_at: float
    unsent_bytes: int
    waits_for: MemoryPool | None
    """The pool without room for what it needs next."""
    partial_since: float
    """When the request began to arrive that is not whole yet, or its reading went on; 0 where there is none."""

    receive_bytes: int
    """Its receive buffer."""
    pending_bytes: int
    """Its requests that wait for their answers."""

    @property
    def partial_bytes(self) -> int: ...

    @property
    def is_arriving(self) -> bool:
        """Whether a part of a request is there, and the rest is read as it comes."""
        ...

    @property
    def pending_since(self) -> float | None:
        """When the oldest request came that has no answer; None where there is none."""
        ...

    def shrink(self) -> None: ...

    def try_again(self) -> None: ...

    def close(self, reason: str | None = None) -> None: ...


class ConnectionMemory:
    """The pools of these connections, and what happens when one of the pools is full.

    A connection without room is not read from until there is some. To make room, first the buffers that are empty are
    given back; then connections are closed that keep memory and do not get on; and where all only wait for each other,
    the one whose request began to arrive last. So the oldest request always ends.
    """

    def __init__(
        self,
        memory: Memory,
        connections: Callable[[], Iterable[Holder]] = tuple,
        give_back: Callable[[], None] = lambda: None,
    ) -> None:
        """`give_back` ends something that is kept for clients which can do without."""
        self.pools, self._give_back = memory, give_back
        self._connections = connections
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[Holder, None] = {}
        self._pressed: set[str] = set()
        """Names of pools in which something other than a connection waits for room."""
        self._retrying: dict[Holder, None] = {}
        self._stalled: dict[Holder, None] = {}
        """Those that have answers which their clients did not take; some may have been taken since."""
        self._arrivals: dict[Holder, tuple[float, int]] = {}
        """While some wait: how much had arrived of a request that is not whole, and when that was looked at."""
        self._timer: asyncio.TimerHandle | None = None
        self._may_reclaim = True

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def wait(self, connection: Holder, pool: MemoryPool) -> None:
        """Have the connection try again as long as there is no room for it in the pool."""
        if connection not in self._retrying:
            pool.waits += 1
        connection.waits_for = pool
        self._waiting[connection] = None
        self._schedule()

    def press(self, pool: MemoryPool) -> None:
        """Something waits for room in the pool: have others make some."""
        self._pressed.add(pool.name)
        self._schedule()

    def reclaim(self) -> None:
        """Take back all receive buffers with nothing in them, once an interval."""
        if self._may_reclaim:
            self._may_reclaim = False
            for connection in self._connections():
                connection.shrink()
            self._schedule()

    def stalled(self, connection: Holder) -> None:
        """The client of this connection does not take its answers. Close those stalled for longest in a full pool."""
        self._stalled[connection] = None
        if not self.pools.unsent.has_room(0):
            self._end_stalled()

    def closed(self, connection: Holder) -> None:
        """What it held has been given back."""
        for table in (self._stalled, self._waiting, self._arrivals):
            table.pop(connection, None)

    def _end_stalled(self) -> None:
        pool = self.pools.unsent
        self._stalled = {connection: None for connection in self._stalled if connection.unsent_bytes}
        for oldest in sorted(self._stalled, key=lambda connection: connection.stalled_at):
            if pool.used <= pool.limit // 4 * 3:
                break
            if oldest.is_broker:
                continue
            pool.closes += 1
            stalled_s = self._loop.time() - oldest.stalled_at
            oldest.close(f"{oldest.unsent_bytes} bytes of answers have not been taken for {stalled_s:.1f} s")

    def _end_one_stalled(self) -> None:
        """Of those that have taken nothing for a while, the one that has done so for longest."""
        now = self._loop.time()
        stalled = [each for each in self._stalled if each.unsent_bytes > HELD_BYTES_LARGE and not each.is_broker]
        oldest = min(stalled, key=lambda each: each.stalled_at, default=None)
        if oldest is not None and now - oldest.stalled_at > HELD_S_MAX:
            self.pools.unsent.closes += 1
            oldest.close(f"{oldest.unsent_bytes} bytes of answers are not taken, and others wait for memory")

    def _schedule(self) -> None:
        if self._timer is None:
            self._timer = self._loop.call_later(RETRY_INTERVAL_S, self._retry)

    def _retry(self) -> None:
        self._timer, self._may_reclaim = None, True
        if self._waiting or self._pressed:
            self.reclaim()
        self._retrying, self._waiting = self._waiting, {}
        for connection in self._retrying:
            connection.try_again()
        self._retrying = {}
        if self._waiting or self._pressed:
            self._make_room()
        else:
            self._arrivals.clear()
        self._pressed.clear()

    def _make_room(self) -> None:
        pools, clients = self.pools, [each for each in self._connections() if not each.is_broker]
        wanted = {holder.waits_for.name for holder in self._waiting if holder.waits_for is not None} | self._pressed
        is_crowded = pools.is_crowded
        if is_crowded:
            # Whatever pool lacks room, what all of them hold is in its way.
            self._end_one_stalled()
            self._give_back()
        if is_crowded or pools.pending.name in wanted:
            least = HELD_BYTES_FREE if pools.pending.name in wanted else HELD_BYTES_LARGE
            holders = [each for each in clients if each.pending_bytes > least]
            self._end(pools.pending, [holder for holder in holders if self._is_unanswered(holder)])
        if is_crowded or not wanted.isdisjoint((pools.receive.name, pools.large.name)):
            holders = [each for each in clients if each.receive_bytes > HELD_BYTES_FREE]
            stuck = [holder for holder in holders if holder.waits_for is None and self._is_stuck(holder)]
            if not stuck and len(holders) > 1 and all(holder.waits_for is not None for holder in holders):
                stuck = [max(holders, key=lambda holder: holder.partial_since)]
            self._end(pools.receive, stuck)

    def _end(self, pool: MemoryPool, holders: list[Holder]) -> None:
        for holder in holders:
            pool.closes += 1
            size = holder.receive_bytes + holder.pending_bytes
            holder.close(f"it holds {size} bytes, does not get on, and others wait for memory")

    def _is_unanswered(self, holder: Holder) -> bool:
        since = holder.pending_since
        return since is not None and self._loop.time() - since > HELD_S_MAX

    def _is_stuck(self, holder: Holder) -> bool:
        """Whether a request does not go on arriving, or waits behind one that is not answered."""
        if not holder.is_arriving:
            return holder.partial_bytes > 0 and self._is_unanswered(holder)
        now = self._loop.time()
        since, before = self._arrivals.setdefault(holder, (now, holder.partial_bytes))
        arrived = holder.partial_bytes - before
        if arrived >= 0 and now - since <= HELD_S_MAX:
            return False
        self._arrivals[holder] = now, holder.partial_bytes
        # Less than before is another request: the earlier one has come to its end.
        return 0 <= arrived < (now - since) * ARRIVAL_BYTES_PER_SECOND_MIN
