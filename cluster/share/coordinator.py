"""Share coordinator: the stored states of the share partitions of this broker, and requests to them.

A thin shell. `state.py` has the rules, and `shard.py` holds one partition of `__share_group_state` in memory. All
changes of one request that belong to one shard are one batch of the log, unless they are too many for one step of the
event loop.
"""

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import NamedTuple, Protocol, TypeVar
from uuid import UUID

from kio.schema.errors import ErrorCode

from cordwood.cluster.coordination.shard_store import ShardStore, chunks
from cordwood.cluster.coordination.topic import InternalTopic
from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.metadata.image import Image, changed_topics
from cordwood.cluster.resources.turns import Turns
from cordwood.cluster.share.settings import ShareSettings
from cordwood.cluster.share.shard import Changes, ShareShard, records
from cordwood.cluster.share.state import SharePartitionState
from cordwood.cluster.share.states import SharePartitionKey, StateBatch
from cordwood.replication.tasks import Tasks
from cordwood.storage.types import NO_EPOCH


class StateRequest(Protocol):
    """A request about one share partition."""

    @property
    def key(self) -> SharePartitionKey: ...


class Deletion(NamedTuple):
    """A request to delete the state of a share partition."""

    key: SharePartitionKey


class Initialization(NamedTuple):
    """A request to begin a share partition anew; without a start offset, where the group's configs say."""

    key: SharePartitionKey
    state_epoch: int
    start_offset: int


class StateRead(NamedTuple):
    """A leader's request for the state of a share partition."""

    key: SharePartitionKey
    leader_epoch: int


class StateChange(NamedTuple):
    """A leader's request to store changes of a share partition."""

    key: SharePartitionKey
    state_epoch: int
    leader_epoch: int
    start_offset: int
    batches: tuple[StateBatch, ...]
    delivery_complete_count: int


class StateAnswer(NamedTuple):
    """The answer about one share partition: its state, or why it is refused."""

    state: SharePartitionState
    code: ErrorCode = ErrorCode.none
    message: str | None = None


UNKNOWN = SharePartitionState()
"""The state of a share partition that no one has initialized."""

KEYS_AT_ONCE = 500
"""Share partitions that are looked at, or whose states are deleted, in one step of the event loop."""
BATCHES_AT_ONCE = 10_000
"""State batches that are encoded in one step: some 3 ms. To merge a new one takes as long as to encode MERGE_COST."""
MERGE_COST = 20

_RowT = TypeVar("_RowT", bound=StateRequest)


