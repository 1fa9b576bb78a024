"""Removal of groups and offsets: deleted groups, offsets of deleted topics, and expired offsets."""

import asyncio
from collections.abc import Callable, Iterable

import structlog
from kio.schema.errors import ErrorCode

from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.groups.any_group import AnyGroup
from cordwood.cluster.groups.effects import EffectRunner
from cordwood.cluster.groups.formats import OffsetKey
from cordwood.cluster.groups.offsets import expired
from cordwood.cluster.groups.settings import GroupSettings
from cordwood.cluster.groups.shard import Shard
from cordwood.cluster.groups.state_store import GroupStateStore
from cordwood.cluster.resources.turns import Turns
from cordwood.replication.tasks import Tasks

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
        for shard in self._state_store.shards:
            await self.forget_topics_in(shard, topics)

    async def forget_topics_in(self, shard: Shard, topics: frozenset[str]) -> None:
        keys = [key for key in shard.offsets.live_keys() if key.topic in topics]
        try:
            await self._state_store.write(shard, dict.fromkeys(keys))
        except Refused as refusal:
            _events.warning("groups.offsets_not_removed", topics=sorted(topics), error=str(refusal))

    def _expire(self) -> None:
        self._tasks.spawn(self._expire_all())
        self.start()

    async def _expire_all(self) -> None:
        for shard in self._state_store.shards:
            async for group in self._turns.each(list(shard.groups.values())):
                try:
                    await self._expire_in(shard, group)
                except Refused as refusal:
                    _events.warning("groups.not_expired", group=group.group_id, error=str(refusal))
                    return

    async def _expire_in(self, shard: Shard, group: AnyGroup) -> None:
        """Remove a group's expired offsets, and an empty group with the last of them. Pending offsets do not expire."""
        await self._effect_runner.settled(shard, group.group_id)
        if shard.groups.get(group.group_id) is not group:
            # The group was removed while other groups were checked.
            return
        offsets, pending = shard.offsets.of(group.group_id), shard.offsets.pending_of(group.group_id)
        found = expired(group, offsets, self._wall_clock(), self._settings.offsets_retention_ms)
        keys = [key for key in found if (key.topic, key.partition) not in pending]
        is_over = group.expires and group.check_delete() is ErrorCode.none and group.is_vacant
        if is_over and not set(shard.offsets.keys_of(group.group_id)) - set(keys):
            await self.remove(shard, group, keys)
        elif keys:
            await self._state_store.write(shard, dict.fromkeys(keys))
