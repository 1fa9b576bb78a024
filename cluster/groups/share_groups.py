"""Share groups of this broker: heartbeats and start offsets. A thin shell; `share/group.py` has the rules."""

from collections.abc import Collection, Iterable, Mapping
from uuid import UUID

from kio.schema.errors import ErrorCode

from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.groups.context import GroupContext, TopicMap
from cordwood.cluster.groups.effects import EffectRunner
from cordwood.cluster.groups.heartbeat import JOIN_EPOCH, HeartbeatReply
from cordwood.cluster.groups.shard import Shard
from cordwood.cluster.groups.share.exchange import ShareHeartbeat, SharePartitionId, StateStart, check_heartbeat
from cordwood.cluster.groups.share.group import ShareGroup
from cordwood.cluster.groups.share.state_requests import ShareStateRequests, StateSummary
from cordwood.cluster.groups.state_store import GroupStateStore
from cordwood.cluster.metadata.image import TopicImage
from cordwood.cluster.resources.turns import Turns
from cordwood.storage.types import TopicPartition

Outcomes = dict[TopicPartition, Refused | None]

NOTHING_TO_DELETE = "There is no offset information to delete."


class ShareGroups:
    """The share groups of this broker. Methods raise Refused for a group that is not served here."""

    def __init__(
        self,
        context: GroupContext,
        state_store: GroupStateStore,
        effect_runner: EffectRunner,
        states: ShareStateRequests,
        turns: Turns,
    ) -> None:
        self._context, self._state_store, self._effect_runner = context, state_store, effect_runner
        self._states, self._turns = states, turns

    async def heartbeat(self, group_id: str, request: ShareHeartbeat) -> HeartbeatReply:
        """Return the reply when all that it shows is committed."""
        check_heartbeat(group_id, request)
        if request.member_epoch == JOIN_EPOCH:
            shard, group = await self._open(group_id)
        else:
            shard, group = self._known(group_id)
        request_id = self._effect_runner.heartbeats.enter()
        group.heartbeat(request, request_id, self._effect_runner.now_ms())
        self._effect_runner.perform(shard, group)
        return await self._effect_runner.heartbeats.wait(request_id)

    def group(self, group_id: str) -> ShareGroup:
        """Return a group, which must not be changed. Raises Refused if there is none of that id."""
        return self._known(group_id)[1]

    async def summaries(
        self, group_id: str, wanted: Iterable[TopicPartition]
    ) -> dict[TopicPartition, StateSummary | Refused | None]:
        """Return the share state of each partition; None for one that does not exist."""
        topics = self._context.topics()
        ids = {place: _id_of(place, topics) async for place in self._turns.each(wanted)}
        wanted_ids = [one async for one in self._turns.each(ids.values()) if one is not None]
        found = await self._states.summarize(group_id, wanted_ids)
        return {place: None if one is None else found[one] async for place, one in self._turns.each(ids.items())}

    async def reset(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> Outcomes:
        """Set start offsets of a group without members, which is created if there is none. Return refusals."""
        topics = self._context.topics()
        outcomes: Outcomes = {}
        wanted: dict[SharePartitionId, int] = {}
        names: dict[UUID, str] = {}
        async for place, offset in self._turns.each(offsets.items()):
            partition, outcomes[place] = _id_of(place, topics), None
            if partition is None:
                outcomes[place] = _unknown()
            elif offset < 0:
                outcomes[place] = Refused(ErrorCode.invalid_request, "A start offset must not be negative.")
            else:
                wanted[partition], names[partition[0]] = offset, place.topic
        shard, group = await self._open(group_id)
        self._check_empty(shard, group)
        if not wanted:
            self._effect_runner.perform(shard, group)
            return outcomes
        epoch = group.begin_reset(wanted, names)
        if self._context.topics().by_id is not topics.by_id:
            # A topic that was deleted during the turns was not yet known to the group then.
            group.forget_topics()
        try:
            await self._write(shard, group)
        except Refused:
            group.initialized((), list(wanted), self._effect_runner.now_ms())
            self._effect_runner.perform(shard, group)
            raise
        starts = {one: StateStart(epoch, offset) async for one, offset in self._turns.each(wanted.items())}
        refusals = await self._states.initialize(group_id, starts)
        done = [one async for one in self._turns.each(starts) if one not in refusals]
        group.initialized(done, list(refusals), self._effect_runner.now_ms())
        await self._write(shard, group)
        async for (topic_id, index), refusal in self._turns.each(refusals.items()):
            outcomes[TopicPartition(names[topic_id], index)] = refusal
        return outcomes

    async def delete_offsets(self, group_id: str, names: Iterable[str]) -> dict[str, Refused | None]:
        """Delete the share states of topics of a group without members. Return refusals; some are remarks only."""
        shard, group = self._known(group_id)
        self._check_empty(shard, group)
        by_name = self._context.topics().by_name
        outcomes: dict[str, Refused | None] = {}
        async for name in self._turns.each(names):
            topic = by_name.get(name)
            outcomes[name] = None
            if topic is None:
                outcomes[name] = _unknown()
            elif not group.states.has(topic.id):
                outcomes[name] = Refused(ErrorCode.none, NOTHING_TO_DELETE)
        refusals = await self._delete(shard, group, [name for name, outcome in outcomes.items() if outcome is None])
        return outcomes | refusals

    async def delete_states(self, shard: Shard, group: ShareGroup) -> None:
        """Delete all share states of a group without members, which is then deleted itself. Raises Refused."""
        by_id = self._context.topics().by_id
        names = [by_id[known].name async for known in self._turns.each(group.states.topic_ids()) if known in by_id]
        refusals = await self._delete(shard, group, names)
        self._check_empty(shard, group)
        for refusal in refusals.values():
            raise refusal

    def forget_topics(self, shard: Shard, topic_ids: Collection[UUID] | None = None) -> None:
        """Delete the share states of topics that were deleted: of these, or of all that do not exist any more."""
        for group in list(shard.groups.values()):
            if isinstance(group, ShareGroup):
                group.forget_topics(topic_ids)
                self._effect_runner.perform(shard, group)

    async def _delete(self, shard: Shard, group: ShareGroup, names: Iterable[str]) -> dict[str, Refused]:
        """Delete the share states of topics. Return the refusals by topic."""
        topics = self._topics(names)
        if not topics:
            return {}
        await self._effect_runner.settled(shard, group.group_id)
        self._check_empty(shard, group)
        partitions = await self._effect_runner.change(group, group.begin_discard(topics))
        topic_ids = [topic.id for topic in topics]
        try:
            await self._write(shard, group)
        except Refused:
            group.discarded(topic_ids, topic_ids, self._effect_runner.now_ms())
            self._effect_runner.perform(shard, group)
            raise
        refused = await self._states.delete(group.group_id, partitions)
        by_id = {topic_id: refusal for (topic_id, _), refusal in refused.items()}
        group.discarded(topic_ids, by_id, self._effect_runner.now_ms())
        await self._write(shard, group)
        return {topic.name: by_id[topic.id] for topic in topics if topic.id in by_id}

    async def _write(self, shard: Shard, group: ShareGroup) -> None:
        self._effect_runner.perform(shard, group)
        await self._effect_runner.settled(shard, group.group_id)
        code = await self._effect_runner.written(group)
        if code is not ErrorCode.none:
            raise Refused(code)

    async def _open(self, group_id: str) -> tuple[Shard, ShareGroup]:
        """Return a share group, or a new one. Raises Refused for a group of another kind."""
        await self._effect_runner.settled(self._state_store.find(group_id), group_id)
        shard = await self._state_store.find_or_create(group_id)
        group = shard.groups.get(group_id)
        if group is None or (group.is_vacant and not shard.is_kept(group_id)):
            self._effect_runner.forget(shard, group_id)
            group = shard.groups[group_id] = ShareGroup(group_id, self._context)
        if not isinstance(group, ShareGroup):
            raise Refused(ErrorCode.group_id_not_found, f"Group {group_id} is not a share group.")
        return shard, group

    def _known(self, group_id: str) -> tuple[Shard, ShareGroup]:
        shard = self._state_store.find(group_id)
        group = None if shard is None else shard.groups.get(group_id)
        if shard is None or group is None:
            raise Refused(ErrorCode.group_id_not_found, f"Share group {group_id} not found.")
        if not isinstance(group, ShareGroup):
            raise Refused(ErrorCode.group_id_not_found, f"Group {group_id} is not a share group.")
        return shard, group

    def _check_empty(self, shard: Shard, group: ShareGroup) -> None:
        if shard.groups.get(group.group_id) is not group:
            raise Refused(ErrorCode.not_coordinator)
        if group.member_count:
            raise Refused(ErrorCode.non_empty_group, f"Group {group.group_id} is not empty.")

    def _topics(self, names: Iterable[str]) -> list[TopicImage]:
        by_name = self._context.topics().by_name
        return [by_name[name] for name in dict.fromkeys(names) if name in by_name]


def _id_of(place: TopicPartition, topics: TopicMap) -> SharePartitionId | None:
    """Return the ids of a partition; None if it does not exist."""
    topic = topics.by_name.get(place.topic)
    return None if topic is None or not 0 <= place.partition < len(topic.partitions) else (topic.id, place.partition)


def _unknown() -> Refused:
    return Refused(ErrorCode.unknown_topic_or_partition, "This server does not host this topic-partition.")
