"""From `__consumer_offsets` into memory and back: which partition keeps a group, its loading, appends and compaction.

A partition's records beyond what its state needs are got rid of here: what is live is appended anew, and what lies
before is deleted. So loading stays short however long the broker has run, and reads of the topic stay Kafka's.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TypeVar

import structlog
from kio.schema.errors import ErrorCode

from cordwood.cluster.groups.formats import encode_group_key
from cordwood.cluster.groups.offsets import Changes
from cordwood.cluster.groups.settings import GroupSettings
from cordwood.cluster.groups.shard import Content, Shard, as_records, changes_as_contents
from cordwood.cluster.groups.topic import OffsetsTopic, partition_of
from cordwood.cluster.kafka.call import Refused
from cordwood.storage.batch import CONTROL, check, split
from cordwood.storage.errors import StorageError
from cordwood.storage.records import decode, encode

RECORDS_PER_BATCH_MAX = 2000
COMPACTION_RECORDS_MIN = 4_000
COMPACTION_RATIO = 8
"""A partition is compacted once it has so many times the records that its state needs: each is an eighth more work."""
TURN_S = 0.004
"""Loading leaves the loop to others after so long."""

_ItemT = TypeVar("_ItemT")
_events = structlog.get_logger("groups")


class Tasks:
    """Background work that ends with its owner, and whose failures the loop is told of."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._ended)

    async def close(self) -> None:
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            context = {"message": "a task of the group coordinator failed", "exception": error, "task": task}
            task.get_loop().call_exception_handler(context)


