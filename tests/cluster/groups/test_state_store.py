"""Group state in `__consumer_offsets`: background load, compaction, damage, deletion and expiration."""

import asyncio
from dataclasses import replace
from uuid import UUID

import pytest
from coordinator_fixture import GROUP, CoordinatorFixture
from kio.schema.errors import ErrorCode
from virtual_time import run

from cordwood.cluster.coordination.shard_store import LOAD_AGAIN_S
from cordwood.cluster.coordination.topic import PartitionLeadership, partition_of
from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.groups.classic.rebalance import State
from cordwood.cluster.groups.context import GroupContext
from cordwood.cluster.groups.coordinator import Commit, MemberIdentity
from cordwood.cluster.groups.exchange import Join, MemberProtocol
from cordwood.cluster.groups.formats import decode_offset_key
from cordwood.cluster.groups.removal import FORGET_AGAIN_S
from cordwood.cluster.groups.shard import UNSAVED_GROUPS_MAX, Shard
from cordwood.cluster.metadata.image import Image, TopicImage
from cordwood.storage.types import TopicPartition

DAY_S = 24 * 3600


def keys_in_log(groups: CoordinatorFixture) -> list[tuple[str, bool]]:
    """Return each record's topic, or "the group", and whether the record is a tombstone."""
    reported = []
    for record in groups.topic.records(groups.partition):
        assert record.key is not None
        key = decode_offset_key(record.key)
        reported.append(("the group" if key is None else key.topic, record.value is None))
    return reported


@pytest.mark.parametrize(
    ("group_id", "partition"),
    [("", 0), ("a", 47), ("hello", 22), ("Hello World", 26), ("ü", 2), ("🪵", 11), ("polygenelubricants", 0)],
)
def test_a_group_is_kept_where_kafka_would_keep_it(group_id: str, partition: int) -> None:
    assert partition_of(group_id, 50) == partition


def test_groups_are_loaded_in_the_background() -> None:
    async def story() -> None:
        groups = CoordinatorFixture()
        await groups.stabilize("anna")
        await groups.commit(5, "anna")
        await groups.coordinator.close()
        groups.open()
        assert groups.code_of(groups.offsets) is ErrorCode.coordinator_load_in_progress
        assert groups.code_of(groups.coordinator.groups) is ErrorCode.coordinator_load_in_progress
        assert groups.heartbeat("anna") is ErrorCode.none
        await groups.until(lambda: groups.code_of(groups.coordinator.groups) is ErrorCode.none)
        assert groups.offsets() == {("flights", 0): 5}
        assert [group.group_id for group in groups.coordinator.groups()] == [GROUP]

    run(story())


def test_asking_again_and_again_loads_once() -> None:
    async def story() -> None:
        groups = CoordinatorFixture()
        await groups.commit(5)
        await groups.coordinator.close()
        groups.open()
        for _ in range(10):
            groups.code_of(groups.offsets)
        await groups.until(lambda: groups.code_of(groups.offsets) is ErrorCode.none)
        assert groups.topic.reads == 1

    run(story())


def test_a_partition_on_a_slow_disk_keeps_no_other_one_waiting() -> None:
    async def story() -> None:
        groups = CoordinatorFixture()
        count = groups.topic.partition_count
        by_partition = {partition_of(f"group {number}", count): f"group {number}" for number in range(20)}
        for group_id in by_partition.values():
            await groups.coordinator.commit(group_id, MemberIdentity(), {("flights", 0): Commit(5, -1, "")})
        await groups.coordinator.close()
        groups.topic.slow_partition = 0
        groups.topic.read_gate.clear()
        groups.open()
        slow = by_partition.pop(0)

        def ask_elsewhere() -> None:
            for group_id in by_partition.values():
                assert groups.coordinator.offsets_of(group_id)

        await groups.until(lambda: groups.code_of(ask_elsewhere) is ErrorCode.none)
        assert groups.code_of(lambda: groups.coordinator.offsets_of(slow)) is ErrorCode.coordinator_load_in_progress
        groups.topic.read_gate.set()
        await groups.loaded()
        assert groups.coordinator.offsets_of(slow)

    run(story())


