"""The conversion of large classic groups: in turns beside other requests, and whole or not at all."""

import asyncio
from collections.abc import Iterator

import pytest
from consumer_group_scenario import ConsumerGroupScenario
from coordinator_fixture import GROUP, CoordinatorFixture
from kio.schema.errors import ErrorCode
from virtual_time import run

from cordwood.cluster.coordination.fields import INT, SHORT, encode_string
from cordwood.cluster.coordination.topic import PartitionLeadership
from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.groups.any_group import GroupKind
from cordwood.cluster.groups.consumer.embedded import encode_assignment
from cordwood.cluster.groups.consumer.exchange import ConsumerHeartbeat
from cordwood.cluster.groups.consumer.group import ConsumerGroup
from cordwood.cluster.groups.coordinator import MemberIdentity
from cordwood.cluster.groups.exchange import Leaver, RequestId, SavedGroup, SavedMember
from cordwood.cluster.groups.formats import encode_group, encode_group_key
from cordwood.cluster.groups.shard import Shard
from cordwood.cluster.resources.turns import at_once
from cordwood.storage.records import Record

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
            encode_assignment(0, {"flights": frozenset({number})}),
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


def restored(records: list[Record], groups: CoordinatorFixture) -> Iterator[ConsumerGroup]:
    """Yield the consumer group of the records, if there is one."""
    shard = Shard(PartitionLeadership(groups.partition, 1), groups.context)
    newest = {record.key: record.value for record in records}
    for _ in shard.restore([(key, value) for key, value in newest.items() if key is not None and value is not None]):
        pass
    group = shard.groups.get(GROUP)
    if isinstance(group, ConsumerGroup):
        yield group


def test_a_crash_between_the_records_of_a_conversion_leaves_a_group_that_works() -> None:
    async def story() -> None:
        size = 8
        groups = await with_classic_group(size)
        begin = len(groups.topic.records(groups.partition))
        await groups.coordinator.consumers.heartbeat(GROUP, ANNA)
        records = groups.topic.records(groups.partition)
        assert (records[begin].key, records[begin].value) == (encode_group_key(GROUP), None), "never both groups"
        sizes = []
        for end in range(begin + 1, len(records) + 1):
            for group in restored(records[:end], groups):
                group.begin_sessions(0)
                classic = [member.id for member in group.members if member.classic is not None]
                assert {group.heartbeat(member_id, None, GENERATION, 0) for member_id in classic} <= WORKING
                group.consumer_heartbeat(ANNA, RequestId(1), "", 0)
                group.take_effects()
                assert "anna" in group.members.by_id
                assert sum(map(len, (p for target in group.targets.values() for p in target.values()))) <= size
                sizes.append(group.member_count)
        assert sizes == sorted(sizes)
        assert sizes[-1] == size + 1

    run(story())
