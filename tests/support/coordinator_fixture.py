"""Group coordinators over one `__consumer_offsets` in memory, and clients by name that talk to the leader."""

import asyncio
import random
from collections.abc import Callable
from typing import Any

from coordinators_in_memory import CoordinatorsInMemory
from kio.schema.errors import ErrorCode
from offsets_in_memory import OffsetsInMemory
from share_states_in_memory import StatesInMemory

from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.groups.context import GroupContext
from cordwood.cluster.groups.coordinator import Commit, GroupCoordinator, MemberIdentity
from cordwood.cluster.groups.exchange import Join, JoinReply, Leaver, MemberProtocol, Sync, SyncReply
from cordwood.cluster.groups.settings import GroupSettings
from cordwood.storage.types import ProducerIdAndEpoch, TopicPartition

GROUP = "group"
PRODUCER = ProducerIdAndEpoch(7, 0)


class CoordinatorFixture(CoordinatorsInMemory[GroupCoordinator]):
    """Group coordinators and their clients."""

    key = GROUP

    def __init__(self, brokers: int = 1, context: GroupContext | None = None, **settings: int) -> None:
        self.settings = GroupSettings(**settings)
        self.context = GroupContext(self.settings) if context is None else context
        self.share_states = StatesInMemory()
        self.topics = {"flights", "planes"}
        self.rng = random.Random(1)
        self.members: dict[str, str] = {}
        self.verified: list[TopicPartition] = []
        self.generation = -1
        super().__init__(OffsetsInMemory(), brokers)

    def made(self, broker: int) -> GroupCoordinator:
        return GroupCoordinator(
            context=self.context,
            topic=self.topic.seen_by(broker),
            topic_exists=self.topics.__contains__,
            wall_clock=self.wall_clock,
            rng=self.rng,
            persister=self.share_states,
        )

    async def loaded(self) -> None:
        loading = ErrorCode.coordinator_load_in_progress
        await self.until(lambda: self.code_of(self.coordinator.groups) is not loading)

    def leave_without_leader(self) -> None:
        """Leave the group's partition without a leader. The members still know the last one."""
        self.topic.elect(self.partition, None)
        self.tell_all()

    def compact(self) -> None:
        """Compact the group's partition, as the log cleaner does."""
        self.topic.compact(self.partition)

    async def join(self, name: str, **changes: object) -> JoinReply:
        """Join a member, again with its id if the coordinator requires one."""
        fields: dict[str, object] = {
            "member_id": self.members.get(name, ""),
            "protocol_type": "consumer",
            "protocols": (MemberProtocol("range", b"about range"),),
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 60_000,
            "client_id": name,
        }
        reply = await self.coordinator.join(GROUP, Join(**{**fields, **changes}))  # type: ignore[arg-type]
        if reply.code is ErrorCode.member_id_required:
            self.members[name] = reply.member_id
            return await self.join(name, **changes)
        if reply.code is ErrorCode.none:
            self.members[name], self.generation = reply.member_id, reply.generation
        return reply

    async def sync(self, name: str, **shares: bytes) -> SyncReply:
        assignments = {self.members[other]: share for other, share in shares.items()}
        return await self.coordinator.sync(GROUP, Sync(self.members[name], self.generation, assignments=assignments))

    async def stabilize(self, *names: str) -> None:
        """Make a stable group of these members. The first leads, and each assignment is the member's name."""
        first = await self.join(names[0])
        assert first.code is ErrorCode.none
        if len(names) > 1:
            others = [asyncio.ensure_future(self.join(name)) for name in names[1:]]
            await self.until(lambda: len(self.group_size()) == len(names))
            await self.join(names[0])
            await asyncio.gather(*others)
        shares = {name: name.encode() for name in names}
        replies = await asyncio.gather(self.sync(names[0], **shares), *map(self.sync, names[1:]))
        assert [reply.assignment.decode() for reply in replies] == list(names)

    def group_size(self) -> list[str]:
        group = self.coordinator.group(GROUP)
        return [] if group is None else list(group.members.by_id)

    def heartbeat(self, name: str) -> ErrorCode:
        return self.coordinator.heartbeat(GROUP, MemberIdentity(self.members[name], self.generation))

    async def leave(self, name: str) -> list[ErrorCode]:
        return await self.coordinator.leave(GROUP, [Leaver(self.members[name])])

    async def commit(self, offset: int, name: str | None = None, topic: str = "flights", partition: int = 0) -> None:
        """Commit an offset, as a member or without a group. Raises Refused with the first error code."""
        member = MemberIdentity() if name is None else MemberIdentity(self.members[name], self.generation)
        codes = await self.coordinator.commit(GROUP, member, {(topic, partition): Commit(offset, -1, "note")})
        for code in codes.values():
            if code is not ErrorCode.none:
                raise Refused(code)

    async def commit_in_transaction(
        self, offset: int, producer: ProducerIdAndEpoch = PRODUCER, name: str | None = None, **place: Any
    ) -> None:
        """Commit an offset in a transaction, as a member or not. Raises Refused with the first error code."""
        member = MemberIdentity() if name is None else MemberIdentity(self.members[name], self.generation)
        commits = {(place.get("topic", "flights"), place.get("partition", 0)): Commit(offset, -1, "note")}
        codes = await self.coordinator.commit_in_transaction(GROUP, member, producer, commits, self._verify)
        for code in codes.values():
            if code is not ErrorCode.none:
                raise Refused(code)

    async def _verify(self, place: TopicPartition) -> None:
        self.verified.append(place)
        await asyncio.sleep(0)

    def end(self, producer: ProducerIdAndEpoch = PRODUCER, *, is_commit: bool = True) -> None:
        """End a transaction, as the handler of its marker does."""
        self.topic.mark(self.partition, producer, is_commit=is_commit)
        self.coordinator.transaction_ended(self.partition, producer, is_commit)

    def pending(self) -> set[tuple[str, int]]:
        return set(self.coordinator.pending_of(GROUP))

    def offsets(self) -> dict[tuple[str, int], int]:
        committed = self.coordinator.offsets_of(GROUP)
        return {place: offset.offset for place, offset in committed.items()}

    def code_of(self, ask: Callable[[], object]) -> ErrorCode:
        """Return the code of the refusal, or `none`."""
        try:
            ask()
        except Refused as refusal:
            return refusal.code
        return ErrorCode.none