def test_partitions_without_records_cost_nothing_at_start() -> None:
    async def story() -> None:
        groups = CoordinatorFixture()
        await groups.coordinator.place(GROUP)
        await groups.restart()
        assert groups.topic.reads == 0

    run(story())


def test_a_damaged_partition_is_not_guessed_at() -> None:
    async def story() -> None:
        groups = CoordinatorFixture()
        await groups.commit(5)
        groups.topic.damaged.add(groups.partition)
        await groups.restart()
        assert groups.code_of(groups.offsets) is ErrorCode.coordinator_not_available
        assert groups.code_of(groups.coordinator.groups) is ErrorCode.coordinator_not_available

    run(story())


def test_a_damaged_partition_is_served_once_it_is_repaired() -> None:
    async def story() -> None:
        groups = CoordinatorFixture()
        await groups.commit(5)
        groups.topic.damaged.add(groups.partition)
        await groups.restart()
        await asyncio.sleep(2 * LOAD_AGAIN_S)
        assert groups.code_of(groups.offsets) is ErrorCode.coordinator_not_available
        groups.topic.damaged.clear()
        await asyncio.sleep(2 * LOAD_AGAIN_S)
        assert groups.offsets() == {("flights", 0): 5}
        assert [group.group_id for group in groups.coordinator.groups()] == [GROUP]

    run(story())


def test_a_partition_that_was_compacted_has_lost_nothing() -> None:
    async def story() -> None:
        groups = CoordinatorFixture()
        await groups.stabilize("anna")
        await groups.commit(7, "anna", "planes")
        for offset in range(40):
            member = MemberIdentity(groups.members["anna"], groups.generation)
            commits = {("flights", partition): Commit(offset, -1, "") for partition in range(100)}
            await groups.coordinator.commit(GROUP, member, commits)
        groups.compact()
        assert len(keys_in_log(groups)) == 1 + 1 + 100
        before = groups.offsets()
        await groups.restart()
        assert groups.offsets() == before
        assert groups.heartbeat("anna") is ErrorCode.none

    run(story())


def test_a_commit_under_way_survives_a_compaction() -> None:
    async def story() -> None:
        groups = CoordinatorFixture()
        await groups.commit(1)
        groups.topic.hold()
        late = asyncio.ensure_future(groups.commit(2))
        new = asyncio.ensure_future(groups.commit(9, topic="planes"))
        await asyncio.sleep(0)
        groups.compact()
        groups.topic.release()
        await asyncio.gather(late, new)
        await groups.restart()
        assert groups.offsets() == {("flights", 0): 2, ("planes", 0): 9}

    run(story())


def test_a_deleted_group_is_gone_for_good() -> None:
    async def story() -> None:
        groups = CoordinatorFixture()
        await groups.stabilize("anna")
        await groups.commit(5, "anna")
        with pytest.raises(Refused) as refused:
            await groups.coordinator.delete_group(GROUP)
        assert refused.value.code is ErrorCode.non_empty_group
        await groups.leave("anna")
        await groups.coordinator.delete_group(GROUP)
        assert groups.coordinator.group(GROUP) is None
        assert keys_in_log(groups)[-2:] == [("the group", True), ("flights", True)]
        await groups.restart()
        assert groups.coordinator.group(GROUP) is None
        assert groups.offsets() == {}

    run(story())


def test_a_group_has_a_record_until_its_tombstone_is_in_the_log() -> None:
    shard = Shard(PartitionLeadership(0, 1), GroupContext())
    first, second = (shard.save(GROUP, is_tombstone=False) for _ in range(2))
    shard.saved(GROUP, second)
    shard.saved(GROUP, first)
    gone = shard.save(GROUP, is_tombstone=True)
    assert shard.is_saved(GROUP)
    shard.not_saved(GROUP, gone)
    assert shard.is_saved(GROUP), "the log still has its record"
    shard.saved(GROUP, shard.save(GROUP, is_tombstone=True))
    assert not shard.is_saved(GROUP)


def test_a_group_that_could_not_be_deleted_is_still_there() -> None:
    async def story() -> None:
        groups = CoordinatorFixture()
        await groups.commit(5)
        groups.topic.refusal = ErrorCode.coordinator_not_available
        with pytest.raises(Refused):
            await groups.coordinator.delete_group(GROUP)
        assert groups.offsets() == {("flights", 0): 5}
        groups.topic.refusal = None
        await groups.coordinator.delete_group(GROUP)
        assert groups.coordinator.group(GROUP) is None

    run(story())


