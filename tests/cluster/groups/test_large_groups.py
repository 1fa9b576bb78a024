"""Large groups: their replies leave in parts, and their records are encoded in turns and appended in order."""

import asyncio

import pytest
import uvloop
from coordinator_fixture import GROUP, CoordinatorFixture
from kio.schema.errors import ErrorCode
from virtual_time import run

from cordwood.cluster.coordination.topic import partition_of
from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.groups.any_group import ClassicMembership
from cordwood.cluster.groups.exchange import Join, Leaver, MemberProtocol, Sync
from cordwood.cluster.groups.formats import decode_group
from cordwood.cluster.groups.pace import REPLIES_PER_ITERATION_MAX, ReplyPace
from cordwood.cluster.groups.settings import EXPIRED_PER_TICK_MAX
from cordwood.cluster.groups.state_store import GROUP_RECORDS_PER_BATCH_MAX
from cordwood.cluster.resources.turns import SLICE_STEPS
from cordwood.storage.steps import at_once

NAMES = [f"member {number}" for number in range(SLICE_STEPS + 50)]


def test_replies_leave_in_order_some_in_each_iteration() -> None:
    async def story() -> None:
        loop, sent = asyncio.get_running_loop(), list[int]()
        pace = ReplyPace(loop)
        for number in range(3 * REPLIES_PER_ITERATION_MAX + 1):
            pace.reply(lambda number=number: sent.append(number))  # type: ignore[misc]
        counts = [len(sent)]
        while counts[-1] <= 3 * REPLIES_PER_ITERATION_MAX:
            await asyncio.sleep(0)
            counts.append(len(sent))
            assert counts[-1] - counts[-2] <= REPLIES_PER_ITERATION_MAX
        assert counts[0] == REPLIES_PER_ITERATION_MAX
        assert sent == sorted(sent)

    run(story())


def test_a_record_that_takes_turns_to_encode_is_in_the_log_before_the_next_one() -> None:
    async def story() -> None:
        groups = CoordinatorFixture()
        await groups.stabilize(*NAMES)
        rejoining = [asyncio.ensure_future(groups.join(name)) for name in NAMES]
        await asyncio.gather(*rejoining)
        leader = groups.coordinator.group(GROUP)
        assert isinstance(leader, ClassicMembership)
        first = next(name for name in NAMES if groups.members[name] == leader.members.leader)  # type: ignore[attr-defined]
        syncing = asyncio.ensure_future(groups.sync(first, **{first: b"all"}))
        await asyncio.sleep(0)
        leaving = groups.coordinator.leave(GROUP, [Leaver(groups.members[name]) for name in NAMES])
        assert set(await leaving) == {ErrorCode.none}
        await syncing
        records = [record for record in groups.topic.records(groups.partition) if record.value is not None]
        saved = [at_once(decode_group(record.value)) for record in records if record.value is not None]
        assert [len(group.members) for group in saved][-2:] == [len(NAMES), 0]
        assert [group.generation for group in saved] == sorted(group.generation for group in saved)

    run(story())


def test_a_large_group_is_restored_in_turns() -> None:
    async def story() -> None:
        groups = CoordinatorFixture()
        await groups.stabilize(*NAMES)
        await groups.restart()
        assert len(groups.group_size()) == len(NAMES)
        assert {groups.heartbeat(name) for name in NAMES} == {ErrorCode.none}

    run(story())


def test_a_large_group_expires_in_parts_and_to_the_last_member() -> None:
    async def story() -> None:
        groups = CoordinatorFixture()
        await groups.stabilize(*(f"member {number}" for number in range(EXPIRED_PER_TICK_MAX + 50)))
        await groups.until(lambda: not groups.group_size())

    run(story())


