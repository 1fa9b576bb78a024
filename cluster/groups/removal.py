"""Removal of groups and offsets: deleted groups, offsets of deleted topics, and expired offsets."""

import asyncio
from collections.abc import Callable, Iterable, Sequence

import structlog
from kio.schema.errors import ErrorCode

from cordwood.cluster.coordination.shard_store import chunks
from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.groups.any_group import AnyGroup
from cordwood.cluster.groups.effects import EffectRunner
from cordwood.cluster.groups.formats import CommittedOffset, OffsetKey
from cordwood.cluster.groups.offsets import expired
from cordwood.cluster.groups.settings import GroupSettings
from cordwood.cluster.groups.shard import Shard
from cordwood.cluster.groups.state_store import GROUP_RECORDS_PER_BATCH_MAX, GroupStateStore
from cordwood.cluster.resources.turns import Turns
from cordwood.replication.tasks import Tasks
from cordwood.storage.steps import portions
from cordwood.storage.types import TopicPartition

FORGOTTEN_AT_ONCE = 250
"""Offsets of deleted topics that are compared and removed in one step of the event loop."""
FORGET_AGAIN_S = 5.0
"""Time after which offsets of deleted topics that could not be removed are removed again."""

_events = structlog.get_logger("groups")


class Removal:
    """The removal of groups and offsets from the log and from memory."""

    def __init__(
        self,
        state_store: GroupStateStore,
        effect_runner: EffectRunner,
        tasks: Tasks,
        settings: GroupSettings,
        wall_clock: Callable[[], int],
        turns: Turns,
    ) -> None:
        self._state_store, self._effect_runner, self._tasks = state_store, effect_runner, tasks
        self._settings, self._wall_clock, self._turns = settings, wall_clock, turns
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Set the timer of the next expiry check."""
        self._timer = self._loop.call_later(self._settings.expiry_check_interval_ms / 1000, self._expire)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    async def remove(self, shard: Shard, group: AnyGroup, keys: Iterable[OffsetKey]) -> None:
        """Remove an empty group. A member that joins during the write joins a new group. Raises Refused."""
        group_id = group.group_id
        self._effect_runner.forget(shard, group_id)
        is_saved = shard.is_saved(group_id)
        saving = shard.save(group_id, is_tombstone=True)
        try:
            # First: without the record of the classic group they would be a consumer group.
            await self._state_store.append_records(shard, [(key, None) for key in shard.leftovers.get(group_id, ())])
            shard.leftovers.pop(group_id, None)
            await self._state_store.delete(shard, keys, group.record_keys(), group_id if is_saved else None)
        except Refused:
            shard.not_saved(group_id, saving)
            shard.groups.setdefault(group_id, group)
            raise
        shard.saved(group_id, saving)

    async def forget_topics(self, topics: frozenset[str]) -> None:
        """Remove the offsets of deleted topics. A partition that takes no records delays no other."""
        async with asyncio.TaskGroup() as removals:
            for shard in self._state_store.shards:
                removals.create_task(self.forget_topics_in(shard, topics))

    async def forget_topics_in(self, shard: Shard, topics: frozenset[str]) -> None:
        """Remove the offsets that groups have committed for deleted topics until now."""
        gone: dict[OffsetKey, CommittedOffset | None] = {}
        async for portion in self._turns.each(portions(shard.offsets.live_keys())):
            gone.update((key, shard.offsets.newest(key)) for key in portion if key.topic in topics)
        for chunk in chunks(gone.items(), FORGOTTEN_AT_ONCE):
            await self._forget(shard, chunk)

    async def _forget(self, shard: Shard, gone: Sequence[tuple[OffsetKey, CommittedOffset | None]]) -> None:
        """Remove offsets, but for those that have changed since: the topic may be created again meanwhile.

        Try again until that is written: the members of the group would go on at these offsets in a new topic.
        """
        offsets = shard.offsets
        while self._state_store.holds(shard):
            keys = [key for key, known in gone if offsets.is_known(key) and offsets.newest(key) is known]
            try:
                await self._state_store.write(shard, dict.fromkeys(keys))
                return
            except Refused as refusal:
                topics = sorted({key.topic for key in keys})
                _events.warning("groups.offsets_not_removed", topics=topics, error=str(refusal))
            await asyncio.sleep(FORGET_AGAIN_S)

    def _expire(self) -> None:
        self._tasks.spawn(self._expire_all())
        self.start()

    async def _expire_all(self) -> None:
        for shard in self._state_store.shards:
            async for group in self._turns.each(list(shard.groups.values())):
                try:
                    await self._expire_in(shard, group)
                except Refused as refusal:
                    # The other groups of this partition cannot be written either.
                    _events.warning("groups.not_expired", group=group.group_id, error=str(refusal))
                    break

    async def _expire_in(self, shard: Shard, group: AnyGroup) -> None:
        """Remove a group's expired offsets, and an empty group after the last of them. Pending ones do not expire."""
        for places in chunks(list(shard.offsets.of(group.group_id)), GROUP_RECORDS_PER_BATCH_MAX):
            if not await self._is_settled(shard, group):
                return
            keys = self._expired_in(shard, group, places)
            if keys:
                await self._state_store.write(shard, dict.fromkeys(keys))
        if not await self._is_settled(shard, group):
            return
        is_over = group.expires and group.check_delete() is ErrorCode.none and group.is_vacant
        if is_over and not shard.offsets.has_any(group.group_id):
            await self.remove(shard, group, ())

    async def _is_settled(self, shard: Shard, group: AnyGroup) -> bool:
        """Wait until a group does not change in turns. Return False if it was removed while others were checked."""
        await self._turns.turn()
        await self._effect_runner.settled(shard, group.group_id)
        return shard.groups.get(group.group_id) is group

    def _expired_in(self, shard: Shard, group: AnyGroup, places: Iterable[TopicPartition]) -> list[OffsetKey]:
        offsets = shard.offsets.of(group.group_id)
        known = ((place, offsets[place]) for place in places if place in offsets)
        found = expired(group, known, self._wall_clock(), self._settings.offsets_retention_ms)
        return [key for key in found if not shard.offsets.is_pending(key)]