def test_who_joins_while_a_group_is_deleted_is_in_a_new_one() -> None:
    async def story() -> None:
        groups = CoordinatorFixture()
        await groups.stabilize("anna")
        await groups.leave("anna")
        groups.topic.hold()
        deletion = asyncio.ensure_future(groups.coordinator.delete_group(GROUP))
        await asyncio.sleep(0)
        assert (await groups.join("ben")).generation == 1
        groups.topic.release()
        await deletion
        assert (await groups.sync("ben", ben=b"all")).assignment == b"all"
        await groups.restart()
        assert groups.heartbeat("ben") is ErrorCode.none

    run(story())


def test_offsets_are_deleted_one_by_one() -> None:
    async def story() -> None:
        groups = CoordinatorFixture()
        await groups.commit(5)
        await groups.commit(6, topic="planes")
        places = [TopicPartition("flights", partition) for partition in range(2)]
        codes = await groups.coordinator.delete_offsets(GROUP, places)
        assert set(codes.values()) == {ErrorCode.none}
        assert groups.offsets() == {("planes", 0): 6}
        await groups.restart()
        assert groups.offsets() == {("planes", 0): 6}

    run(story())


def test_offsets_that_are_read_are_not_deleted() -> None:
    async def story() -> None:
        groups = CoordinatorFixture()
        await groups.stabilize("anna")
        await groups.commit(5, "anna")
        codes = await groups.coordinator.delete_offsets(GROUP, [TopicPartition("flights", 0)])
        assert codes == {("flights", 0): ErrorCode.group_subscribed_to_topic}
        assert groups.offsets() == {("flights", 0): 5}

    run(story())


def test_a_deletion_of_offsets_that_there_are_not_writes_nothing() -> None:
    async def story() -> None:
        groups = CoordinatorFixture()
        await groups.commit(5)
        appends = groups.topic.appends
        assert await groups.coordinator.delete_offsets(GROUP, [TopicPartition("flights", 1)]) == {
            ("flights", 1): ErrorCode.none
        }
        assert groups.topic.appends == appends

    run(story())


def test_a_group_that_members_have_joined_during_a_removal_that_failed_stays() -> None:
    async def story() -> None:
        groups = CoordinatorFixture()
        await groups.commit(5)
        groups.topic.hold()
        removal = asyncio.ensure_future(groups.coordinator.delete_group(GROUP))
        await asyncio.sleep(0.001)
        joining = asyncio.ensure_future(groups.join("anna"))
        await asyncio.sleep(0.001)
        assert len(groups.group_size()) == 1
        groups.topic.fail_oldest(groups.partition)
        with pytest.raises(Refused):
            await removal
        assert len(groups.group_size()) == 1
        groups.topic.release()
        assert (await joining).code is ErrorCode.none

    run(story())


def test_a_topics_offsets_go_with_it() -> None:
    async def story() -> None:
        groups = CoordinatorFixture()
        await groups.commit(5)
        await groups.commit(6, topic="planes")
        topic = TopicImage(UUID(int=1), "flights", ())
        before = Image(1, topics_by_name={"flights": topic}, topics_by_id={topic.id: topic})
        groups.coordinator.on_metadata_change(before, Image(2))
        await groups.until(lambda: groups.offsets() == {("planes", 0): 6})

    run(story())


def test_offsets_of_a_deleted_topic_go_once_they_can_be_removed() -> None:
    """A topic that is created again with the name begins without them, and keeps what is committed for it."""

    async def story() -> None:
        groups = CoordinatorFixture()
        await groups.commit(5)
        await groups.commit(7, partition=1)
        groups.topic.refusal = ErrorCode.coordinator_not_available
        topic = TopicImage(UUID(int=1), "flights", ())
        before = Image(1, topics_by_name={"flights": topic}, topics_by_id={topic.id: topic})
        groups.coordinator.on_metadata_change(before, Image(2))
        await asyncio.sleep(1)
        assert len(groups.offsets()) == 2
        groups.topic.refusal = None
        await groups.commit(1, partition=1)
        await asyncio.sleep(2 * FORGET_AGAIN_S)
        await groups.restart()
        assert groups.offsets() == {("flights", 1): 1}

    run(story())


