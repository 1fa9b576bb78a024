"""Coordinator failover: the new leader of a group's partition has all committed groups and offsets."""

import asyncio
from collections.abc import Awaitable
from uuid import UUID

import pytest
from coordinator_fixture import GROUP, CoordinatorFixture
from kio.schema.errors import ErrorCode
from virtual_time import run

from cordwood.cluster.coordination.topic import partition_of
from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.groups.coordinator import Commit, MemberIdentity
from cordwood.cluster.metadata.image import Image, TopicImage


async def refusal_of(work: Awaitable[object]) -> ErrorCode:
    with pytest.raises(Refused) as refused:
        await work
    return refused.value.code


async def under_way(groups: CoordinatorFixture, work: Awaitable[object], appends: int = 1) -> "asyncio.Future[object]":
    """Start a request and return it once it has made `appends` appends that are not committed yet."""
    before = groups.topic.appends
    task = asyncio.ensure_future(work)
    await groups.until(lambda: groups.topic.appends == before + appends)
    return task


def test_members_carry_on_with_the_next_coordinator() -> None:
    async def story() -> None:
        groups = CoordinatorFixture(brokers=2)
        await groups.stabilize("anna", "ben")
        await groups.commit(42, "anna")
        groups.elect(2)
        assert groups.heartbeat("anna") is groups.heartbeat("ben") is ErrorCode.none
        await groups.loaded()
        assert groups.heartbeat("anna") is groups.heartbeat("ben") is ErrorCode.none
        assert (await groups.sync("ben")).assignment == b"ben"
        assert groups.offsets() == {("flights", 0): 42}
        await groups.commit(43, "anna")
        stale = MemberIdentity(groups.members["anna"], groups.generation - 1)
        commits = {("flights", 0): Commit(1, -1, "")}
        assert await refusal_of(groups.coordinator.commit(GROUP, stale, commits)) is ErrorCode.illegal_generation
        assert groups.offsets() == {("flights", 0): 43}

    run(story())


def test_a_deposed_coordinator_sends_everyone_away() -> None:
    async def story() -> None:
        groups = CoordinatorFixture(brokers=2)
        await groups.stabilize("anna")
        groups.elect(2)
        groups.leader = 1
        assert groups.code_of(lambda: groups.heartbeat("anna")) is ErrorCode.not_coordinator
        assert groups.code_of(groups.offsets) is ErrorCode.not_coordinator
        assert await refusal_of(groups.join("anna")) is ErrorCode.not_coordinator
        assert await refusal_of(groups.sync("anna")) is ErrorCode.not_coordinator
        assert await refusal_of(groups.leave("anna")) is ErrorCode.not_coordinator
        assert await refusal_of(groups.commit(1, "anna")) is ErrorCode.not_coordinator
        assert list(groups.coordinator.groups()) == []

    run(story())


def test_without_a_leader_no_broker_coordinates() -> None:
    async def story() -> None:
        groups = CoordinatorFixture(brokers=2)
        await groups.commit(1)
        groups.leave_without_leader()
        for groups.leader in (1, 2):
            assert await refusal_of(groups.commit(2)) is ErrorCode.not_coordinator
        groups.elect(2)
        await groups.loaded()
        assert groups.offsets() == {("flights", 0): 1}

    run(story())


def test_who_waits_for_others_to_join_is_sent_to_the_next_coordinator() -> None:
    async def story() -> None:
        groups = CoordinatorFixture(brokers=2)
        await groups.stabilize("anna")
        joining = asyncio.ensure_future(groups.join("ben"))
        await groups.until(lambda: len(groups.group_size()) == 2)
        groups.elect(2)
        assert await refusal_of(joining) is ErrorCode.not_coordinator
        await groups.loaded()
        assert groups.group_size() == [groups.members["anna"]]

    run(story())


def test_who_waits_for_a_share_is_sent_to_the_next_coordinator() -> None:
    async def story() -> None:
        groups = CoordinatorFixture(brokers=2)
        await groups.join("anna")
        groups.topic.hold()
        syncing = await under_way(groups, groups.sync("anna", anna=b"all"))
        groups.elect(2, keeping=0)
        assert await refusal_of(syncing) is ErrorCode.not_coordinator
        groups.topic.release()
        await groups.loaded()
        assert groups.heartbeat("anna") is ErrorCode.unknown_member_id

    run(story())


