"""The handlers of the group APIs over a coordinator in memory: requests and responses as bytes, in any version."""

import asyncio
from collections.abc import Coroutine, Iterable
from datetime import timedelta
from typing import Any, cast
from uuid import UUID

from admin_fixture import AdminFixture
from kio.schema.errors import ErrorCode
from offsets_in_memory import FIRST, OffsetsInMemory
from share_states_in_memory import StatesInMemory

from cordwood.cluster.coordination.shard import Readiness
from cordwood.cluster.coordination.topic import partition_of
from cordwood.cluster.groups.context import GroupContext, topics_in
from cordwood.cluster.groups.coordinator import GroupCoordinator
from cordwood.cluster.groups.settings import group_settings
from cordwood.cluster.kafka.handlers import join_group, offset_commit, offset_fetch, sync_group, txn_offset_commit
from cordwood.cluster.kafka.leader_offsets import LeaderOffsets
from cordwood.cluster.kafka.transaction_verifier import TransactionVerifier, Verification
from cordwood.cluster.metadata.commands import BrokerId, CreateTopic
from cordwood.cluster.proposals.topics import CONSUMER_OFFSETS
from cordwood.storage.types import ProducerIdAndEpoch, TopicPartition

GROUP = "group"
OFFSETS_PARTITIONS = 4
NOW_MS = 1_700_000_000_000


FLIGHTS_ID = UUID(int=2)
NEWEST_WITH_NAMES = 9
"""The last version of OffsetCommit and OffsetFetch that names topics by name."""


class ScriptedVerifier:
    """The transaction coordinator's answer to every verification, as the test sets it."""

    def __init__(self) -> None:
        self.code = ErrorCode.none
        self.asked: list[Verification] = []

    async def verify(self, verification: Verification) -> dict[TopicPartition, ErrorCode]:
        self.asked.append(verification)
        return dict.fromkeys(verification.partitions, self.code)