class ShareCoordinator:
    """The share partitions of this broker. The methods answer each row by itself, and raise nothing."""

    def __init__(
        self,
        settings: ShareSettings,
        topic: InternalTopic,
        has_partition: Callable[[SharePartitionKey], bool],
        wall_clock: Callable[[], int],
        turns: Turns | None = None,
    ) -> None:
        """`has_partition` returns whether the topic partition exists."""
        self._settings, self._topic, self._has_partition = settings, topic, has_partition
        self._wall_clock = wall_clock
        self._tasks = Tasks()
        self._store = ShardStore(topic, ShareShard, self._tasks, wall_clock, _do_nothing, _do_nothing, turns)

    def start(self) -> None:
        """Load the share partitions in the background."""
        self._store.follow()

    async def close(self) -> None:
        """Drop all share partitions. They stay in the log."""
        self._store.close()
        await self._tasks.close()

    def on_metadata_change(self, old: Image, new: Image) -> None:
        """Follow a metadata change; the quorum calls this after the replicas have their new roles."""
        if old.topics_by_id is not new.topics_by_id:
            self._store.follow()
            deleted = frozenset(
                before.id for before, after in changed_topics(old, new) if before is not None and after is None
            )
            if deleted and self.count():
                self._tasks.spawn(self._forget(deleted), "share states of deleted topics")

    def roles_taken(self) -> None:
        """Follow the roles of replicas that were taken after the metadata change."""
        self._store.follow()

    async def place(self, key: SharePartitionKey) -> int:
        """Return the partition of `__share_group_state` of a share partition. Raises Refused."""
        return await self._store.place(str(key))

    def count(self) -> int:
        """Return the number of share partitions of this broker. Those that are loading do not count."""
        return sum(len(shard.states) for shard in self._store.shards)

    async def initialize(self, rows: Collection[Initialization]) -> list[StateAnswer]:
        """Begin share partitions anew, which fences their leaders by the state epoch."""

        def step(row: Initialization, current: SharePartitionState | None) -> SharePartitionState:
            known = current or SharePartitionState(created_ms=self._wall_clock())
            return known.initialized(row.state_epoch, row.start_offset, self._wall_clock())

        return await self._change(rows, step)

    async def write(self, rows: Collection[StateChange]) -> list[StateAnswer]:
        """Store what leaders have changed."""

        def step(row: StateChange, current: SharePartitionState | None) -> SharePartitionState:
            if current is None:
                raise Refused(ErrorCode.invalid_request, "The share partition is not initialized.")
            new = current.written(*row[1:])
            return new.snapshot() if new.updates > self._settings.updates_per_snapshot else new

        return await self._change(rows, step)

    async def read(self, rows: Collection[StateRead]) -> list[StateAnswer]:
        """Return the states of share partitions to their leaders, and fence their former leaders.

        Only the coordinator of a share group has states made, for the topics of its members: fetches of any other
        group id leave nothing behind.
        """

        def step(row: StateRead, current: SharePartitionState | None) -> SharePartitionState:
            if current is None:
                raise Refused(ErrorCode.invalid_request, "The share partition is not initialized.")
            new = current.read_by(row.leader_epoch)
            return new if new is current else new.snapshot()

        return await self._change(rows, step)

    async def summarize(self, rows: Collection[StateRead]) -> list[StateAnswer]:
        """Return the states of share partitions without effect on their leaders."""

        def step(row: StateRead, current: SharePartitionState | None) -> SharePartitionState | None:
            if current is not None and row.leader_epoch > NO_EPOCH:
                current.read_by(row.leader_epoch)
            return current

        return await self._change(rows, step)

    async def delete(self, rows: Collection[Deletion]) -> list[StateAnswer]:
        """Delete the states of share partitions."""
        return await self._change(rows, lambda _row, _current: None, must_exist=False)

    async def _change(
        self,
        rows: Collection[_RowT],
        step: Callable[[_RowT, SharePartitionState | None], SharePartitionState | None],
        *,
        must_exist: bool = True,
    ) -> list[StateAnswer]:
        """Apply `step` to each row, and answer once all of them are stored."""
        by_shard: dict[ShareShard, dict[int, _RowT]] = {}
        answers: dict[int, StateAnswer] = {}
        for place, row in enumerate(rows):
            try:
                self._check(row.key, must_exist=must_exist)
                shard = await self._store.find_or_create(str(row.key))
            except Refused as refusal:
                answers[place] = StateAnswer(UNKNOWN, refusal.code, refusal.message)
            else:
                by_shard.setdefault(shard, {})[place] = row
        steps: list[asyncio.Task[dict[int, StateAnswer]]] = []
        async with asyncio.TaskGroup() as group:
            for shard, asked in by_shard.items():
                for part in _parts(shard, asked):
                    if steps:
                        await asyncio.sleep(0)
                    steps.append(group.create_task(self._step(shard, part, step)))
        for done in steps:
            answers |= done.result()
        return [answers[place] for place in range(len(answers))]

    async def _step(
        self,
        shard: ShareShard,
        rows: Mapping[int, _RowT],
        step: Callable[[_RowT, SharePartitionState | None], SharePartitionState | None],
    ) -> dict[int, StateAnswer]:
        """Apply `step` to the rows of one shard. Return the answer of each place."""
        answers: dict[int, StateAnswer] = {}
        changes: Changes = {}
        for place, row in rows.items():
            current = changes[row.key] if row.key in changes else shard.states.get(row.key)
            try:
                new = step(row, current)
            except Refused as refusal:
                answers[place] = StateAnswer(current or UNKNOWN, refusal.code, refusal.message)
                continue
            answers[place] = StateAnswer(new or UNKNOWN)
            if new is not current:
                changes[row.key] = new
        try:
            await self._append(shard, changes)
        except Refused as refusal:
            failed = StateAnswer(UNKNOWN, refusal.code, refusal.message)
            return {place: answer if answer.code else failed for place, answer in answers.items()}
        return answers

    async def _forget(self, topic_ids: Collection[UUID]) -> None:
        """Delete the states of deleted topics. Those that cannot be are deleted with their groups."""
        for shard in self._store.shards:
            for keys in chunks(list(shard.states), KEYS_AT_ONCE):
                gone = [key for key in keys if key.topic_id in topic_ids]
                if gone and self._store.holds(shard):
                    await self._step(shard, dict(enumerate(map(Deletion, gone))), lambda _row, _current: None)
                await asyncio.sleep(0)

    async def _append(self, shard: ShareShard, changes: Changes) -> None:
        """Append changes and wait until they are committed, or until everything that was read is. Raises Refused."""
        if not changes:
            # A state that was read may be lost otherwise with this coordinator.
            await self._topic.committed(shard.leadership, self._topic.bounds(shard.leadership).end)
            return
        now_ms = self._wall_clock()
        contents = [content for key, state in changes.items() for content in records(key, state, now_ms)]
        before = shard.apply(changes)
        try:
            await self._store.append(shard, contents)
        except Refused:
            # Nothing was appended, or another broker leads the partition: this shard is not used any more then.
            shard.apply(before)
            raise

    def _check(self, key: SharePartitionKey, *, must_exist: bool) -> None:
        if not key.group_id or key.partition < 0:
            raise Refused(ErrorCode.invalid_request)
        if must_exist and not self._has_partition(key):
            raise Refused(ErrorCode.unknown_topic_or_partition)


def _parts(shard: ShareShard, rows: Mapping[int, _RowT]) -> Iterator[dict[int, _RowT]]:
    """Yield the rows in parts, each for one step of the event loop."""
    part: dict[int, _RowT] = {}
    cost = 0
    for place, row in rows.items():
        known = shard.states.get(row.key, UNKNOWN)
        more = len(known.batches) + (MERGE_COST * len(row.batches) if isinstance(row, StateChange) else 0)
        if part and cost + more > BATCHES_AT_ONCE:
            yield part
            part, cost = {}, 0
        part[place] = row
        cost += more
    yield part


def _do_nothing(_shard: ShareShard) -> None:
    """Do nothing when a shard is loaded or lost: no request waits for one."""
