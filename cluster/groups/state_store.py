"""From `__consumer_offsets` into memory and back: what this broker leads of it, its loading, appends and compaction.

A partition's records beyond what its state needs are got rid of here: what is live is appended anew, and what lies
before is deleted. So loading stays short however long the broker has run, and reads of the topic stay Kafka's.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TypeVar, assert_never

import structlog
from kio.schema.errors import ErrorCode

from cordwood.cluster.groups.formats import encode_group_key
from cordwood.cluster.groups.loader import load
from cordwood.cluster.groups.offsets import Changes
from cordwood.cluster.groups.settings import GroupSettings
from cordwood.cluster.groups.shard import Content, Readiness, Shard, as_records, changes_as_contents
from cordwood.cluster.groups.topic import OffsetsTopic, partition_of
from cordwood.cluster.kafka.call import Refused
from cordwood.replication.tasks import Tasks
from cordwood.storage.errors import StorageError
from cordwood.storage.records import encode

RECORDS_PER_BATCH_MAX = 2000
COMPACTION_RECORDS_MIN = 4_000
COMPACTION_RATIO = 8
"""A partition is compacted once it has so many times the records that its state needs: each is an eighth more work."""

_ItemT = TypeVar("_ItemT")
_ResultT = TypeVar("_ResultT")
_events = structlog.get_logger("groups")


class GroupStateStore:
    """The partitions of `__consumer_offsets` that this broker leads, in memory.

    `on_loaded` is told of each one once its groups can be served, and `on_lost` of each one that is let go of.
    """

    def __init__(
        self,
        topic: OffsetsTopic,
        settings: GroupSettings,
        tasks: Tasks,
        wall_clock: Callable[[], int],
        on_loaded: Callable[[Shard], None],
        on_lost: Callable[[Shard], None],
    ) -> None:
        self._topic, self._settings, self._tasks = topic, settings, tasks
        self._wall_clock, self._on_loaded, self._on_lost = wall_clock, on_loaded, on_lost
        self._shards: dict[int, Shard] = {}
        self._reading = asyncio.Lock()
        self._is_closed = False

    @property
    def shards(self) -> list[Shard]:
        """Those whose groups can be served."""
        return [shard for shard in self._shards.values() if shard.readiness is Readiness.READY]

    @property
    def is_loading(self) -> bool:
        return any(shard.readiness is Readiness.LOADING for shard in self._shards.values())

    def follow(self) -> None:
        """Load, in the background, what this broker has come to lead, and let go of what it leads no longer."""
        for partition in {*range(self._topic.partition_count()), *self._shards}:
            self._follow(partition)

    def close(self) -> None:
        """Let go of everything, for good."""
        self._is_closed = True
        self.follow()

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
        return self._topic.append(shard.leadership, encode(as_records(contents, self._wall_clock())))

    def _shard(self, partition: int) -> Shard:
        shard = self._follow(partition)
        if shard is None:
            raise Refused(ErrorCode.not_coordinator)
        match shard.readiness:
            case Readiness.READY:
                return shard
            case Readiness.LOADING:
                raise Refused(ErrorCode.coordinator_load_in_progress)
            case Readiness.DAMAGED:
                message = "The partition that keeps this group is damaged."
                raise Refused(ErrorCode.coordinator_not_available, message)
            case _:
                assert_never(shard.readiness)

    def _follow(self, partition: int) -> Shard | None:
        """What is in memory of a partition under its leadership of now; None where that is not this broker's."""
        leadership = None if self._is_closed else self._topic.leadership(partition)
        shard = self._shards.get(partition)
        if shard is not None and shard.leadership != leadership:
            # Even where it is led here again: who led it in between has written what is not known here.
            self._let_go(shard)
            shard = None
        if shard is None and leadership is not None:
            shard = self._shards[partition] = Shard(leadership, self._settings)
            start, end = self._topic.bounds(leadership)
            if start == end:
                self._loaded(shard)
            else:
                self._tasks.spawn(self._load(shard, end))
        return shard

    def _let_go(self, shard: Shard) -> None:
        del self._shards[shard.partition]
        self._on_lost(shard)

    def _holds(self, shard: Shard) -> bool:
        """Whether nobody else has come to lead the partition since."""
        return self._shards.get(shard.partition) is shard

    def _loaded(self, shard: Shard) -> None:
        shard.readiness = Readiness.READY
        self._on_loaded(shard)

    async def _load(self, shard: Shard, end: int) -> None:
        """Serve the groups once everything that this leader began with is committed.

        Until then another leader may come without it, and offsets that somebody has been told would go back (rule 10).
        """
        try:
            await self._topic.committed(shard.leadership, end)
            # One at a time: each keeps the loop for milliseconds on end.
            async with self._reading:
                await load(self._topic, shard, end)
        except (StorageError, Refused) as error:
            if self._holds(shard):
                self._not_loaded(shard, error)
            return
        if self._holds(shard):
            self._loaded(shard)
            self._compact_if_due(shard)

    def _not_loaded(self, shard: Shard, error: StorageError | Refused) -> None:
        _events.error("groups.not_loaded", partition=shard.partition, error=str(error))
        if isinstance(error, StorageError):
            shard.readiness = Readiness.DAMAGED
        else:
            # Whoever asks next has it tried again.
            self._let_go(shard)

    def _compact_if_due(self, shard: Shard) -> None:
        try:
            start, end = self._topic.bounds(shard.leadership)
        except Refused:
            # Whoever leads it by now sees to it.
            return
        due = max(COMPACTION_RECORDS_MIN, COMPACTION_RATIO * len(shard))
        if end - start > due and not shard.is_compacting:
            shard.is_compacting = True
            self._tasks.spawn(self._compact(shard, end))

    async def _compact(self, shard: Shard, below: int) -> None:
        """Append the newest of everything again, then delete what was there before."""
        try:
            for keys in _chunks(shard.all_keys(), RECORDS_PER_BATCH_MAX):
                contents = shard.contents(keys)
                if contents:
                    await self._append(shard, contents)
                await asyncio.sleep(0)
            self._topic.trim(shard.leadership, below)
        except Refused as refusal:
            _events.warning("groups.not_compacted", partition=shard.partition, error=str(refusal))
        finally:
            shard.is_compacting = False


def _chunks(items: Iterable[_ItemT], size: int) -> Iterator[list[_ItemT]]:
    rest = iter(items)
    while chunk := list(islice(rest, size)):
        yield chunk