def test_a_partition_that_takes_no_records_delays_no_other_one_in_forgetting_a_topic() -> None:
    async def story() -> None:
        groups = CoordinatorFixture()
        other = next(name for name in map(str, range(100)) if partition_of(name, 4) != groups.partition)
        for group_id in (other, GROUP):
            await groups.coordinator.commit(group_id, MemberIdentity(), {("flights", 0): Commit(5, -1, "")})
        groups.topic.accepts = 0
        topic = TopicImage(UUID(int=1), "flights", ())
        before = Image(1, topics_by_name={"flights": topic}, topics_by_id={topic.id: topic})
        groups.coordinator.on_metadata_change(before, Image(2))
        await asyncio.sleep(1)
        groups.topic.partitions[partition_of(other, 4)].leader = None
        groups.topic.accepts = None
        await asyncio.sleep(2 * FORGET_AGAIN_S)
        assert not groups.offsets()

    run(story())


def test_offsets_of_topics_that_went_while_the_broker_was_away_go_at_its_start() -> None:
    async def story() -> None:
        groups = CoordinatorFixture()
        await groups.commit(5)
        await groups.commit(6, topic="planes")
        groups.topics.remove("flights")
        await groups.restart()
        await groups.until(lambda: groups.offsets() == {("planes", 0): 6})
        assert keys_in_log(groups)[-1] == ("flights", True)

    run(story())


def test_a_partition_that_takes_no_records_keeps_no_other_one_from_expiring() -> None:
    async def story() -> None:
        groups = CoordinatorFixture(offsets_retention_ms=DAY_S * 1000)
        other = next(name for name in map(str, range(100)) if partition_of(name, 4) != groups.partition)
        for group_id in (other, GROUP):
            await groups.coordinator.commit(group_id, MemberIdentity(), {("flights", 0): Commit(5, -1, "")})
        groups.topic.partitions[partition_of(other, 4)].leader = None
        await asyncio.sleep(2 * DAY_S)
        assert not groups.offsets()

    run(story())


def test_an_empty_group_expires_with_its_offsets() -> None:
    async def story() -> None:
        groups = CoordinatorFixture(offsets_retention_ms=DAY_S * 1000)
        await groups.stabilize("anna")
        await groups.commit(5, "anna")
        await groups.leave("anna")
        await asyncio.sleep(DAY_S - 700)
        assert groups.offsets() == {("flights", 0): 5}
        await groups.restart()
        await asyncio.sleep(1400)
        assert groups.coordinator.group(GROUP) is None
        await groups.restart()
        assert list(groups.coordinator.groups()) == []

    run(story())


def test_a_group_with_members_stays() -> None:
    async def story() -> None:
        groups = CoordinatorFixture(offsets_retention_ms=60_000, expiry_check_interval_ms=10_000)
        await groups.stabilize("anna")
        await groups.commit(5, "anna")
        for _ in range(60):
            await asyncio.sleep(5)
            assert groups.heartbeat("anna") is ErrorCode.none
        assert groups.offsets() == {("flights", 0): 5}

    run(story())


def test_an_empty_group_without_offsets_goes_at_the_next_look() -> None:
    async def story() -> None:
        groups = CoordinatorFixture(expiry_check_interval_ms=10_000)
        await groups.stabilize("anna")
        await groups.leave("anna")
        await asyncio.sleep(0)
        assert groups.coordinator.group(GROUP) is not None
        await asyncio.sleep(21)
        assert groups.coordinator.group(GROUP) is None
        assert keys_in_log(groups)[-1] == ("the group", True)

    run(story())


def test_a_first_commit_under_way_keeps_its_group() -> None:
    async def story() -> None:
        groups = CoordinatorFixture(expiry_check_interval_ms=1_000)
        await groups.coordinator.place(GROUP)
        groups.topic.hold()
        commit = asyncio.ensure_future(groups.commit(5))
        await asyncio.sleep(5)
        groups.topic.release()
        await commit
        assert groups.coordinator.group(GROUP) is not None

    run(story())