def test_a_lost_shard_refuses_no_request_of_another_one() -> None:
    async def story() -> None:
        groups = CoordinatorFixture()
        other = next(f"other {n}" for n in range(20) if partition_of(f"other {n}", 4) != groups.partition)
        coordinator = groups.coordinator
        fields = ("consumer", (MemberProtocol("range", b""),), 10_000, 60_000)
        joined = await coordinator.join(GROUP, Join("", *fields, must_know_id=False))
        second = asyncio.ensure_future(coordinator.join(GROUP, Join("", *fields, must_know_id=False)))
        await asyncio.sleep(1)
        await coordinator.join(GROUP, Join(joined.member_id, *fields))
        member = await second
        await coordinator.join(other, Join("", *fields, must_know_id=False))
        # The numbers of these requests among all JoinGroup and among all SyncGroup requests are the same.
        waiting = asyncio.ensure_future(coordinator.join(other, Join("", *fields, must_know_id=False)))
        for _ in range(5):
            syncing = asyncio.ensure_future(coordinator.sync(GROUP, Sync(member.member_id, member.generation)))
            await asyncio.sleep(1)
        assert not syncing.done()
        groups.topic.elect(partition_of(other, 4), 2)
        groups.tell_all()
        await asyncio.wait([waiting])
        await asyncio.sleep(1)
        assert not syncing.done()
        syncing.cancel()

    run(story())


def test_a_deadline_that_is_now_has_a_timer_in_the_loop_of_brokers() -> None:
    async def story() -> None:
        count, errors = 3 * EXPIRED_PER_TICK_MAX, list[object]()
        asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
        groups = CoordinatorFixture(session_timeout_ms_min=1, initial_rebalance_delay_ms=50)
        names = [f"member {number}" for number in range(count)]
        # The sessions are longer than the joins of all members take: they end together.
        joining = [asyncio.ensure_future(groups.join(name, session_timeout_ms=3000)) for name in names]
        async with asyncio.timeout(60):
            await groups.until(lambda: len(groups.group_size()) == count)
            await asyncio.gather(*joining)
            await groups.until(lambda: not groups.group_size())
        assert errors == []

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(story())


def test_no_later_record_comes_between_those_of_one_write() -> None:
    async def story() -> None:
        groups = CoordinatorFixture()
        await groups.commit(5)
        store = groups.coordinator._state_store
        shard = store.find(GROUP)
        assert shard is not None
        first = [(b"\x00\x05%d" % number, b"old") for number in range((SLICE_STEPS + 2) * GROUP_RECORDS_PER_BATCH_MAX)]
        last_key = first[-1][0]
        groups.topic.hold()
        writes = [asyncio.ensure_future(store.append_records(shard, first))]
        await asyncio.sleep(0)
        writes.append(asyncio.ensure_future(store.append_records(shard, [(last_key, b"new")])))
        offset = next(iter(shard.offsets.keys_of(GROUP)))
        writes.append(asyncio.ensure_future(store.delete(shard, [offset], [last_key], None)))
        await asyncio.sleep(1)
        assert not any(write.done() for write in writes)
        groups.topic.release()
        await asyncio.gather(*writes)
        records = groups.topic.records(groups.partition)
        assert [record.value for record in records if record.key == last_key] == [b"old", b"new", None]

    run(story())


def test_a_lost_leadership_ends_a_write_between_two_batches() -> None:
    async def story() -> None:
        groups = CoordinatorFixture(brokers=2)
        await groups.commit(5)
        store = groups.coordinator._state_store
        shard = store.find(GROUP)
        assert shard is not None
        count = (SLICE_STEPS + 2) * GROUP_RECORDS_PER_BATCH_MAX
        contents = [(b"\x00\x05%d" % number, b"value") for number in range(count)]
        write = asyncio.ensure_future(store.append_records(shard, contents))
        await asyncio.sleep(0)
        assert not write.done()
        groups.leave_without_leader()
        with pytest.raises(Refused, match="not_coordinator"):
            await write
        assert not shard.appending.locked()

    run(story())
