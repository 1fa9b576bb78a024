"""The conversion of large groups: in turns beside other requests, and whole or not at all."""

import asyncio
from dataclasses import replace
from itertools import pairwise

import pytest
from consumer_group_scenario import ConsumerGroupScenario
from coordinator_fixture import GROUP, CoordinatorFixture
from kio.schema.errors import ErrorCode
from virtual_time import run

from cordwood.cluster.coordination.fields import INT, SHORT, encode_string
from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.groups.any_group import GroupKind
from cordwood.cluster.groups.classic.group import ClassicGroup
from cordwood.cluster.groups.consumer.embedded import encode_assignment, read_assignment
from cordwood.cluster.groups.consumer.exchange import ConsumerHeartbeat
from cordwood.cluster.groups.consumer.group import ConsumerGroup
from cordwood.cluster.groups.consumer.reconciliation import places_in, united
from cordwood.cluster.groups.context import GroupContext
from cordwood.cluster.groups.coordinator import MemberIdentity
from cordwood.cluster.groups.exchange import Leaver, SavedGroup, SavedMember, Sync
from cordwood.cluster.groups.formats import encode_group
from cordwood.storage.records import Record, encode
from cordwood.storage.steps import at_once

GENERATION = 5
MANY = 2000
WORKING = {ErrorCode.none, ErrorCode.rebalance_in_progress, ErrorCode.illegal_generation}
"""The codes of a classic heartbeat after which a member goes on, or joins again."""
SUBSCRIPTION = SHORT.pack(0) + INT.pack(1) + encode_string("flights") + INT.pack(-1)
ANNA = ConsumerHeartbeat("anna", 0, rebalance_timeout_ms=60_000, topics=frozenset({"flights"}), owned={})


async def with_classic_group(size: int, brokers: int = 1) -> CoordinatorFixture:
    """Return a coordinator that has loaded a classic group: each member has one partition of `flights`."""
    groups = CoordinatorFixture(brokers, ConsumerGroupScenario({"flights": size}).context)
    await groups.commit(5)
    members = [
        SavedMember(
            f"c{number}",
            None,
            "old",
            "/h",
            60_000,
            45_000,
            SUBSCRIPTION,
            at_once(encode_assignment(0, {"flights": frozenset({number})})),
        )
        for number in range(size)
    ]
    saved = SavedGroup("consumer", GENERATION, "range", "c0", tuple(members))
    store = groups.coordinator._state_store
    shard = store.find(GROUP)
    assert shard is not None
    await store.write(shard, {}, {GROUP: at_once(encode_group(saved, 0))})
    await groups.restart()
    assert kind(groups) is GroupKind.CLASSIC
    return groups


def kind(groups: CoordinatorFixture) -> GroupKind:
    group = groups.coordinator.group(GROUP)
    assert group is not None
    return group.kind


def beat(groups: CoordinatorFixture, member_id: str) -> ErrorCode:
    return groups.coordinator.heartbeat(GROUP, MemberIdentity(member_id, GENERATION))


async def begin_upgrade(groups: CoordinatorFixture) -> "asyncio.Task[object]":
    """Send the first heartbeat of a member with the consumer protocol. The conversion is under way then."""
    upgrade: asyncio.Task[object] = asyncio.ensure_future(groups.coordinator.consumers.heartbeat(GROUP, ANNA))  # type: ignore[arg-type]
    for _ in range(5):
        await asyncio.sleep(0)
    assert not upgrade.done()
    assert kind(groups) is GroupKind.CLASSIC, "until all members are converted"
    return upgrade


def test_requests_are_served_while_a_large_group_is_converted() -> None:
    async def story() -> None:
        groups = await with_classic_group(MANY)
        upgrade = await begin_upgrade(groups)
        assert beat(groups, "c1") is ErrorCode.none
        with pytest.raises(Refused) as refused:
            await groups.coordinator.consumers.heartbeat(GROUP, ANNA)
        assert refused.value.code is ErrorCode.coordinator_load_in_progress
        await upgrade
        group = groups.coordinator.consumers.group(GROUP)
        assert (group.member_count, group.members.classic_count) == (MANY + 1, MANY)
        await groups.restart()
        group = groups.coordinator.consumers.group(GROUP)
        assert (group.member_count, group.members.classic_count) == (MANY + 1, MANY)

    run(story())