def test_a_member_that_was_promised_an_id_finds_its_group() -> None:
    """The check for expired groups comes between the promise and the join with that id."""

    async def story() -> None:
        groups = CoordinatorFixture(expiry_check_interval_ms=1_000)
        member = Join(
            "", "consumer", (MemberProtocol("range", b""),), session_timeout_ms=10_000, rebalance_timeout_ms=1
        )
        promised = await groups.coordinator.join(GROUP, member)
        assert promised.code is ErrorCode.member_id_required
        await asyncio.sleep(3)
        joined = await groups.coordinator.join(GROUP, replace(member, member_id=promised.member_id))
        assert joined.code is ErrorCode.none

    run(story())


def test_a_group_that_came_meanwhile_does_not_expire_in_place_of_a_removed_one() -> None:
    async def story() -> None:
        groups = CoordinatorFixture(offsets_retention_ms=1_000, expiry_check_interval_ms=DAY_S * 1000)
        count = groups.topic.partition_count
        other = next(name for name in map(str, range(100)) if partition_of(name, count) == groups.partition)
        await groups.coordinator.commit(other, MemberIdentity(), {TopicPartition("flights", 0): Commit(5, -1, "")})
        await groups.stabilize("anna")
        await groups.leave("anna")
        await asyncio.sleep(2)
        waiting = groups.topic.partitions[groups.partition].waiting
        groups.topic.hold()
        expiring = asyncio.ensure_future(groups.coordinator._removal._expire_all())
        await groups.until(lambda: len(waiting) == 1)
        deleting = asyncio.ensure_future(groups.coordinator.delete_group(GROUP))
        await groups.until(lambda: groups.coordinator.group(GROUP) is None)
        joined = await groups.join("ben")
        assert joined.code is ErrorCode.none
        groups.topic.release()
        await asyncio.gather(expiring, deleting)
        assert groups.group_size() == [joined.member_id]

    run(story())


def test_a_failed_removal_leaves_no_record_of_a_group_to_remove() -> None:
    async def story() -> None:
        groups = CoordinatorFixture()
        await groups.commit(5)
        groups.topic.refusal = ErrorCode.coordinator_not_available
        with pytest.raises(Refused):
            await groups.coordinator.delete_group(GROUP)
        groups.topic.refusal = None
        await groups.coordinator.delete_offsets(GROUP, [TopicPartition("flights", 0)])
        await groups.coordinator._removal._expire_all()
        assert groups.coordinator.group(GROUP) is None
        assert keys_in_log(groups) == [("flights", False), ("flights", True)], "there never was a record of the group"

    run(story())


def test_promises_to_groups_without_members_are_limited() -> None:
    kept = Shard(PartitionLeadership(0, 0), GroupContext())
    names = [f"group {number}" for number in range(UNSAVED_GROUPS_MAX + 2)]
    assert not any(kept.note_unsaved(kept.open(name)) for name in names[:UNSAVED_GROUPS_MAX])
    assert kept.note_unsaved(kept.open(names[-2])) == names[:1]
    kept.forget(names[0])
    assert kept.note_unsaved(kept.open(names[-1])) == names[1:2]


def test_a_group_that_became_empty_is_described_as_such() -> None:
    async def story() -> None:
        groups = CoordinatorFixture()
        await groups.stabilize("anna")
        await groups.leave("anna")
        group = groups.coordinator.group(GROUP)
        assert group is not None
        assert (group.state, group.emptied_ms) == (State.EMPTY, groups.wall_clock())

    run(story())


def test_a_write_that_fails_takes_nothing_newer_back() -> None:
    async def story() -> None:
        groups = CoordinatorFixture()
        await groups.stabilize("anna")
        groups.topic.hold()
        leaving = asyncio.ensure_future(groups.leave("anna"))
        partition = groups.topic.partitions[groups.partition]
        await groups.until(lambda: len(partition.waiting) == 1)
        groups.members.clear()
        await groups.join("ben")
        syncing = asyncio.ensure_future(groups.sync("ben", ben=b"ben"))
        await groups.until(lambda: len(partition.waiting) == 2)
        partition.waiting[0].set_exception(Refused(ErrorCode.request_timed_out))
        with pytest.raises(Refused):
            await leaving
        groups.topic.release()
        assert (await syncing).assignment == b"ben"
        groups.compact()
        await groups.restart()
        assert groups.heartbeat("ben") is ErrorCode.none

    run(story())