def test_shares_that_reached_the_next_leader_are_given_by_it() -> None:
    async def story() -> None:
        groups = CoordinatorFixture(brokers=2)
        await groups.join("anna")
        groups.topic.hold()
        syncing = await under_way(groups, groups.sync("anna", anna=b"all"))
        groups.elect(2)
        assert await refusal_of(syncing) is ErrorCode.not_coordinator
        assert await refusal_of(groups.sync("anna")) is ErrorCode.coordinator_load_in_progress
        groups.topic.release()
        await groups.loaded()
        assert (await groups.sync("anna")).assignment == b"all"

    run(story())


@pytest.mark.parametrize(("keeping", "found"), [(0, 1), (1, 2)])
def test_a_commit_under_way_is_refused_and_the_log_says_what_came_of_it(keeping: int, found: int) -> None:
    async def story() -> None:
        groups = CoordinatorFixture(brokers=2)
        await groups.commit(1)
        groups.topic.hold()
        commit = await under_way(groups, groups.commit(2))
        groups.elect(2, keeping=keeping)
        assert await refusal_of(commit) is ErrorCode.not_coordinator
        groups.topic.release()
        await groups.loaded()
        assert groups.offsets() == {("flights", 0): found}

    run(story())


def test_nothing_is_answered_that_the_next_leader_may_not_have() -> None:
    async def story() -> None:
        groups = CoordinatorFixture(brokers=3)
        await groups.commit(1)
        groups.topic.hold()
        commit = await under_way(groups, groups.commit(2))
        groups.elect(2)
        assert await refusal_of(commit) is ErrorCode.not_coordinator
        await asyncio.sleep(60)
        assert groups.code_of(groups.offsets) is ErrorCode.coordinator_load_in_progress
        groups.elect(3, keeping=0)
        await groups.loaded()
        assert groups.offsets() == {("flights", 0): 1}

    run(story())


def test_a_leader_that_comes_back_takes_over_what_was_written_meanwhile() -> None:
    async def story() -> None:
        groups = CoordinatorFixture(brokers=2)
        await groups.stabilize("anna")
        await groups.commit(1, "anna")
        groups.elect(2)
        await groups.loaded()
        await groups.commit(2, "anna")
        groups.elect(1)
        await groups.loaded()
        assert groups.offsets() == {("flights", 0): 2}
        await groups.commit(3, "anna")

    run(story())


def test_a_leader_that_missed_another_ones_time_loads_anew() -> None:
    async def story() -> None:
        groups = CoordinatorFixture(brokers=2)
        await groups.stabilize("anna")
        groups.topic.elect(groups.partition, 2)
        groups.coordinators[2].on_metadata_change(Image(1), Image(2))
        groups.leader = 2
        await groups.loaded()
        await groups.commit(2, "anna")
        groups.elect(1)
        assert groups.code_of(groups.offsets) is ErrorCode.coordinator_load_in_progress
        await groups.loaded()
        assert groups.offsets() == {("flights", 0): 2}

    run(story())


def test_a_load_that_was_overtaken_leaves_nothing_behind() -> None:
    async def story() -> None:
        groups = CoordinatorFixture(brokers=2)
        await groups.stabilize("anna")
        await groups.commit(1, "anna")
        groups.topic.read_gate.clear()
        groups.elect(2)
        await groups.until(lambda: groups.topic.reads == 1)
        groups.topic.read_gate.set()
        groups.elect(1)
        await groups.loaded()
        await groups.commit(2, "anna")
        assert list(groups.coordinators[2].groups()) == []
        await asyncio.sleep(60)
        assert groups.topic.appends_too_late == 0
        groups.elect(2)
        await groups.loaded()
        assert groups.offsets() == {("flights", 0): 2}

    run(story())


def test_a_load_in_the_broker_that_leads_again_begins_anew() -> None:
    async def story() -> None:
        groups = CoordinatorFixture(brokers=2)
        await groups.commit(1)
        groups.elect(2)
        groups.topic.read_gate.clear()
        groups.elect(1)
        await groups.until(lambda: groups.topic.reads == 1)
        groups.elect(2)
        await groups.until(lambda: groups.topic.reads == 2)
        groups.elect(1)
        groups.topic.read_gate.set()
        await groups.loaded()
        assert groups.offsets() == {("flights", 0): 1}

    run(story())


def test_the_sessions_of_a_deposed_coordinator_end_no_membership() -> None:
    async def story() -> None:
        groups = CoordinatorFixture(brokers=2)
        await groups.stabilize("anna")
        groups.elect(2)
        await groups.loaded()
        appends = groups.topic.appends
        for _ in range(12):
            await asyncio.sleep(5)
            assert groups.heartbeat("anna") is ErrorCode.none
        assert (groups.topic.appends, groups.topic.appends_too_late) == (appends, 0)
        await asyncio.sleep(11)
        assert groups.group_size() == []

    run(story())