def test_a_group_that_changes_while_it_is_converted_stays_as_it_is() -> None:
    async def story() -> None:
        groups = await with_classic_group(MANY)
        upgrade = await begin_upgrade(groups)
        assert await groups.coordinator.leave(GROUP, [Leaver("c7")]) == [ErrorCode.none]
        with pytest.raises(Refused) as refused:
            await upgrade
        assert refused.value.code is ErrorCode.coordinator_load_in_progress
        assert kind(groups) is GroupKind.CLASSIC
        await groups.coordinator.consumers.heartbeat(GROUP, ANNA)
        group = groups.coordinator.consumers.group(GROUP)
        assert group.member_count == MANY
        assert "c7" not in group.members.by_id

    run(story())


def test_a_coordinator_that_is_deposed_converts_nothing() -> None:
    async def story() -> None:
        groups = await with_classic_group(MANY)
        upgrade = await begin_upgrade(groups)
        end = len(groups.topic.records(groups.partition))
        groups.leave_without_leader()
        with pytest.raises(Refused):
            await upgrade
        assert len(groups.topic.records(groups.partition)) == end
        assert groups.topic.appends_too_late == 0

    run(story())


async def begin_downgrade(groups: CoordinatorFixture) -> "asyncio.Task[object]":
    """Have the last member with the consumer protocol leave. The conversion is under way then."""
    leave = replace(ANNA, member_epoch=-1, topics=None, owned=None)
    downgrade: asyncio.Task[object] = asyncio.ensure_future(groups.coordinator.consumers.heartbeat(GROUP, leave))  # type: ignore[arg-type]
    for _ in range(5):
        await asyncio.sleep(0)
    assert not downgrade.done()
    assert kind(groups) is GroupKind.CONSUMER, "until all members are converted"
    return downgrade


async def with_mixed_group(size: int) -> CoordinatorFixture:
    """Return a coordinator of a group that has been upgraded: classic members, and one with the consumer protocol."""
    groups = await with_classic_group(size)
    await groups.coordinator.consumers.heartbeat(GROUP, ANNA)
    return groups


def members_of(groups: CoordinatorFixture) -> set[str]:
    return set(groups.group_size())


def test_requests_wait_while_a_large_group_becomes_a_classic_one() -> None:
    async def story() -> None:
        groups = await with_mixed_group(MANY)
        downgrade = await begin_downgrade(groups)
        assert beat(groups, "c1") in WORKING
        leave = asyncio.ensure_future(groups.coordinator.leave(GROUP, [Leaver("c7")]))
        sync = asyncio.ensure_future(groups.coordinator.sync(GROUP, Sync("c8", GENERATION)))
        await asyncio.sleep(0)
        assert not leave.done()
        await downgrade
        assert kind(groups) is GroupKind.CLASSIC
        assert await leave == [ErrorCode.none]
        assert (await sync).code is ErrorCode.rebalance_in_progress, "the first rebalance has begun"
        remaining = {f"c{number}" for number in range(MANY)} - {"c7"}
        assert members_of(groups) == remaining
        assert beat(groups, "c1") is ErrorCode.rebalance_in_progress
        await groups.restart()
        assert kind(groups) is GroupKind.CLASSIC
        assert members_of(groups) >= remaining

    run(story())


def test_a_coordinator_that_is_deposed_makes_no_classic_group() -> None:
    async def story() -> None:
        groups = await with_mixed_group(MANY)
        downgrade = await begin_downgrade(groups)
        sync = asyncio.ensure_future(groups.coordinator.sync(GROUP, Sync("c8", GENERATION)))
        await asyncio.sleep(0)
        end = len(groups.topic.records(groups.partition))
        groups.leave_without_leader()
        for waiting in (downgrade, sync):
            with pytest.raises(Refused) as refused:
                await waiting
            assert refused.value.code is ErrorCode.not_coordinator
        assert len(groups.topic.records(groups.partition)) == end
        assert groups.topic.appends_too_late == 0

    run(story())


def test_a_large_group_whose_conversion_is_refused_goes_on() -> None:
    async def story() -> None:
        groups = await with_mixed_group(MANY)
        downgrade = await begin_downgrade(groups)
        groups.topic.refusal = ErrorCode.coordinator_not_available
        with pytest.raises(Refused):
            await downgrade
        assert kind(groups) is GroupKind.CONSUMER
        groups.topic.refusal = None
        assert beat(groups, "c1") in WORKING
        assert await groups.coordinator.leave(GROUP, [Leaver("c7")]) == [ErrorCode.none]
        await groups.until(lambda: kind(groups) is GroupKind.CLASSIC)
        assert members_of(groups) == {f"c{number}" for number in range(MANY)} - {"c7"}

    run(story())


