"""Groups in the real `__consumer_offsets` topic: created on demand, on a disk that loses power, fills up or fails."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from archive_fixture import ArchiveFixture
from kio.schema.errors import ErrorCode
from quorum_fixture import options_of_one
from replica_fixture import log_directory, no_leader_connections, surroundings_of
from structlog.testing import capture_logs

from cordwood.chaos.sim.disk import SimulatedDisk
from cordwood.cluster.broker.assignments import Assignments
from cordwood.cluster.config.settings import Settings
from cordwood.cluster.coordination.topic import PartitionLeadership, ReplicatedTopic, partition_of
from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.groups.context import GroupContext
from cordwood.cluster.groups.coordinator import Commit, GroupCoordinator, MemberIdentity
from cordwood.cluster.groups.exchange import Join, MemberProtocol, Sync
from cordwood.cluster.groups.settings import BATCH_BYTES_MAX, group_settings, offsets_topic
from cordwood.cluster.metadata.commands import BrokerId, Endpoint, RegisterBroker, UnfenceBroker
from cordwood.cluster.metadata.features import SUPPORTED
from cordwood.cluster.metadata.image import Image
from cordwood.cluster.metadata.quorum import SingleVoter
from cordwood.cluster.proposals.topics import CONSUMER_OFFSETS
from cordwood.replication.assignment import Assignment
from cordwood.replication.log_maintenance import Intervals, LogMaintenance
from cordwood.replication.partition import Partition
from cordwood.replication.replicas import Replicas
from cordwood.replication.syncers import OnSynced, sync_all
from cordwood.replication.waiters import EndOfTickScheduler
from cordwood.storage.control import EndTransactionMarker
from cordwood.storage.errors import DamagedLog
from cordwood.storage.records import Record, encode
from cordwood.storage.types import ProducerIdAndEpoch, TopicPartition

NOW_MS = 1_700_000_000_000
ONE = BrokerId(1)


class DirectSyncer:
    """A syncer that syncs immediately and reports completion in the next event-loop iteration."""

    def sync(self, files: Any, done: OnSynced) -> None:
        asyncio.get_running_loop().call_soon(done, sync_all(files))

    def close(self) -> None: ...


class NodeFixture:
    """The parts of a broker that store groups. `power_cut` loses what was not synced."""

    def __init__(self, **settings: Any) -> None:
        self.settings = Settings(log_dirs=("/data",), offsets_topic_num_partitions=3, **settings)
        self.rng = random.Random(1)
        self.disk = SimulatedDisk(self.rng)
        self.verified: list[TopicPartition] = []

    async def start(self) -> None:
        end_of_tick = EndOfTickScheduler(asyncio.get_running_loop())
        directory = log_directory(self.disk, "/data", lambda _: None, DirectSyncer(), end_of_tick)
        self.voter = SingleVoter.open(self.disk, "/data/metadata", options_of_one(self.rng))
        self.damage: list[DamagedLog] = []
        context = replace(
            surroundings_of(ONE, end_of_tick),
            found_damage=lambda _, damage: self.damage.append(damage),
        )
        self.replicas = Replicas([directory], context)
        log_maintenance = LogMaintenance(self.replicas, lambda: NOW_MS, Intervals(300, 60, 10))
        assignments = Assignments(
            self.replicas,
            log_maintenance.file_removal,
            no_leader_connections().follow,
            self.settings,
            lambda: NOW_MS,
        )
        endpoint = Endpoint("PLAINTEXT", "127.0.0.1", 9092)
        image = await self.voter.propose(RegisterBroker(ONE, UUID(int=1), (endpoint,), levels=SUPPORTED))
        image = await self.voter.propose(UnfenceBroker(ONE, image.brokers[ONE].epoch))
        assignments.begin(image)
        self.voter.subscribe(assignments.follow)
        self.topic = ReplicatedTopic(
            offsets_topic(self.settings), self.voter, self.replicas, self.settings, lambda: NOW_MS, self.rng
        )
        self.groups = GroupCoordinator(
            context=GroupContext(group_settings(self.settings)),
            topic=self.topic,
            topic_exists=lambda _: True,
            wall_clock=lambda: NOW_MS,
            rng=self.rng,
        )
        self.groups.start()

    async def power_cut(self) -> None:
        await self.groups.close()
        self.disk.power_cut()
        await self.start()

    def elect(self, leader: int = ONE, isr: tuple[int, ...] = (ONE,), *, min_isr: int = 1) -> None:
        """Elect another leader, or this one again, for every partition of the topic."""
        for partition in self._partitions():
            partition.assigned(
                Assignment(
                    leader, partition.leader_epoch + 1, partition.leader_epoch + 1, (1, 2), frozenset(isr), min_isr
                )
            )
        self.groups.on_metadata_change(Image(1), Image(2))

    def in_sync(self, *isr: int, min_isr: int = 1) -> None:
        """Change the ISR under the same leader."""
        for partition in self._partitions():
            partition.assigned(Assignment(ONE, partition.leader_epoch, 1_000, (1, 2), frozenset(isr), min_isr))

    def _partitions(self) -> list[Partition]:
        return [partition for partition in self.replicas if partition.topic == CONSUMER_OFFSETS]

    async def commit(self, offset: int) -> dict[tuple[str, int], ErrorCode]:
        return await self.groups.commit("group", MemberIdentity(), {("flights", 0): Commit(offset, -1, "")})

    async def commit_in_transaction(self, offset: int, epoch: int = 0) -> dict[tuple[str, int], ErrorCode]:
        async def verify(place: TopicPartition) -> None:
            self.verified.append(place)

        producer, commits = ProducerIdAndEpoch(7, epoch), {("flights", 0): Commit(offset, -1, "")}
        return await self.groups.commit_in_transaction("group", MemberIdentity(), producer, commits, verify)

    async def end(self, epoch: int = 0) -> None:
        """Commit the transaction of producer 7, as the handler of its marker does."""
        index, producer = partition_of("group", 3), ProducerIdAndEpoch(7, epoch)
        leader = self.replicas.led(CONSUMER_OFFSETS, index).leader
        await leader.committed(
            leader.append_marker(producer, EndTransactionMarker(True, 0), NOW_MS, is_v2=False).end_offset
        )
        self.groups.transaction_ended(index, producer, True)

    async def offset(self) -> int:
        while True:
            try:
                return self.groups.offsets_of("group")["flights", 0].offset
            except Refused as refusal:
                if refusal.code is not ErrorCode.coordinator_load_in_progress:
                    raise
            await asyncio.sleep(0)


async def run_blocking(function: Callable[..., Any], *arguments: Any) -> Any:
    await asyncio.sleep(0)
    return function(*arguments)


async def refusal_of(work: Awaitable[Any]) -> ErrorCode:
    with pytest.raises(Refused) as refused:
        await work
    return refused.value.code


def reported(story: Callable[[NodeFixture], Coroutine[Any, Any, None]], **settings: Any) -> None:
    async def whole() -> None:
        node = NodeFixture(**settings)
        await node.start()
        await story(node)
        await node.groups.close()
        await node.voter.close()

    asyncio.run(asyncio.wait_for(whole(), 30))


def test_the_topic_comes_with_the_first_group() -> None:
    async def story(node: NodeFixture) -> None:
        assert node.topic.partition_count() == 0
        places = await asyncio.gather(*(node.groups.place(name) for name in ("a", "b", "c")))
        assert sorted(places) == [0, 1, 2]
        topic = node.voter.image.topics_by_name[CONSUMER_OFFSETS]
        assert len(topic.partitions) == 3
        assert topic.configs["cleanup.policy"] == "compact"
        assert topic.configs["segment.bytes"] == str(node.settings.offsets_topic_segment_bytes)

    reported(story)


def test_offsets_of_a_transaction_are_transactional_batches_and_survive_a_power_cut() -> None:
    async def story(node: NodeFixture) -> None:
        assert await node.commit(5) == await node.commit_in_transaction(10) == {("flights", 0): ErrorCode.none}
        assert await node.commit_in_transaction(11) == {("flights", 0): ErrorCode.none}
        assert node.verified == [TopicPartition(CONSUMER_OFFSETS, partition_of("group", 3))]
        await node.power_cut()
        assert await node.offset() == 5
        assert node.groups.pending_of("group") == {("flights", 0)}
        await node.end()
        assert await node.offset() == 11
        await node.power_cut()
        assert await node.offset() == 11
        assert node.groups.pending_of("group") == frozenset()

    reported(story)


def test_a_fenced_producer_and_one_whose_transaction_is_over_commit_no_offset() -> None:
    async def story(node: NodeFixture) -> None:
        await node.commit_in_transaction(10, epoch=3)
        assert await refusal_of(node.commit_in_transaction(11, epoch=2)) is ErrorCode.invalid_producer_epoch

        async def verify(_: TopicPartition) -> None:
            await node.end(epoch=3)

        await node.end(epoch=3)
        producer, commits = ProducerIdAndEpoch(7, 3), {("flights", 0): Commit(12, -1, "")}
        late = node.groups.commit_in_transaction("group", MemberIdentity(), producer, commits, verify)
        assert await refusal_of(late) is ErrorCode.invalid_txn_state
        assert await node.offset() == 10

    reported(story)


def test_the_topic_cannot_have_more_replicas_than_there_are_brokers() -> None:
    async def story(node: NodeFixture) -> None:
        with pytest.raises(Refused) as refused:
            await node.groups.place("group")
        assert refused.value.code is ErrorCode.coordinator_not_available
        assert "only 1 broker" in str(refused.value)

    reported(story, offsets_topic_replication_factor=3)


def test_why_there_is_no_topic_yet_is_logged_once() -> None:
    async def story(node: NodeFixture) -> None:
        with capture_logs() as logs:
            for _ in range(5):
                with pytest.raises(Refused):
                    await node.groups.place("group")
        assert [line["event"] for line in logs] == ["coordination.topic_not_created"]

    reported(story, offsets_topic_replication_factor=3)


def test_what_was_committed_survives_a_power_cut() -> None:
    async def story(node: NodeFixture) -> None:
        for offset in range(5):
            assert set((await node.commit(offset)).values()) == {ErrorCode.none}
            await node.power_cut()
            assert await node.offset() == offset

    reported(story)


def test_a_long_log_is_read_back_piece_by_piece() -> None:
    async def story(node: NodeFixture) -> None:
        partition = await node.groups.place("group")
        await node.commit(1)
        record = Record(0, NOW_MS, b"\x00\x63a kind of record that is not known", bytes(300_000))
        leadership = node.topic.leadership(partition)
        assert leadership is not None
        for _ in range(9):
            await node.topic.append(leadership, encode([record]))
        await node.commit(2)
        await node.power_cut()
        assert await node.offset() == 2

    reported(story)


def test_what_was_trimmed_is_not_read_again() -> None:
    async def story(node: NodeFixture) -> None:
        partition = await node.groups.place("group")
        for offset in range(10):
            await node.commit(offset)
        leadership = node.topic.leadership(partition)
        assert leadership is not None
        node.replicas.led(CONSUMER_OFFSETS, partition).leader.delete_records(9)
        assert node.topic.bounds(leadership) == (9, 10)
        await node.groups.close()
        node.groups = GroupCoordinator(
            context=GroupContext(group_settings(node.settings)),
            topic=node.topic,
            topic_exists=lambda _: True,
            wall_clock=lambda: NOW_MS,
            rng=node.rng,
        )
        node.groups.start()
        assert await node.offset() == 9

    reported(story)


def test_a_coordinator_of_an_earlier_leadership_writes_nothing() -> None:
    async def story(node: NodeFixture) -> None:
        leadership = node.topic.leadership(await node.groups.place("group"))
        assert leadership is not None
        node.elect()
        batch = encode([Record(0, NOW_MS, b"key", b"value")])
        assert await refusal_of(node.topic.append(leadership, batch)) is ErrorCode.not_coordinator
        assert [partition.log.log_end for partition in node._partitions()] == [0, 0, 0]

    reported(story)


def test_a_full_disk_takes_no_commits_until_there_is_room() -> None:
    async def story(node: NodeFixture) -> None:
        await node.commit(1)
        room = node.disk.capacity_bytes
        node.disk.capacity_bytes = 0
        leadership = node.topic.leadership(await node.groups.place("group"))
        assert leadership is not None
        large = encode([Record(0, NOW_MS, b"key", bytes(1 << 20))])
        with pytest.raises(Refused) as refused:
            await node.topic.append(leadership, large)
        assert refused.value.code is ErrorCode.coordinator_not_available
        node.disk.capacity_bytes = room
        await node.commit(2)
        assert await node.offset() == 2

    reported(story)


def test_a_group_that_is_too_large_for_a_record_is_refused() -> None:
    async def story(node: NodeFixture) -> None:
        leadership = node.topic.leadership(await node.groups.place("group"))
        assert leadership is not None
        with pytest.raises(Refused) as refused:
            await node.topic.append(leadership, encode([Record(0, NOW_MS, b"key", bytes(BATCH_BYTES_MAX))]))
        assert refused.value.code is ErrorCode.message_too_large

    reported(story)


@pytest.mark.parametrize(
    ("size", "code"),
    [
        (BATCH_BYTES_MAX - 1000, ErrorCode.none),
        (BATCH_BYTES_MAX - 8, ErrorCode.unknown_server_error),
        (2 * BATCH_BYTES_MAX, ErrorCode.unknown_server_error),
    ],
)
def test_an_assignment_of_many_megabytes_is_refused_as_in_kafka(size: int, code: ErrorCode) -> None:
    async def story(node: NodeFixture) -> None:
        join = Join("", "connect", (MemberProtocol("sessioned", b"metadata"),), 10_000, 60_000, must_know_id=False)
        member = await node.groups.join("group", join)
        sync = Sync(member.member_id, member.generation, assignments={member.member_id: bytes(size)})
        assert (await node.groups.sync("group", sync)).code is code
        # What is too large is not encoded at all, and the group goes on.
        again = await node.groups.join("group", replace(join, member_id=member.member_id))
        assert again.code is ErrorCode.none

    reported(story)


def test_a_partition_that_is_elsewhere_is_not_served() -> None:
    async def story(node: NodeFixture) -> None:
        await node.groups.place("group")
        assert node.topic.leadership(7) is None
        for leadership in (PartitionLeadership(7, 0), PartitionLeadership(0, 1)):
            with pytest.raises(Refused) as refused:
                node.topic.bounds(leadership)
            assert refused.value.code is ErrorCode.not_coordinator

    reported(story)


def test_another_leaders_groups_are_left_to_it() -> None:
    async def story(node: NodeFixture) -> None:
        await node.commit(1)
        leadership = node.topic.leadership(await node.groups.place("group"))
        assert leadership is not None
        batch = encode([Record(0, NOW_MS, b"key", b"of the leader before")])
        node.elect(2)
        assert await refusal_of(node.commit(2)) is ErrorCode.not_coordinator
        assert await refusal_of(node.topic.append(leadership, batch)) is ErrorCode.not_coordinator
        node.elect(ONE)
        assert await refusal_of(node.topic.append(leadership, batch)) is ErrorCode.not_coordinator
        assert await node.offset() == 1
        await node.commit(2)

    reported(story)


def test_a_commit_under_way_is_refused_when_another_leads() -> None:
    async def story(node: NodeFixture) -> None:
        await node.commit(1)
        node.in_sync(1, 2)
        commit = asyncio.ensure_future(node.commit(2))
        await asyncio.sleep(0)
        node.elect(2)
        assert await refusal_of(commit) is ErrorCode.not_coordinator

    reported(story)


def test_a_new_leader_serves_what_it_found_once_that_is_committed() -> None:
    async def story(node: NodeFixture) -> None:
        await node.commit(1)
        node.in_sync(1, 2)
        commit = asyncio.ensure_future(node.commit(2))
        await asyncio.sleep(0)
        node.elect(ONE, isr=(1, 2))
        assert await refusal_of(commit) is ErrorCode.not_coordinator
        for _ in range(100):
            await asyncio.sleep(0)
        assert await refusal_of(node.commit(3)) is ErrorCode.coordinator_load_in_progress
        node.in_sync(1)
        assert await node.offset() == 2

    reported(story)


def test_with_too_few_replicas_in_sync_nothing_is_taken() -> None:
    async def story(node: NodeFixture) -> None:
        await node.commit(1)
        node.in_sync(1, min_isr=2)
        assert await refusal_of(node.commit(2)) is ErrorCode.coordinator_not_available
        assert await node.offset() == 1
        node.in_sync(1, min_isr=1)
        await node.commit(2)
        assert await node.offset() == 2

    reported(story)


def test_damage_that_is_found_while_loading_is_reported() -> None:
    async def story(node: NodeFixture) -> None:
        for offset in range(5):
            await node.commit(offset)
        (segment,) = (path for path in node.disk.files() if path.endswith(".log") and node.disk.content(path)[:1])
        node.disk.flip(segment, 100, 3)
        node.elect(ONE)
        with pytest.raises(Refused) as refused:
            await node.offset()
        assert refused.value.code is ErrorCode.coordinator_not_available
        assert [damage.path for damage in node.damage] == [segment]

    reported(story)


def test_offsets_are_found_that_only_the_archive_has() -> None:
    """A coordinator may lead a log that begins at the archive's end (archive rule 5)."""

    async def story(node: NodeFixture) -> None:
        for offset in range(20):
            await node.commit(offset)
        partition = node.replicas.led(CONSUMER_OFFSETS, partition_of("group", 3))
        archive, log = ArchiveFixture(), partition.log
        log.roll_if_active(log.segments[-1])
        end = archive.archive(partition).end
        assert end == log.log_end
        log.truncate_fully(end, await archive.reads.beginning(partition, 0, end))
        partition.context = replace(partition.context, archive=archive.reads)
        node.elect()
        assert (log.log_start, log.local_start) == (0, end)
        assert await node.offset() == 19

    reported(story)