def test_members_have_a_whole_session_to_find_the_next_coordinator() -> None:
    async def story() -> None:
        groups = CoordinatorFixture(brokers=2)
        await groups.stabilize("anna")
        groups.topic.hold()
        commit = await under_way(groups, groups.commit(1, "anna"))
        groups.elect(2)
        assert await refusal_of(commit) is ErrorCode.not_coordinator
        await asyncio.sleep(60)
        groups.topic.release()
        await groups.loaded()
        await asyncio.sleep(9)
        assert groups.heartbeat("anna") is ErrorCode.none

    run(story())


def test_the_groups_of_other_partitions_are_not_disturbed() -> None:
    async def story() -> None:
        groups = CoordinatorFixture(brokers=2)
        await groups.stabilize("anna")
        other = next(name for name in "abcdef" if partition_of(name, 4) != groups.partition)
        await groups.coordinator.commit(other, MemberIdentity(), {("flights", 0): Commit(7, -1, "")})
        groups.elect(2)
        await groups.loaded()
        assert groups.coordinators[1].offsets_of(other)["flights", 0].offset == 7
        assert [group.group_id for group in groups.coordinators[1].groups()] == [other]
        assert [group.group_id for group in groups.coordinators[2].groups()] == [GROUP]
        assert groups.topic.reads == 1

    run(story())


def test_a_partition_that_was_compacted_is_taken_over_and_compacted_again() -> None:
    async def story() -> None:
        groups = CoordinatorFixture(brokers=2)
        await groups.stabilize("anna")
        for number, leader in enumerate((2, 1, 2)):
            member = MemberIdentity(groups.members["anna"], groups.generation)
            for offset in range(3):
                commits = {("flights", partition): Commit(10 * number + offset, -1, "") for partition in range(100)}
                await groups.coordinator.commit(GROUP, member, commits)
            groups.compact()
            assert len(groups.topic.records(groups.partition)) == 1 + 100
            before = groups.offsets()
            groups.elect(leader)
            await groups.loaded()
            assert groups.offsets() == before
            assert groups.heartbeat("anna") is ErrorCode.none

    run(story())


def test_damage_here_is_no_damage_elsewhere() -> None:
    async def story() -> None:
        groups = CoordinatorFixture(brokers=2)
        await groups.commit(5)
        groups.topic.damaged.add(groups.partition)
        groups.elect(2)
        await groups.loaded()
        assert groups.code_of(groups.offsets) is ErrorCode.coordinator_not_available
        groups.topic.damaged.clear()
        groups.elect(1)
        await groups.loaded()
        assert groups.offsets() == {("flights", 0): 5}

    run(story())


def test_who_left_last_stays_gone_after_a_failover() -> None:
    async def story() -> None:
        groups = CoordinatorFixture(brokers=2)
        await groups.stabilize("anna")
        groups.topic.hold()
        leaving = await under_way(groups, groups.leave("anna"))
        groups.elect(2, keeping=0)
        assert await refusal_of(leaving) is ErrorCode.not_coordinator
        groups.topic.release()
        await groups.loaded()
        assert groups.group_size() == [groups.members["anna"]]
        assert await groups.leave("anna") == [ErrorCode.none]
        groups.elect(1)
        await groups.loaded()
        assert groups.group_size() == []

    run(story())


def test_offsets_of_a_deleted_topic_are_removed_by_the_leader_alone() -> None:
    async def story() -> None:
        groups = CoordinatorFixture(brokers=2)
        await groups.commit(5)
        await groups.commit(6, topic="planes")
        groups.elect(2)
        await groups.loaded()
        topic = TopicImage(UUID(int=1), "flights", ())
        before = Image(1, topics_by_name={"flights": topic}, topics_by_id={topic.id: topic})
        for coordinator in groups.coordinators.values():
            coordinator.on_metadata_change(before, Image(2))
        await groups.until(lambda: groups.offsets() == {("planes", 0): 6})
        assert (groups.topic.appends, groups.topic.appends_too_late) == (3, 0)

    run(story())


def test_a_coordinator_that_is_closed_takes_nothing_over() -> None:
    async def story() -> None:
        groups = CoordinatorFixture(brokers=2)
        await groups.commit(5)
        await groups.coordinators[2].close()
        groups.elect(2)
        await asyncio.sleep(1)
        assert groups.topic.reads == 0
        assert groups.code_of(groups.offsets) is ErrorCode.not_coordinator

    run(story())