def test_a_classic_group_whose_former_records_could_not_all_be_deleted_stays() -> None:
    async def story() -> None:
        groups = await with_mixed_group(MANY)
        downgrade = await begin_downgrade(groups)
        groups.topic.accepts = 1
        with pytest.raises(Refused):
            await downgrade
        groups.topic.accepts = None
        everyone = {f"c{number}" for number in range(MANY)}
        for _ in range(2):
            assert kind(groups) is GroupKind.CLASSIC
            assert members_of(groups) == everyone
            await groups.restart()
        await groups.coordinator.consumers.heartbeat(GROUP, ANNA)
        assert await groups.coordinator.leave(GROUP, [Leaver("c7")]) == [ErrorCode.none]
        await groups.restart()
        assert members_of(groups) == everyone - {"c7"} | {"anna"}

    run(story())


async def loaded_from(records: list[Record], context: GroupContext) -> CoordinatorFixture:
    """Return a new coordinator that finds these records in the log."""
    groups = CoordinatorFixture(1, context)
    groups.topic.create()
    partition = groups.topic.partitions[groups.partition]
    partition.append(encode([record._replace(offset=0) for record in records]))
    partition.commit()
    await groups.restart()
    return groups


def check_partitions(groups: CoordinatorFixture, size: int) -> None:
    """Check that no partition has two members, be it in the assignments or in the targets."""
    group = groups.coordinator.group(GROUP)
    if isinstance(group, ConsumerGroup):
        held = [
            place for member in group.members for place in places_in(at_once(united(member.assigned, member.revoking)))
        ]
        targets = [place for target in group.targets.values() for place in places_in(target)]
        assert len(set(targets)) == len(targets) <= size
    else:
        assert isinstance(group, ClassicGroup)
        held = [
            (name, index)
            for member in group.members
            for name, indexes in at_once(read_assignment(member.assignment)).items()
            for index in indexes
        ]
    assert len(set(held)) == len(held) <= size


async def check_crash(records: list[Record], context: GroupContext, size: int) -> GroupKind:
    """Check the group that a new coordinator has after these records, and that it works. Return its kind."""
    groups = await loaded_from(records, context)
    found, classic = kind(groups), {f"c{number}" for number in range(size)}
    assert members_of(groups) >= classic, "no member is lost"
    check_partitions(groups, size)
    offsets = groups.offsets()
    assert offsets == {("flights", 0): 5}
    assert {beat(groups, member_id) for member_id in classic} <= WORKING
    joined = await groups.coordinator.consumers.heartbeat(GROUP, ANNA)
    assert joined.code is ErrorCode.none
    assert kind(groups) is GroupKind.CONSUMER
    for _ in range(2):
        assert members_of(groups) == classic | {"anna"}
        check_partitions(groups, size)
        await groups.restart()
    await groups.coordinator.leave(GROUP, [Leaver(member_id) for member_id in sorted(classic)])
    leave = replace(ANNA, member_epoch=-1, topics=None, owned=None)
    assert (await groups.coordinator.consumers.heartbeat(GROUP, leave)).code is ErrorCode.none
    await groups.coordinator.delete_group(GROUP)
    await groups.restart()
    assert groups.coordinator.group(GROUP) is None
    await groups.coordinator.close()
    return found


@pytest.mark.parametrize("is_upgrade", [True, False])
def test_a_crash_after_any_record_of_a_conversion_loses_no_member(is_upgrade: bool) -> None:
    async def story() -> None:
        size = 6
        groups = await (with_classic_group(size) if is_upgrade else with_mixed_group(size))
        begin = len(groups.topic.records(groups.partition))
        request = ANNA if is_upgrade else replace(ANNA, member_epoch=-1, topics=None, owned=None)
        await groups.coordinator.consumers.heartbeat(GROUP, request)
        records = groups.topic.records(groups.partition)
        kinds = [await check_crash(records[:end], groups.context, size) for end in range(begin, len(records) + 1)]
        assert len(kinds) > 3 * size
        changes = [kind for before, kind in pairwise(kinds) if kind is not before]
        assert changes == [GroupKind.CONSUMER if is_upgrade else GroupKind.CLASSIC], "one record decides"

    run(story())


def test_a_group_with_records_of_a_former_kind_is_deleted_with_them() -> None:
    async def story() -> None:
        size = 6
        groups = await with_mixed_group(size)
        begin = len(groups.topic.records(groups.partition))
        await groups.coordinator.consumers.heartbeat(GROUP, replace(ANNA, member_epoch=-1, topics=None, owned=None))
        records = groups.topic.records(groups.partition)
        groups = await loaded_from(records[: begin + 1], groups.context)
        assert kind(groups) is GroupKind.CLASSIC
        await groups.coordinator.leave(GROUP, [Leaver(f"c{number}") for number in range(size)])
        await groups.coordinator.delete_group(GROUP)
        await groups.restart()
        assert groups.coordinator.group(GROUP) is None

    run(story())
