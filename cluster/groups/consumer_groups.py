"""Consumer groups of this broker: heartbeats, descriptions, and the conversion of classic groups.

A thin shell, as `coordinator.py` is for classic groups; `consumer/` has the rules.
"""

import random
from uuid import UUID

from kio.schema.errors import ErrorCode

from cordwood.cluster.coordination.shard_store import chunks
from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.groups.classic.group import ClassicGroup
from cordwood.cluster.groups.classic.rebalance import State
from cordwood.cluster.groups.consumer.conversion import converted_state, members_of_classic
from cordwood.cluster.groups.consumer.exchange import ConsumerHeartbeat, check_heartbeat
from cordwood.cluster.groups.consumer.group import ConsumerGroup
from cordwood.cluster.groups.context import GroupContext
from cordwood.cluster.groups.effects import EffectRunner
from cordwood.cluster.groups.heartbeat import JOIN_EPOCH, HeartbeatReply
from cordwood.cluster.groups.shard import Shard
from cordwood.cluster.groups.state_store import GroupStateStore
from cordwood.cluster.groups.subscription import CONSUMER
from cordwood.cluster.resources.turns import Turns
from cordwood.storage.steps import Steps

LEFTOVERS_PER_STEP_MAX = 64
"""Largest number of records of a former consumer group that are noted in one step."""


class ConsumerGroups:
    """The groups with the consumer protocol. Methods raise Refused for a group that is not served here."""

    def __init__(
        self,
        state_store: GroupStateStore,
        effect_runner: EffectRunner,
        context: GroupContext,
        rng: random.Random,
        turns: Turns,
    ) -> None:
        self._state_store, self._effect_runner = state_store, effect_runner
        self._context, self._rng, self._turns = context, rng, turns
        self._converting: set[ClassicGroup] = set()

    async def heartbeat(self, group_id: str, request: ConsumerHeartbeat) -> HeartbeatReply:
        """Return the reply once all that it shows is on disk. Raises Refused."""
        settings = self._context.settings
        if CONSUMER not in settings.protocols:
            raise Refused(ErrorCode.unsupported_version)
        check_heartbeat(group_id, request, settings.consumer_assignors)
        await self._effect_runner.settled(self._state_store.find(group_id), group_id)
        if request.member_epoch == JOIN_EPOCH:
            shard = await self._state_store.find_or_create(group_id)
            group = await self._opened(shard, group_id)
        else:
            found = self._state_store.find(group_id)
            if found is None:
                raise _not_found(group_id)
            shard, group = found, _consumer_group(found, group_id)
        runner = self._effect_runner
        request_id = runner.heartbeats.enter()
        group.consumer_heartbeat(request, request_id, self._new_member_id(), runner.now_ms())
        runner.perform(shard, group)
        return await runner.heartbeats.wait(request_id)

    def group(self, group_id: str) -> ConsumerGroup:
        """Return a group, which must not be changed. Raises Refused with GROUP_ID_NOT_FOUND."""
        shard = self._state_store.find(group_id)
        if shard is None:
            raise _not_found(group_id)
        return _consumer_group(shard, group_id)

    async def _opened(self, shard: Shard, group_id: str) -> ConsumerGroup:
        """Return the group; make one if there is none, or of a classic one. Raises Refused."""
        known = shard.groups.get(group_id)
        if known is None:
            group = shard.groups[group_id] = ConsumerGroup(group_id, self._context)
            return group
        if not isinstance(known, ClassicGroup):
            return _consumer_group(shard, group_id)
        group = await self._converted(shard, known)
        known.refuse_waiting(ErrorCode.rebalance_in_progress)
        self._effect_runner.perform(shard, known)
        self._effect_runner.replace(shard, known, group)
        shard.forget_saved(group_id)
        shard.leftovers.pop(group_id, None)
        return group

    async def _converted(self, shard: Shard, classic: ClassicGroup) -> ConsumerGroup:
        """Make a consumer group of a classic one, in turns. It has not taken its place yet.

        Raises Refused, with COORDINATOR_LOAD_IN_PROGRESS if the classic group has changed or was deleted meanwhile.
        """
        group_id = classic.group_id
        if classic in self._converting:
            raise _is_converted(group_id)
        before, is_saved = converted_state(classic), shard.is_saved(group_id)
        self._converting.add(classic)
        try:
            group = await self._turns.run(self._upgraded(shard, classic))
        finally:
            self._converting.remove(classic)
        await self._effect_runner.settled(shard, group_id)
        is_there = shard.groups.get(group_id) is classic and self._state_store.holds(shard)
        if not is_there or shard.is_saved(group_id) is not is_saved or converted_state(classic) != before:
            raise _is_converted(group_id)
        return group

    def _upgraded(self, shard: Shard, classic: ClassicGroup) -> Steps[ConsumerGroup]:
        """Return a consumer group with the members of a classic one. Raises Refused."""
        settings, group_id = self._context.settings, classic.group_id
        group = ConsumerGroup(group_id, self._context)
        if shard.is_saved(group_id):
            group.replace_classic()
        for keys in chunks(shard.leftovers.get(group_id, ()), LEFTOVERS_PER_STEP_MAX):
            group.records.change_again([(key, None) for key in keys])
            yield
        if classic.state is State.EMPTY:
            return group
        may_be = settings.consumer_migration.may_upgrade and classic.protocol_type == CONSUMER
        if not may_be or classic.member_count > settings.consumer_size_max:
            raise _not_found(classic.group_id, is_other=True)
        generation = classic.generation
        members = yield from members_of_classic(classic, self._context.topics())
        yield from group.adopt(members, generation)
        yield from group.begin_sessions_in_steps(self._effect_runner.now_ms())
        yield from group.append_adopted()
        return group

    def _new_member_id(self) -> str:
        return str(UUID(int=self._rng.getrandbits(128), version=4))


def _consumer_group(shard: Shard, group_id: str) -> ConsumerGroup:
    group = shard.groups.get(group_id)
    if isinstance(group, ConsumerGroup):
        return group
    raise _not_found(group_id, is_other=group is not None)


def _is_converted(group_id: str) -> Refused:
    message = f"Group {group_id} is being converted to a consumer group."
    return Refused(ErrorCode.coordinator_load_in_progress, message)


def _not_found(group_id: str, *, is_other: bool = False) -> Refused:
    message = f"Group {group_id} is not a consumer group." if is_other else f"Group {group_id} not found."
    return Refused(ErrorCode.group_id_not_found, message)
