"""Shard store: loading of the partitions of an internal topic that this broker leads, and appends to them.

The log cleaner keeps the topic small, so that loading stays short however long the broker has run.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Generic, TypeVar, assert_never

import structlog
from kio.schema.errors import ErrorCode

from cordwood.cluster.coordination.replay import Replay
from cordwood.cluster.coordination.shard import Content, CoordinatorShard, Readiness, as_records
from cordwood.cluster.coordination.topic import InternalTopic, PartitionLeadership, partition_of
from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.resources.turns import Turns
from cordwood.replication.tasks import Tasks
from cordwood.storage.batch import split
from cordwood.storage.errors import StorageError
from cordwood.storage.records import encode
from cordwood.storage.steps import Steps

_ItemT = TypeVar("_ItemT")
_ShardT = TypeVar("_ShardT", bound=CoordinatorShard)
_events = structlog.get_logger("coordination")

LOADS_AT_ONCE_MAX = 4
"""Largest number of shards that are loaded at a time. Each holds what was read last, and its own newest values."""
LOAD_AGAIN_S = 5.0
"""Time after which a partition that could not be loaded is loaded anew.

Its damage may be repaired by then, and a broker without free file descriptors may have some again.
"""


class ShardStore(Generic[_ShardT]):
    """The shards of the partitions of `topic` that this broker leads, each opened by `open_shard`.

    `on_loaded` is called for each shard once it can be served, and `on_lost` for each shard that is dropped. Shards are
    loaded side by side, in shares of the time slices of `turns`.
    """

    def __init__(
        self,
        topic: InternalTopic,
        open_shard: Callable[[PartitionLeadership], _ShardT],
        tasks: Tasks,
        wall_clock: Callable[[], int],
        on_loaded: Callable[[_ShardT], None],
        on_lost: Callable[[_ShardT], None],
        turns: Turns | None = None,
    ) -> None:
        self._topic, self._open_shard, self._tasks = topic, open_shard, tasks
        self._wall_clock, self._on_loaded, self._on_lost = wall_clock, on_loaded, on_lost
        self._shards: dict[int, _ShardT] = {}
        self._turns = Turns(asyncio.get_running_loop().time) if turns is None else turns
        self._loads = asyncio.Semaphore(LOADS_AT_ONCE_MAX)
        self._loading_again: set[int] = set()
        """Partitions that are loaded again in a while."""
        self._is_closed = False

    @property
    def shards(self) -> list[_ShardT]:
        """The shards that can be served."""
        return [shard for shard in self._shards.values() if shard.readiness is Readiness.READY]

    def all_shards(self) -> list[_ShardT]:
        """Return the shards of all partitions that this broker leads. Raises Refused if one cannot be served."""
        self.follow()
        return [self._served(shard) for shard in self._shards.values()]

    def follow(self) -> None:
        """Load, in the background, partitions that this broker leads now; drop those that it no longer leads."""
        for partition in {*range(self._topic.partition_count()), *self._shards}:
            self._follow(partition)

    def close(self) -> None:
        """Drop all shards, and load none any more."""
        self._is_closed = True
        self.follow()

    def find(self, key: str) -> _ShardT | None:
        """Return the shard of a group id or transactional id; None while the topic does not exist. Raises Refused."""
        partition_count = self._topic.partition_count()
        return None if partition_count == 0 else self._shard(partition_of(key, partition_count))

    def of_partition(self, partition: int) -> _ShardT | None:
        """Return the shard of a partition, ready or not; None if this broker does not lead it."""
        return self._follow(partition)

    async def find_or_create(self, key: str) -> _ShardT:
        """Return the shard of a key; create the topic if there is none. Raises Refused."""
        return self._shard(await self.place(key))

    async def place(self, key: str) -> int:
        """Return the partition of a key; create the topic if there is none. Raises Refused if that fails."""
        if self._topic.partition_count() == 0:
            await self._topic.create()
        return partition_of(key, self._topic.partition_count())

    def append(self, shard: _ShardT, contents: Sequence[Content]) -> Awaitable[None]:
        """Append records before the first await, then wait until they are committed. Raises Refused."""
        return self._topic.append(shard.leadership, encode(as_records(contents, self._wall_clock())))

    def submit(self, shard: _ShardT, contents: Sequence[Content]) -> None:
        """Append records without waiting until they are committed. Raises Refused."""
        self._topic.submit(shard.leadership, encode(as_records(contents, self._wall_clock())))

    def _shard(self, partition: int) -> _ShardT:
        shard = self._follow(partition)
        if shard is None:
            raise Refused(ErrorCode.not_coordinator)
        return self._served(shard)

    def _served(self, shard: _ShardT) -> _ShardT:
        match shard.readiness:
            case Readiness.READY:
                return shard
            case Readiness.LOADING:
                raise Refused(ErrorCode.coordinator_load_in_progress)
            case Readiness.DAMAGED:
                message = f"Partition {shard.partition} of {self._topic.name} is damaged: wait until it is repaired."
                raise Refused(ErrorCode.coordinator_not_available, message)
            case _:
                assert_never(shard.readiness)

    def _follow(self, partition: int) -> _ShardT | None:
        """Return the shard of a partition in its current leader epoch; None if this broker does not lead it."""
        leadership = None if self._is_closed else self._topic.leadership(partition)
        shard = self._shards.get(partition)
        if shard is not None and shard.leadership != leadership:
            # Drop the shard even if this broker leads again: another leader may have written records in between.
            self._let_go(shard)
            shard = None
        if shard is None and leadership is not None:
            shard = self._shards[partition] = self._open_shard(leadership)
            start, end = self._topic.bounds(leadership)
            if start == end:
                self._loaded(shard)
            else:
                self._tasks.spawn(self._load(shard, end))
        return shard

    def _let_go(self, shard: _ShardT) -> None:
        del self._shards[shard.partition]
        self._on_lost(shard)

    def holds(self, shard: _ShardT) -> bool:
        """Return True if the shard is still the one of its partition."""
        return self._shards.get(shard.partition) is shard

    def _loaded(self, shard: _ShardT) -> None:
        shard.readiness = Readiness.READY
        self._on_loaded(shard)

    async def _load(self, shard: _ShardT, end: int) -> None:
        """Load a shard, and serve it once everything that this leader began with is committed.

        Until then another leader may be elected without those records, and offsets that clients have read would go back
        (rule 10).
        """
        try:
            await self._topic.committed(shard.leadership, end)
            async with self._loads:
                await load(self._topic, shard, end, self._turns)
        except (StorageError, Refused) as error:
            if self.holds(shard):
                self._not_loaded(shard, error)
            return
        if self.holds(shard):
            self._loaded(shard)

    def _not_loaded(self, shard: _ShardT, error: StorageError | Refused) -> None:
        _events.error("coordination.not_loaded", topic=self._topic.name, partition=shard.partition, error=str(error))
        if isinstance(error, StorageError):
            shard.readiness = Readiness.DAMAGED
        else:
            # The next request for a key of this partition retries.
            self._let_go(shard)
        if shard.partition not in self._loading_again:
            self._loading_again.add(shard.partition)
            self._tasks.spawn(self._load_again(shard.partition))

    async def _load_again(self, partition: int) -> None:
        """Load a partition if this broker still leads it: markers, timeouts and sessions wait for no request."""
        await asyncio.sleep(LOAD_AGAIN_S)
        self._loading_again.discard(partition)
        shard = self._shards.get(partition)
        if shard is not None and shard.readiness is Readiness.DAMAGED:
            self._let_go(shard)
        self._follow(partition)


async def load(topic: InternalTopic, shard: CoordinatorShard, end: int, turns: Turns) -> None:
    """Fill the shard from the records below `end`. Raises Refused, also if the leadership ends, and StorageError."""
    replay = Replay()
    offset = topic.bounds(shard.leadership).start
    while offset < end:
        data = await topic.read(shard.leadership, offset)
        if not data:
            break
        offset = await turns.run(_replay(replay, data, offset))
    await turns.run(_restore(shard, replay))


def _replay(replay: Replay, data: bytes, offset: int) -> Steps[int]:
    """Apply the records from `offset` on. Return the offset after them."""
    for batch in split(data):
        offset = max(offset, (yield from replay.take(batch, offset)))
    return offset


def _restore(shard: CoordinatorShard, replay: Replay) -> Steps[None]:
    yield from shard.restore(replay.newest.items())
    yield from shard.restore_open(replay.open)


def chunks(items: Iterable[_ItemT], size: int) -> Iterator[list[_ItemT]]:
    """Yield the items in lists of at most `size`."""
    rest = iter(items)
    while chunk := list(islice(rest, size)):
        yield chunk