class GroupsFixture(AdminFixture):
    """A broker with a topic `flights` of three partitions, and its group coordinator."""

    def __init__(self, brokers: int = 1, **settings: Any) -> None:
        super().__init__(brokers, **settings)
        for number, (name, partitions) in enumerate(((CONSUMER_OFFSETS, OFFSETS_PARTITIONS), ("flights", 3))):
            self.propose(CreateTopic(UUID(int=number + 1), name, ((BrokerId(1),),) * partitions))
        self.topic = OffsetsInMemory(OFFSETS_PARTITIONS)
        self.share_states = StatesInMemory()
        self.end_offsets: dict[tuple[str, int], int] = {}
        """The high watermarks of partitions whose leader answers."""
        self.services.leader_offsets = cast(LeaderOffsets, self)
        self.verifier = ScriptedVerifier()
        self.services.verifier = cast(TransactionVerifier, self.verifier)
        self.runner.run(self._open())

    async def _open(self) -> None:
        self.topic.create()
        self.services.groups = GroupCoordinator(
            context=GroupContext(
                group_settings(self.settings), lambda: topics_in(self.image), self.services.group_configs
            ),
            topic=self.topic.seen_by(FIRST),
            topic_exists=lambda name: name in self.image.topics_by_name,
            wall_clock=lambda: NOW_MS,
            rng=self.services.rng,
            persister=self.share_states,
        )
        self.services.groups.start()

    def follow_metadata(self) -> None:
        """Tell the coordinator of changes of the metadata from now on."""
        self.voter.subscribe(self.services.groups.on_metadata_change)

    async def known(self, partitions: Iterable[tuple[str, int]], *_: int) -> dict[tuple[str, int], int]:
        """Return end offsets, as LeaderOffsets does."""
        return {place: self.end_offsets[place] for place in partitions if place in self.end_offsets}

    def restart(self) -> None:
        """Restart the coordinator without waiting for its background load."""
        self.runner.run(self.services.groups.close())
        self.runner.run(self._open())

    def join(self, version: int = 9, **fields: Any) -> Any:
        """Send a JoinGroup: with a member id if `fields` has one, otherwise as a new member."""
        request = {
            "group_id": GROUP,
            "session_timeout": timedelta(seconds=10),
            "rebalance_timeout": timedelta(seconds=60),
            "protocol_type": "consumer",
            "protocols": ({"name": "range", "metadata": b"about range"},),
        }
        return self.ask(join_group, version, **{**request, **fields})

    def sync(self, member_id: str, version: int = 5, generation: int = 1, **fields: Any) -> Any:
        """Send the leader's SyncGroup, which assigns everything to itself."""
        request = {
            "group_id": GROUP,
            "generation_id": generation,
            "member_id": member_id,
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": ({"member_id": member_id, "assignment": b"everything"},),
        }
        return self.ask(sync_group, version, **{**request, **fields})

    def member(self) -> str:
        """Make a stable group of one member and return the member's id."""
        member_id: str = self.join().member_id
        assert self.join(member_id=member_id).error_code is ErrorCode.none
        assert self.sync(member_id).error_code is ErrorCode.none
        return member_id

    def commit(self, offset: int, version: int = NEWEST_WITH_NAMES, partition: int = 0, **fields: Any) -> ErrorCode:
        request = {
            "group_id": GROUP,
            "generation_id_or_member_epoch": -1,
            "topics": (
                {
                    "name": fields.pop("topic", "flights"),
                    "topic_id": fields.pop("topic_id", FLIGHTS_ID),
                    "partitions": (
                        {
                            "partition_index": partition,
                            "committed_offset": offset,
                            "committed_leader_epoch": 3,
                            "committed_metadata": fields.pop("metadata", "note"),
                        },
                    ),
                },
            ),
        }
        response = self.ask(offset_commit, version, **{**request, **fields})
        code: ErrorCode = response.topics[0].partitions[0].error_code
        return code

    def commit_in_transaction(self, offset: int, version: int = 5, partition: int = 0, **fields: Any) -> ErrorCode:
        """Commit an offset in a transaction of producer 7."""
        row = {"partition_index": partition, "committed_offset": offset, "committed_leader_epoch": 3}
        row["committed_metadata"] = fields.pop("metadata", "note")
        request = {
            "transactional_id": "t",
            "group_id": GROUP,
            "producer_id": 7,
            "producer_epoch": 0,
            "generation_id": -1,
            "member_id": "",
            "topics": ({"name": fields.pop("topic", "flights"), "partitions": (row,)},),
        }
        response = self.ask(txn_offset_commit, version, **{**request, **fields})
        code: ErrorCode = response.topics[0].partitions[0].error_code
        return code

    def end_transaction(self) -> None:
        """Commit the transaction of producer 7."""
        self.run(self._end(partition_of(GROUP, OFFSETS_PARTITIONS), ProducerIdAndEpoch(7, 0)))

    async def _end(self, partition: int, producer: ProducerIdAndEpoch) -> None:
        self.topic.mark(partition, producer, is_commit=True)
        self.services.groups.transaction_ended(partition, producer, True)

    def fetch(self, version: int, *partitions: int, group_id: str = GROUP) -> Any:
        """Fetch the group's stable offsets in any version; of all partitions if none is named."""
        flights = {"name": "flights", "topic_id": FLIGHTS_ID, "partition_indexes": partitions}
        topics = (flights,) if partitions else None
        if version >= 8:
            group = {"group_id": group_id, "topics": topics}
            return self.ask(offset_fetch, version, groups=(group,), require_stable=True).groups[0]
        return self.ask(offset_fetch, version, group_id=group_id, topics=topics, require_stable=True)

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.runner.run(work)

    def until_loaded(self) -> None:
        self.runner.run(self._until_loaded())

    async def _until_loaded(self) -> None:
        async with asyncio.timeout(10):
            shards = self.services.groups._state_store._shards
            while any(shard.readiness is Readiness.LOADING for shard in shards.values()):
                await asyncio.sleep(0)

    def close(self) -> None:
        self.runner.run(self.services.groups.close())
        super().close()
