"""Memory backpressure of connections: waiting for a full pool, and eviction of stalled or stuck connections."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from cordwood.cluster.kafka.answer_queue import AnswerQueue
from cordwood.cluster.kafka.receive_buffer import ReceiveBuffer
from cordwood.cluster.resources.memory import Memory, MemoryPool

RETRY_INTERVAL_S = 0.05
HELD_BYTES_FREE = 8 << 10
"""A connection that holds at most this much is never closed to make room."""
HELD_BYTES_LARGE = 256 << 10
"""A connection that holds less is not closed for the sake of another pool."""
GUILT_SHARE = 0.25
"""A connection with less than this share of the highest guilt is not closed together with that connection."""
GUILT_S_MAX = 3.0
HELD_S_MAX = 1.0
"""While others wait, a connection may hold memory this long without progress."""
ARRIVAL_BYTES_PER_SECOND_MIN = 256 << 10


class Holder(Protocol):
    """A connection's memory usage."""

    is_broker: bool
    waits_for: MemoryPool | None
    """The full pool that the connection waits for; None if there is none."""
    partial_since: float
    """When the incomplete request began to arrive, or reading it resumed; 0 if no request is incomplete."""

    @property
    def received(self) -> ReceiveBuffer: ...

    @property
    def answers(self) -> AnswerQueue: ...

    @property
    def is_arriving(self) -> bool:
        """Whether a request is incomplete and the connection is being read."""
        ...

    def stalled_for(self, now: float) -> float:
        """Return the seconds since the client last read any response bytes."""
        ...

    def try_again(self) -> None: ...

    def close(self, reason: str | None = None) -> None: ...


def guilt(size: int, seconds: float) -> float:
    """Return the share of a connection in a lack of memory: the bytes that it holds, weighted with the time.

    Time is limited to GUILT_S_MAX, because a long poll may take half a minute.
    """
    return size * (HELD_S_MAX + min(seconds, GUILT_S_MAX))


def guiltiest(holders: Sequence[Holder], guilt_of: Callable[[Holder], float]) -> list[Holder]:
    """Return the connections with at least GUILT_SHARE of the highest guilt."""
    most = max(map(guilt_of, holders), default=0.0)
    return [holder for holder in holders if guilt_of(holder) >= GUILT_SHARE * most]


