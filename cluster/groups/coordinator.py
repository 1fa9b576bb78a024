"""Group coordinator: requests to the groups of this broker, and their replies.

A thin shell. `group.py` has the rules, and `effects.py` executes the effects that they ask for. `shard.py` holds one
partition of `__consumer_offsets` in memory, and `state_store.py` writes it.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from typing import NamedTuple
from uuid import UUID

from kio.schema.errors import ErrorCode

from cordwood.cluster.coordination.topic import InternalTopic
from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.groups.any_group import AnyGroup, ClassicMembership
from cordwood.cluster.groups.classic.group import ClassicGroup
from cordwood.cluster.groups.consumer_groups import ConsumerGroups
from cordwood.cluster.groups.context import GroupContext
from cordwood.cluster.groups.effects import EffectRunner
from cordwood.cluster.groups.exchange import NO_MEMBER, Join, JoinReply, Leaver, Sync, SyncReply
from cordwood.cluster.groups.formats import CommittedOffset, OffsetKey
from cordwood.cluster.groups.measures import GroupMeasures
from cordwood.cluster.groups.offsets import OffsetsByPartition
from cordwood.cluster.groups.removal import Removal
from cordwood.cluster.groups.shard import Shard
from cordwood.cluster.groups.share.group import ShareGroup
from cordwood.cluster.groups.share.state_requests import Persister, ShareStateRequests
from cordwood.cluster.groups.share_groups import ShareGroups
from cordwood.cluster.groups.state_store import GroupStateStore, Verify
from cordwood.cluster.metadata.image import Image, TopicImage, changed_topics
from cordwood.cluster.resources.turns import FREE_STEPS, Turns
from cordwood.replication.tasks import Tasks
from cordwood.storage.steps import Steps, portions, some
from cordwood.storage.types import ProducerIdAndEpoch, TopicPartition

NAME_BYTES_MAX = 32_000
"""Largest length of ids and names that fits the records."""
ID_PREFIX_CHARS_MAX = 200

Codes = dict[TopicPartition, ErrorCode]


class Commit(NamedTuple):
    """An offset that a member commits for one partition."""

    offset: int
    leader_epoch: int
    metadata: str


class MemberIdentity(NamedTuple):
    """The sender of a request: a member in a generation, or a client without either."""

    member_id: str = NO_MEMBER
    generation: int = -1
    instance_id: str | None = None
    knows_epochs: bool = True
    """Whether the client sends OffsetCommit 9 or newer, whose generation may be a member epoch (KIP-848)."""


class GroupCoordinator:
    """All groups of this broker. Methods raise Refused for a group that is not, not yet or no longer served here."""

    def __init__(
        self,
        *,
        context: GroupContext,
        topic: InternalTopic,
        topic_exists: Callable[[str], bool],
        wall_clock: Callable[[], int],
        rng: random.Random,
        turns: Turns | None = None,
        persister: Persister | None = None,
    ) -> None:
        context, settings = replace(context, wall_clock=wall_clock), context.settings
        self._settings, self._topic_exists, self._wall_clock, self._rng = settings, topic_exists, wall_clock, rng
        self._tasks = Tasks()
        self._turns = Turns(asyncio.get_running_loop().time) if turns is None else turns
        self._state_store = GroupStateStore(
            topic,
            lambda leadership: Shard(leadership, context),
            self._tasks,
            wall_clock,
            self._loaded,
            self._lost,
            self._turns,
        )
        states = ShareStateRequests(persister, self._turns)
        self._effect_runner = EffectRunner(self._state_store, self._tasks, wall_clock, self._turns, states)
        self.shares = ShareGroups(context, self._state_store, self._effect_runner, states, self._turns)
        self.consumers = ConsumerGroups(self._state_store, self._effect_runner, context, rng, self._turns)
        self._removal = Removal(self._state_store, self._effect_runner, self._tasks, settings, wall_clock, self._turns)

    @property
    def measures(self) -> GroupMeasures:
        """Counts and times since the broker has started."""
        return self._effect_runner.measures

    def start(self) -> None:
        """Load the groups in the background, and start the expiry checks."""
        self._state_store.follow()
        self._removal.start()

    async def close(self) -> None:
        """Refuse all waiting requests, so that members look for another coordinator. The groups stay in the log."""
        self._removal.close()
        self._state_store.close()
        await self._tasks.close()

    async def place(self, group_id: str) -> int:
        """Return the partition of `__consumer_offsets` of a group; its leader is the group's coordinator."""
        return await self._state_store.place(_checked(group_id))

    async def join(self, group_id: str, request: Join) -> JoinReply:
        """Return the reply when the group's next generation begins. Raises Refused for a join that no group accepts."""
        self._check_join(group_id, request)
        await self._settled(group_id)
        if request.member_id == NO_MEMBER:
            shard = await self._state_store.find_or_create(group_id)
            group = shard.open(group_id)
        else:
            found = self._find(group_id)
            if found is None:
                return JoinReply(ErrorCode.unknown_member_id, request.member_id)
            shard, group = found
        if not isinstance(group, ClassicMembership):
            return JoinReply(ErrorCode.inconsistent_group_protocol, request.member_id)
        request_id = self._effect_runner.joins.enter()
        group.join(request, request_id, self._new_member_id(request), self._effect_runner.now_ms())
        self._effect_runner.perform(shard, group)
        return await self._effect_runner.joins.wait(request_id)

    async def sync(self, group_id: str, request: Sync) -> SyncReply:
        """Return the reply when the leader's assignment is on disk."""
        await self._settled(group_id)
        found = self._find_classic(group_id)
        if found is None:
            return SyncReply(ErrorCode.unknown_member_id)
        shard, group = found
        request_id = self._effect_runner.syncs.enter()
        group.sync(request, request_id, self._effect_runner.now_ms())
        self._effect_runner.perform(shard, group)
        return await self._effect_runner.syncs.wait(request_id)

    def heartbeat(self, group_id: str, member: MemberIdentity) -> ErrorCode:
        try:
            found = self._find_classic(group_id)
        except Refused as refusal:
            # The session restarts once the group is loaded. Until then it is unknown whether the client is a member.
            if refusal.code is ErrorCode.coordinator_load_in_progress:
                return ErrorCode.none
            raise
        if found is None:
            return ErrorCode.unknown_member_id
        now_ms = self._effect_runner.now_ms()
        return found[1].heartbeat(member.member_id, member.instance_id, member.generation, now_ms)

    async def leave(self, group_id: str, leavers: Sequence[Leaver]) -> list[ErrorCode]:
        """Return a code for each leaver.

        If no member is left, or in a consumer group, wait until that is on disk, or raise Refused. Otherwise the next
        coordinator would restore the leaver as a member, and other members would wait for it.
        """
        await self._settled(group_id)
        found = self._find_classic(group_id)
        if found is None:
            return [ErrorCode.unknown_member_id for _ in leavers]
        shard, group = found
        codes = group.leave(leavers, self._effect_runner.now_ms())
        self._effect_runner.perform(shard, group)
        await self._effect_runner.settled(shard, group_id)
        if not group.member_count or not isinstance(group, ClassicGroup):
            code = await self._written(shard, group)
            if code is not ErrorCode.none:
                raise Refused(code)
        return codes

    async def commit(self, group_id: str, member: MemberIdentity, commits: Mapping[TopicPartition, Commit]) -> Codes:
        """Commit offsets. Return a code for each. Raises Refused if none may be committed.

        The code is GROUP_ID_NOT_FOUND for a generation of a group that does not exist.
        """
        shard = await self._state_store.find_or_create(_checked(group_id))
        codes, changes = self._changes(group_id, commits)
        self._check_commit(shard, group_id, member, changes)
        if changes:
            await self._write_commit(shard, shard.open(group_id), self._state_store.write(shard, changes))
        return codes

    async def commit_in_transaction(
        self,
        group_id: str,
        member: MemberIdentity,
        producer: ProducerIdAndEpoch,
        commits: Mapping[TopicPartition, Commit],
        verify: Verify,
        *,
        is_v2: bool = False,
    ) -> Codes:
        """Commit offsets in a transaction: they count from its marker on. Return a code for each, or raise Refused."""
        shard = await self._state_store.find_or_create(_checked(group_id, needs_name=True))
        guard = await self._state_store.verified(shard, producer, verify, is_v2=is_v2)
        if self._state_store.find(group_id) is not shard:
            raise Refused(ErrorCode.not_coordinator)
        codes, changes = self._changes(group_id, commits)
        self._check_transactional_commit(shard, group_id, member, changes)
        if changes:
            write = self._state_store.write_pending(shard, producer, changes, guard)
            await self._write_commit(shard, shard.open(group_id), write)
        return codes

    def transaction_ended(
        self, partition: int, producer: ProducerIdAndEpoch, is_commit: bool, applied: Callable[[], None] = lambda: None
    ) -> None:
        """Apply or drop a transaction's offsets in a partition in which its marker is committed; then call `applied`.

        Many offsets are applied in turns. Each is pending until then.
        """
        shard = self._state_store.of_partition(partition)
        if shard is None:
            applied()
            return
        steps = shard.end_transaction(producer.producer_id, is_commit=is_commit)
        ended = some(steps, FREE_STEPS)
        if ended is None:
            self._tasks.spawn(self._apply_in_turns(shard, steps, applied))
            return
        for group in ended:
            self._effect_runner.perform(shard, group)
        applied()

    async def _apply_in_turns(self, shard: Shard, steps: Steps[list[AnyGroup]], applied: Callable[[], None]) -> None:
        async for group in self._turns.each(await self._turns.run(steps)):
            if shard.groups.get(group.group_id) is group:
                self._effect_runner.perform(shard, group)
        applied()

    def pending_of(self, group_id: str) -> Set[TopicPartition]:
        """Return the partitions of which ongoing transactions have committed an offset of the group now (KIP-447)."""
        shard = self._state_store.find(_checked(group_id))
        return frozenset() if shard is None else shard.offsets.pending_of(group_id)

    def check_fetch(self, group_id: str, member_id: str | None, member_epoch: int) -> None:
        """Refuse a fetch of offsets by a stale or unknown member of a group that exists. Raises Refused."""
        found = self._find(group_id)
        code = ErrorCode.none if found is None else found[1].check_fetch(member_id, member_epoch)
        if code is not ErrorCode.none:
            raise Refused(code)

    def offsets_of(self, group_id: str) -> OffsetsByPartition:
        """Return the committed offsets of a group; none for a group that does not exist."""
        shard = self._state_store.find(_checked(group_id))
        return {} if shard is None else shard.offsets.of(group_id)

    async def delete_offsets(self, group_id: str, wanted: Iterable[TopicPartition]) -> Codes:
        """Delete offsets. Return a code for each.

        Raises Refused for a group that does not exist, or whose members are no consumers, so that their topics are
        unknown.
        """
        shard, group = self._known(group_id)
        code = group.check_offset_delete()
        if code is not ErrorCode.none:
            raise Refused(code)
        codes, keys = {}, []
        for place in wanted:
            is_read = group.reads(place.topic)
            codes[place] = ErrorCode.group_subscribed_to_topic if is_read else ErrorCode.none
            key = OffsetKey(group_id, *place)
            if not is_read and shard.offsets.is_known(key):
                keys.append(key)
        await self._state_store.write(shard, dict.fromkeys(keys))
        return codes

    async def delete_group(self, group_id: str) -> None:
        """Delete a group and its offsets, or share states. Raises Refused if it has members or does not exist."""
        await self._effect_runner.settled(self._state_store.find(_checked(group_id)), group_id)
        shard, group = self._known(group_id)
        code = group.check_delete()
        if code is not ErrorCode.none:
            raise Refused(code)
        if isinstance(group, ShareGroup):
            await self.shares.delete_states(shard, group)
        await self._removal.remove(shard, group, shard.offsets.keys_of(group_id))

    def group(self, group_id: str) -> AnyGroup | None:
        """Return a group, which must not be changed, or None."""
        found = self._find(group_id)
        return None if found is None else found[1]

    def groups(self) -> Iterator[AnyGroup]:
        """Return all groups, which must not be changed. Raises Refused if some are loading, or cannot be loaded."""
        shards = self._state_store.all_shards()
        return (group for shard in shards for group in list(shard.groups.values()))

    def known(self) -> Iterator[tuple[AnyGroup, OffsetsByPartition]]:
        """Yield each group that can be served now, with its committed offsets. They must not be changed.

        A caller may pause: groups that are removed or come meanwhile may be among them.
        """
        for shard in self._state_store.shards:
            for group_id, group in list(shard.groups.items()):
                yield group, shard.offsets.of(group_id)

    def on_metadata_change(self, old: Image, new: Image) -> None:
        """Follow a metadata change; the quorum calls this after the replicas have their new roles.

        Groups are loaded and dropped with the leadership of their partition. Offsets are removed with their topic.
        """
        if old.topics_by_id is not new.topics_by_id:
            self._state_store.follow()
        changes = list(changed_topics(old, new))
        gone = [before for before, after in changes if after is None and before is not None]
        if gone:
            self._tasks.spawn(self._removal.forget_topics(frozenset(topic.name for topic in gone)))
            for shard in self._state_store.shards:
                self.shares.forget_topics(shard, [topic.id for topic in gone])
        changed = frozenset(_changed_names(changes))
        if changed:
            for shard in self._state_store.shards:
                for group in shard.groups.values():
                    group.topics_changed(changed)

    def roles_taken(self) -> None:
        """Follow the roles of replicas that were taken after the metadata change."""
        self._state_store.follow()

    def _check_join(self, group_id: str, request: Join) -> None:
        _checked(group_id, needs_name=True)
        if not (
            self._settings.session_timeout_ms_min <= request.session_timeout_ms <= self._settings.session_timeout_ms_max
        ):
            raise Refused(ErrorCode.invalid_session_timeout)
        names = (request.protocol_type, request.instance_id or "", *(protocol.name for protocol in request.protocols))
        if any(len(name.encode()) > NAME_BYTES_MAX for name in names):
            raise Refused(ErrorCode.invalid_request)

    def _check_commit(self, shard: Shard, group_id: str, member: MemberIdentity, changes: Iterable[OffsetKey]) -> None:
        group = shard.groups.get(group_id)
        if group is not None:
            now_ms = self._effect_runner.now_ms()
            code = group.check_commit(
                member.member_id,
                member.instance_id,
                member.generation,
                now_ms,
                _partitions_of(changes),
                knows_epochs=member.knows_epochs,
            )
            if code is not ErrorCode.none:
                raise Refused(code)
        elif member.generation >= 0:
            raise Refused(ErrorCode.group_id_not_found)

    def _check_transactional_commit(
        self, shard: Shard, group_id: str, member: MemberIdentity, changes: Iterable[OffsetKey]
    ) -> None:
        group = shard.groups.get(group_id)
        if group is not None:
            code = group.check_transactional_commit(
                member.member_id, member.instance_id, member.generation, _partitions_of(changes)
            )
            if code is not ErrorCode.none:
                raise Refused(code)
        elif member.generation >= 0:
            raise Refused(ErrorCode.illegal_generation)

    def _changes(
        self, group_id: str, commits: Mapping[TopicPartition, Commit]
    ) -> tuple[Codes, dict[OffsetKey, CommittedOffset]]:
        """Return a code for each commit, and the offsets to write."""
        now_ms = self._wall_clock()
        codes: Codes = {}
        changes: dict[OffsetKey, CommittedOffset] = {}
        for place, commit in commits.items():
            codes[place] = self._check_metadata(commit.metadata)
            if codes[place] is ErrorCode.none:
                committed = CommittedOffset(commit.offset, commit.leader_epoch, commit.metadata, now_ms)
                changes[OffsetKey(group_id, *place)] = committed
        return codes, changes

    def _check_metadata(self, metadata: str) -> ErrorCode:
        limit = min(self._settings.offset_metadata_bytes_max, NAME_BYTES_MAX)
        fits = len(metadata) <= limit and len(metadata.encode()) <= limit
        return ErrorCode.none if fits else ErrorCode.offset_metadata_too_large

    async def _write_commit(self, shard: Shard, group: AnyGroup, write: Awaitable[None]) -> None:
        try:
            await write
        except Refused as refusal:
            # Drop a group that was created for this commit.
            self._effect_runner.perform(shard, group)
            if refusal.code is ErrorCode.message_too_large:
                raise Refused(ErrorCode.invalid_commit_offset_size, refusal.message) from refusal
            raise

    async def _settled(self, group_id: str) -> None:
        """Wait while the group changes in turns: a request must not change it meanwhile. Raises Refused."""
        shard = self._state_store.find(_checked(group_id, needs_name=True))
        await self._effect_runner.settled(shard, group_id)

    async def _written(self, shard: Shard, group: AnyGroup) -> ErrorCode:
        """Wait until a group's latest change is written, also if it becomes one of another kind. Return the code."""
        await self._effect_runner.settled(shard, group.group_id)
        if not self._state_store.holds(shard):
            return ErrorCode.not_coordinator
        return await self._effect_runner.written(shard.groups.get(group.group_id, group))

    def _find(self, group_id: str, *, needs_name: bool = False) -> tuple[Shard, AnyGroup] | None:
        shard = self._state_store.find(_checked(group_id, needs_name=needs_name))
        group = None if shard is None else shard.groups.get(group_id)
        return None if shard is None or group is None else (shard, group)

    def _find_classic(self, group_id: str) -> tuple[Shard, ClassicMembership] | None:
        """Return a group that may have members with the classic protocol."""
        found = self._find(group_id, needs_name=True)
        if found is None or not isinstance(found[1], ClassicMembership):
            return None
        return found[0], found[1]

    def _known(self, group_id: str) -> tuple[Shard, AnyGroup]:
        found = self._find(group_id)
        if found is None:
            raise Refused(ErrorCode.group_id_not_found, f"Group {group_id} not found.")
        return found

    def _loaded(self, shard: Shard) -> None:
        self._tasks.spawn(self._begin(shard))

    async def _begin(self, shard: Shard) -> None:
        """Start the sessions of restored members, and forget topics that were deleted before the shard was loaded."""
        named: set[str] = set()
        async for keys in self._turns.each(portions(shard.offsets.live_keys())):
            named.update(key.topic for key in keys)
        async for group in self._turns.each(list(shard.groups.values())):
            if shard.groups.get(group.group_id) is group:
                group.begin_sessions(self._effect_runner.now_ms())
                self._effect_runner.perform(shard, group)
        if not self._state_store.holds(shard):
            return
        self.shares.forget_topics(shard)
        gone = frozenset(topic for topic in named if not self._topic_exists(topic))
        if gone:
            await self._removal.forget_topics_in(shard, gone)

    def _lost(self, shard: Shard) -> None:
        self._effect_runner.let_go(shard)

    def _new_member_id(self, request: Join) -> str:
        prefix = request.client_id if request.instance_id is None else request.instance_id
        return f"{prefix[:ID_PREFIX_CHARS_MAX]}-{UUID(int=self._rng.getrandbits(128), version=4)}"


def _partitions_of(changes: Iterable[OffsetKey]) -> Iterator[TopicPartition]:
    return (key.place for key in changes)


def _changed_names(changes: Iterable[tuple[TopicImage | None, TopicImage | None]]) -> Iterator[str]:
    """Yield the topics that were created or deleted, or have more partitions; a new leader changes no assignment."""
    for before, after in changes:
        if before is None or after is None:
            yield from (topic.name for topic in (before, after) if topic is not None)
        elif len(before.partitions) != len(after.partitions):
            yield after.name


def _checked(group_id: str, *, needs_name: bool = False) -> str:
    """Check a group id. Only members need a name: offsets may be stored under the empty id, as in Kafka."""
    if (needs_name and not group_id) or len(group_id.encode()) > NAME_BYTES_MAX:
        raise Refused(ErrorCode.invalid_group_id)
    return group_id