class Keeper:
    """The partitions of `__consumer_offsets` that this broker leads. `on_loaded` is told of each one."""

    def __init__(
        self,
        topic: OffsetsTopic,
        settings: GroupSettings,
        tasks: Tasks,
        wall_clock: Callable[[], int],
        on_loaded: Callable[[Shard], None],
    ) -> None:
        self._topic, self._settings, self._tasks = topic, settings, tasks
        self._wall_clock, self._on_loaded = wall_clock, on_loaded
        self._loop = asyncio.get_running_loop()
        self._shards: dict[int, Shard] = {}
        self._waiting: dict[int, None] = {}
        self._loading: set[int] = set()
        self._damaged: set[int] = set()

    @property
    def shards(self) -> list[Shard]:
        """Those that are in memory."""
        return list(self._shards.values())

    @property
    def is_loading(self) -> bool:
        return bool(self._waiting or self._loading)

    def start(self) -> None:
        """Load in the background what there is. A partition that is asked for meanwhile is loaded at once."""
        for index in range(self._topic.partition_count()):
            if self._topic.is_led(index) and not self._is_empty(index):
                self._waiting[index] = None
        self._tasks.spawn(self._load_waiting())

    def find(self, group_id: str) -> Shard | None:
        """Where a group is kept, or None while no group ever was. Raises Refused."""
        partition_count = self._topic.partition_count()
        return None if partition_count == 0 else self._shard(partition_of(group_id, partition_count))

    async def find_or_create(self, group_id: str) -> Shard:
        """As `find`, for someone who is about to have something kept."""
        return self._shard(await self.place(group_id))

    async def place(self, group_id: str) -> int:
        """The partition that keeps a group, or will. Raises Refused where the topic cannot be created."""
        if self._topic.partition_count() == 0:
            await self._topic.create()
        return partition_of(group_id, self._topic.partition_count())

    async def write(self, shard: Shard, changes: Changes, groups: Mapping[str, bytes | None] | None = None) -> None:
        """Append what changes, groups before offsets, and have it in memory once it is committed. Raises Refused.

        A few thousand records are one batch and one wait.
        """
        contents = [(encode_group_key(group_id), value) for group_id, value in (groups or {}).items()]
        for chunk in _chunks(changes.items(), RECORDS_PER_BATCH_MAX):
            await self._write_offsets(shard, contents, dict(chunk))
            contents = []
        if contents:
            await self._append(shard, contents)
        self._compact_if_due(shard)

    async def _write_offsets(self, shard: Shard, contents: Sequence[Content], changes: Changes) -> None:
        sequence = shard.offsets.begin(changes)
        try:
            await self._append(shard, [*contents, *changes_as_contents(changes)])
        except Refused:
            shard.offsets.abandon(sequence, changes)
            raise
        shard.offsets.settle(sequence, changes)

    def _append(self, shard: Shard, contents: Sequence[Content]) -> Awaitable[None]:
        return self._topic.append(shard.index, encode(as_records(contents, self._wall_clock())))

    def _shard(self, index: int) -> Shard:
        shard = self._shards.get(index)
        if shard is not None:
            return shard
        if not self._topic.is_led(index):
            raise Refused(ErrorCode.not_coordinator)
        if index in self._damaged:
            raise Refused(ErrorCode.coordinator_not_available, "The partition that keeps this group is damaged.")
        if self._is_empty(index):
            return self._loaded(Shard(index, self._settings))
        if index not in self._loading:
            self._begin_loading(index)
            self._tasks.spawn(self._load(index))
        raise Refused(ErrorCode.coordinator_load_in_progress)

    def _is_empty(self, index: int) -> bool:
        bounds = self._topic.bounds(index)
        return bounds.start == bounds.end

    def _loaded(self, shard: Shard) -> Shard:
        self._shards[shard.index] = shard
        self._on_loaded(shard)
        return shard

    async def _load_waiting(self) -> None:
        while self._waiting:
            index = next(iter(self._waiting))
            self._begin_loading(index)
            await self._load(index)

    def _begin_loading(self, index: int) -> None:
        self._waiting.pop(index, None)
        self._loading.add(index)

    async def _load(self, index: int) -> None:
        try:
            shard = await self._read(index)
        except (StorageError, Refused) as error:
            self._damaged.add(index)
            _events.error("groups.not_loaded", partition=index, error=str(error))
        else:
            self._loaded(shard)
            self._compact_if_due(shard)
        finally:
            self._loading.discard(index)

    async def _read(self, index: int) -> Shard:
        newest: dict[bytes, bytes] = {}
        turn = _Turn(self._loop)
        offset, end = self._topic.bounds(index)
        while offset < end:
            data = await self._topic.read(index, offset)
            if not data:
                break
            for batch in split(data):
                offset = max(offset, _take_newest(batch, offset, newest))
                await turn.maybe_end()
        shard = Shard(index, self._settings)
        for _ in shard.restore(newest.items()):
            await turn.maybe_end()
        shard.begin_sessions(round(self._loop.time() * 1000))
        return shard

    def _compact_if_due(self, shard: Shard) -> None:
        bounds = self._topic.bounds(shard.index)
        due = max(COMPACTION_RECORDS_MIN, COMPACTION_RATIO * len(shard))
        if bounds.end - bounds.start > due and not shard.is_compacting:
            shard.is_compacting = True
            self._tasks.spawn(self._compact(shard, bounds.end))

    async def _compact(self, shard: Shard, below: int) -> None:
        """Append the newest of everything again, then delete what was there before."""
        try:
            for keys in _chunks(shard.all_keys(), RECORDS_PER_BATCH_MAX):
                contents = shard.contents(keys)
                if contents:
                    await self._append(shard, contents)
                await asyncio.sleep(0)
            self._topic.trim(shard.index, below)
        except Refused as refusal:
            _events.warning("groups.not_compacted", partition=shard.index, error=str(refusal))
        finally:
            shard.is_compacting = False


class _Turn:
    """Leaves the loop to others every few milliseconds."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop, self._until = loop, loop.time() + TURN_S

    async def maybe_end(self) -> None:
        if self._loop.time() >= self._until:
            await asyncio.sleep(0)
            self._until = self._loop.time() + TURN_S


def _take_newest(batch: bytes, offset: int, newest: dict[bytes, bytes]) -> int:
    """Let the records from `offset` on have their say. Returns where the next batch begins."""
    header = check(batch)
    if not header.attributes & CONTROL:
        for record in decode(batch):
            if record.key is None or record.offset < offset:
                continue
            if record.value is None:
                newest.pop(record.key, None)
            else:
                newest[record.key] = record.value
    return header.end


def _chunks(items: Iterable[_ItemT], size: int) -> Iterator[list[_ItemT]]:
    rest = iter(items)
    while chunk := list(islice(rest, size)):
        yield chunk