class ConnectionMemory:
    """The memory pools of a set of connections, with backpressure and eviction.

    A connection whose pool is full is not read until the pool has room. To make room, empty receive buffers are freed
    first. Then connections that hold memory without progress are closed, those with the highest guilt first: a
    connection that holds little is not closed for the memory of others. If all connections wait for each other, the
    one whose request began to arrive last is closed, so that the oldest request always completes.
    """

    def __init__(
        self,
        memory: Memory,
        connections: Callable[[], Iterable[Holder]] = tuple,
        give_back: Callable[[], None] = lambda: None,
    ) -> None:
        """`give_back` frees state that clients can recreate: the least recently used fetch session."""
        self.pools, self._give_back = memory, give_back
        self._connections = connections
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[Holder, None] = {}
        self._pressed: set[str] = set()
        """Names of full pools that something other than a connection waits for."""
        self._retrying: dict[Holder, None] = {}
        self._stalled: dict[Holder, None] = {}
        """Connections with responses that their clients did not take; some may have been taken since."""
        self._arrivals: dict[Holder, tuple[float, int]] = {}
        """Time and size at the last progress check of each incomplete request; empty while no connection waits."""
        self._timer: asyncio.TimerHandle | None = None
        self._may_reclaim = True
        self._is_ending = False

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def wait(self, connection: Holder, pool: MemoryPool) -> None:
        """Have the connection retry every RETRY_INTERVAL_S until the pool has room."""
        if connection not in self._retrying:
            pool.waits += 1
        connection.waits_for = pool
        self._waiting[connection] = None
        self._schedule()

    def press(self, pool: MemoryPool) -> None:
        """Make connections give memory back: something other than a connection waits for the pool."""
        self._pressed.add(pool.name)
        self._schedule()

    def reclaim(self) -> None:
        """Free all empty receive buffers, at most once per RETRY_INTERVAL_S."""
        if self._may_reclaim:
            self._may_reclaim = False
            for connection in self._connections():
                connection.received.shrink()
            self._schedule()

    def stalled(self, connection: Holder) -> None:
        """Record a connection whose client takes no responses. If the pool is full, close those with most guilt."""
        self._stalled[connection] = None
        # `stalled_for` of a connection may call this method again.
        if not self._is_ending and not self.pools.unsent.has_room(0):
            self._is_ending = True
            try:
                self._end_stalled()
            finally:
                self._is_ending = False

    def closed(self, connection: Holder) -> None:
        """Forget a closed connection. Its memory is already released."""
        for table in (self._stalled, self._waiting, self._arrivals):
            table.pop(connection, None)

    def _end_stalled(self) -> None:
        pool = self.pools.unsent
        self._stalled = {connection: None for connection in self._stalled if connection.answers.unsent_bytes}
        for guilty in sorted(self._stalled_clients(), key=self._unsent_guilt, reverse=True):
            if pool.used <= pool.limit // 4 * 3:
                break
            pool.closes += 1
            stalled_s, size = guilty.stalled_for(self._loop.time()), guilty.answers.unsent_bytes
            guilty.close(f"{size} bytes of responses have not been read for {stalled_s:.1f} s")

    def _end_one_stalled(self) -> None:
        """Close the connection with the highest guilt of those stalled for longer than HELD_S_MAX."""
        clients = [each for each in self._stalled_clients() if each.answers.unsent_bytes > HELD_BYTES_LARGE]
        guilty = max(clients, key=self._unsent_guilt, default=None)
        if guilty is not None and guilty.stalled_for(self._loop.time()) > HELD_S_MAX:
            self.pools.unsent.closes += 1
            size = guilty.answers.unsent_bytes
            guilty.close(f"{size} bytes of responses are not read, and other clients wait for memory")

    def _stalled_clients(self) -> list[Holder]:
        return [connection for connection in self._stalled if not connection.is_broker]

    def _unsent_guilt(self, connection: Holder) -> float:
        return guilt(connection.answers.unsent_bytes, connection.stalled_for(self._loop.time()))

    def _pending_guilt(self, connection: Holder) -> float:
        since = connection.answers.pending_since
        return guilt(connection.answers.pending_bytes, 0.0 if since is None else self._loop.time() - since)

    def _receive_guilt(self, connection: Holder) -> float:
        since = connection.partial_since
        return guilt(connection.received.held_bytes, self._loop.time() - since if since else 0.0)

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
            # The common limit is nearly reached: memory in any pool counts against all of them.
            self._end_one_stalled()
            self._give_back()
        if is_crowded or pools.pending.name in wanted:
            least = HELD_BYTES_FREE if pools.pending.name in wanted else HELD_BYTES_LARGE
            waited_for = [each for each in clients if each.answers.pending_since is not None]
            guilty = guiltiest(waited_for, self._pending_guilt)
            holders = [each for each in guilty if each.answers.pending_bytes > least]
            self._end(pools.pending, [holder for holder in holders if self._is_unanswered(holder)])
        if is_crowded or not wanted.isdisjoint((pools.receive.name, pools.large.name)):
            holders = [each for each in clients if each.received.held_bytes > HELD_BYTES_FREE]
            stuck = [holder for holder in holders if holder.waits_for is None and self._is_stuck(holder)]
            if not stuck and len(holders) > 1 and all(holder.waits_for is not None for holder in holders):
                stuck = [max(holders, key=lambda holder: holder.partial_since)]
            self._end(pools.receive, guiltiest(stuck, self._receive_guilt))

    def _end(self, pool: MemoryPool, holders: list[Holder]) -> None:
        for holder in holders:
            pool.closes += 1
            size = holder.received.held_bytes + holder.answers.pending_bytes
            holder.close(
                f"it holds {size} bytes of an incomplete request without progress, and other clients wait for memory"
            )

    def _is_unanswered(self, holder: Holder) -> bool:
        since = holder.answers.pending_since
        return since is not None and self._loop.time() - since > HELD_S_MAX

    def _is_stuck(self, holder: Holder) -> bool:
        """Whether an incomplete request arrives too slowly, or waits for an earlier request that is not answered."""
        if not holder.is_arriving:
            return holder.received.waiting_bytes > 0 and self._is_unanswered(holder)
        now, waiting_bytes = self._loop.time(), holder.received.waiting_bytes
        since, before = self._arrivals.setdefault(holder, (now, waiting_bytes))
        arrived = waiting_bytes - before
        if arrived >= 0 and now - since <= HELD_S_MAX:
            return False
        self._arrivals[holder] = now, waiting_bytes
        # Fewer bytes than before belong to another request: the previous one is complete.
        return 0 <= arrived < (now - since) * ARRIVAL_BYTES_PER_SECOND_MIN
