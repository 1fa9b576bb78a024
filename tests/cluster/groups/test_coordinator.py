"""The group coordinator on an event loop: requests that wait, timers that expire, and groups that survive a restart."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from coordinator_fixture import GROUP, CoordinatorFixture
from kio.schema.errors import ErrorCode
from virtual_time import VirtualTimeLoop, run

from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.groups.classic.group import METADATA_BYTES_MAX, PENDING_MAX
from cordwood.cluster.groups.classic.rebalance import State
from cordwood.cluster.groups.coordinator import Commit, MemberIdentity
from cordwood.cluster.groups.exchange import Join, MemberProtocol, Sync


async def refusal_of(work: Coroutine[Any, Any, object]) -> ErrorCode:
    with pytest.raises(Refused) as refused:
        await work
    return refused.value.code


def state_of(fixture: CoordinatorFixture) -> State:
    group = fixture.coordinator.group(GROUP)
    return State.DEAD if group is None else group.state


def test_members_join_share_and_go() -> None:
    async def story() -> None:
        groups = CoordinatorFixture()
        await groups.stabilize("anna", "ben", "carl")
        assert state_of(groups) is State.STABLE
        assert groups.heartbeat("anna") is ErrorCode.none
        assert await groups.leave("carl") == [ErrorCode.none]
        assert groups.heartbeat("anna") is ErrorCode.rebalance_in_progress
        await asyncio.gather(groups.join("anna"), groups.join("ben"))
        assert len(groups.group_size()) == 2

    run(story())


def test_a_silent_member_is_gone_after_its_session() -> None:
    async def story() -> None:
        groups = CoordinatorFixture()
        await groups.stabilize("anna", "ben")
        for _ in range(9):
            await asyncio.sleep(1)
            groups.heartbeat("anna")
        assert len(groups.group_size()) == 2
        await asyncio.sleep(1.1)
        assert groups.group_size() == [groups.members["anna"]]
        assert groups.heartbeat("anna") is ErrorCode.rebalance_in_progress

    run(story())


def test_a_group_waits_for_its_first_members() -> None:
    async def story() -> None:
        groups = CoordinatorFixture(initial_rebalance_delay_ms=3_000)
        started = asyncio.get_running_loop().time()
        replies = await asyncio.gather(*(groups.join(name) for name in ("anna", "ben", "carl")))
        assert [reply.generation for reply in replies] == [1, 1, 1]
        assert 3 <= asyncio.get_running_loop().time() - started < 60

    run(story())


def test_a_restart_disturbs_no_member() -> None:
    async def story() -> None:
        groups = CoordinatorFixture()
        await groups.stabilize("anna", "ben")
        await groups.commit(42, "anna")
        await groups.restart()
        assert groups.heartbeat("anna") is groups.heartbeat("ben") is ErrorCode.none
        assert (await groups.sync("ben")).assignment == b"ben"
        assert groups.offsets() == {("flights", 0): 42}
        await groups.commit(43, "anna")
        await asyncio.sleep(11)
        assert state_of(groups) is State.EMPTY

    run(story())


def test_an_empty_group_is_still_there_after_a_restart() -> None:
    async def story() -> None:
        groups = CoordinatorFixture()
        await groups.stabilize("anna")
        generation = groups.generation
        await groups.leave("anna")
        await groups.restart()
        assert state_of(groups) is State.EMPTY
        assert (await groups.join("ben")).generation == generation + 2

    run(story())


def test_a_commit_is_acknowledged_and_seen_only_once_it_is_on_disk() -> None:
    async def story() -> None:
        groups = CoordinatorFixture()
        await groups.commit(1)
        groups.topic.hold()
        commit = asyncio.ensure_future(groups.commit(2))
        await asyncio.sleep(1)
        assert not commit.done()
        assert groups.offsets() == {("flights", 0): 1}
        groups.topic.release()
        await commit
        assert groups.offsets() == {("flights", 0): 2}

    run(story())


def test_all_partitions_of_a_commit_share_one_append() -> None:
    async def story() -> None:
        groups = CoordinatorFixture()
        commits = {("flights", partition): Commit(partition, 3, f"note {partition}") for partition in range(100)}
        codes = await groups.coordinator.commit(GROUP, MemberIdentity(), commits)
        assert set(codes.values()) == {ErrorCode.none}
        assert groups.topic.appends == 1
        await groups.restart()
        committed = groups.coordinator.offsets_of(GROUP)["flights", 99]
        assert (committed.offset, committed.leader_epoch, committed.metadata) == (99, 3, "note 99")

    run(story())


def test_a_commit_is_refused_to_those_who_may_not() -> None:
    async def story() -> None:
        groups = CoordinatorFixture(offset_metadata_bytes_max=3)
        commits = {("flights", 0): Commit(1, -1, "")}
        stranger = MemberIdentity("nobody", 7)
        assert await refusal_of(groups.coordinator.commit(GROUP, stranger, commits)) is ErrorCode.group_id_not_found
        await groups.stabilize("anna")
        assert await refusal_of(groups.coordinator.commit(GROUP, stranger, commits)) is ErrorCode.unknown_member_id
        assert await refusal_of(groups.commit(1)) is ErrorCode.unknown_member_id
        old = MemberIdentity(groups.members["anna"], 0)
        assert await refusal_of(groups.coordinator.commit(GROUP, old, commits)) is ErrorCode.illegal_generation
        assert await refusal_of(groups.commit(1, "anna")) is ErrorCode.offset_metadata_too_large
        assert groups.offsets() == {}

    run(story())


def test_a_commit_that_cannot_be_written_leaves_nothing_behind() -> None:
    async def story() -> None:
        groups = CoordinatorFixture()
        await groups.coordinator.place(GROUP)
        groups.topic.refusal = ErrorCode.coordinator_not_available
        assert await refusal_of(groups.commit(1)) is ErrorCode.coordinator_not_available
        assert state_of(groups) is State.DEAD
        groups.topic.refusal = ErrorCode.message_too_large
        assert await refusal_of(groups.commit(1)) is ErrorCode.invalid_commit_offset_size
        groups.topic.refusal = None
        await groups.commit(2)
        assert groups.offsets() == {("flights", 0): 2}

    run(story())


def test_a_group_that_cannot_be_written_starts_its_rebalance_again() -> None:
    async def story() -> None:
        groups = CoordinatorFixture()
        await groups.join("anna")
        groups.topic.refusal = ErrorCode.message_too_large
        assert (await groups.sync("anna", anna=b"all")).code is ErrorCode.unknown_server_error
        assert state_of(groups) is State.PREPARING_REBALANCE
        groups.topic.refusal = None
        await groups.join("anna")
        assert (await groups.sync("anna", anna=b"all")).assignment == b"all"

    run(story())


@pytest.mark.parametrize("name", ["", "long" * 10_000])
def test_a_group_has_a_name_that_can_be_kept(name: str) -> None:
    async def story() -> None:
        coordinator = CoordinatorFixture().coordinator
        assert await refusal_of(coordinator.sync(name, Sync("anna", 1))) is ErrorCode.invalid_group_id
        assert await refusal_of(coordinator.leave(name, [])) is ErrorCode.invalid_group_id
        with pytest.raises(Refused) as refused:
            coordinator.heartbeat(name, MemberIdentity())
        assert refused.value.code is ErrorCode.invalid_group_id

    run(story())


def test_offsets_may_be_kept_without_a_name() -> None:
    async def story() -> None:
        coordinator = CoordinatorFixture().coordinator
        await coordinator.commit("", MemberIdentity(), {("flights", 0): Commit(5, -1, "")})
        assert coordinator.offsets_of("")["flights", 0].offset == 5

    run(story())


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"session_timeout_ms": 5_999}, ErrorCode.invalid_session_timeout),
        ({"session_timeout_ms": 1_800_001}, ErrorCode.invalid_session_timeout),
        ({"instance_id": "x" * 40_000}, ErrorCode.invalid_request),
    ],
)
def test_some_requests_no_group_would_take(changes: dict[str, object], code: ErrorCode) -> None:
    async def story() -> None:
        groups = CoordinatorFixture()
        assert await refusal_of(groups.join("anna", **changes)) is code

    run(story())


def test_who_is_asked_about_a_group_that_never_was_says_so() -> None:
    async def story() -> None:
        groups = CoordinatorFixture()
        for _ in range(2):
            groups.members["anna"] = "made up"
            assert (await groups.join("anna")).code is ErrorCode.unknown_member_id
            assert (await groups.sync("anna")).code is ErrorCode.unknown_member_id
            assert groups.heartbeat("anna") is ErrorCode.unknown_member_id
            assert await groups.leave("anna") == [ErrorCode.unknown_member_id]
            assert groups.offsets() == {}
            assert await refusal_of(groups.coordinator.delete_group(GROUP)) is ErrorCode.group_id_not_found
            assert await refusal_of(groups.coordinator.delete_offsets(GROUP, [])) is ErrorCode.group_id_not_found
            assert list(groups.coordinator.groups()) == []
            await groups.coordinator.place(GROUP)

    run(story())


def test_newcomers_that_never_come_back_leave_nothing_behind() -> None:
    async def story() -> None:
        groups = CoordinatorFixture()
        fields = {"protocols": (), "protocol_type": "consumer"}
        assert (await groups.join("anna", **fields)).code is ErrorCode.inconsistent_group_protocol
        assert state_of(groups) is State.DEAD
        joining = asyncio.ensure_future(groups.join("anna"))
        await asyncio.sleep(0)
        joining.cancel()
        await asyncio.sleep(3600)
        assert state_of(groups) is State.DEAD
        assert groups.topic.appends == 0

    run(story())


def test_waiting_clients_are_sent_elsewhere_when_the_broker_stops() -> None:
    async def story() -> None:
        groups = CoordinatorFixture()
        await groups.stabilize("anna", "ben")
        await groups.restart()
        joining = asyncio.ensure_future(groups.join("anna"))
        await asyncio.sleep(0.01)
        await groups.coordinator.close()
        assert await refusal_of(joining) is ErrorCode.not_coordinator  # type: ignore[arg-type]
        assert len(asyncio.all_tasks()) == 1

    run(story())


def test_a_client_that_vanishes_while_it_waits_leaves_no_request_behind() -> None:
    async def story() -> None:
        groups = CoordinatorFixture()
        await groups.stabilize("anna")
        joining = asyncio.ensure_future(groups.join("ben"))
        await groups.until(lambda: len(groups.group_size()) == 2)
        joining.cancel()
        await groups.join("anna")
        assert state_of(groups) is State.COMPLETING_REBALANCE

    run(story())


def test_who_leaves_last_is_answered_once_that_is_on_disk() -> None:
    async def story() -> None:
        groups = CoordinatorFixture()
        await groups.stabilize("anna", "ben")
        groups.topic.hold()
        assert await groups.leave("ben") == [ErrorCode.none]
        await groups.join("anna")
        leaving = asyncio.ensure_future(groups.leave("anna"))
        await asyncio.sleep(1)
        assert not leaving.done()
        groups.topic.release()
        assert await leaving == [ErrorCode.none]

    run(story())


async def heartbeat_read_late(groups: CoordinatorFixture, name: str) -> ErrorCode:
    """Send a heartbeat that arrived while the loop was blocked: its connection is read after the due timers."""
    for _ in range(3):
        await asyncio.sleep(0)
    return groups.heartbeat(name)


@pytest.mark.parametrize("still_s", [0.3, 9.95, 15, 3600])
def test_heartbeats_that_arrived_while_the_loop_stood_still_count(still_s: float) -> None:
    async def story() -> None:
        groups, names = CoordinatorFixture(), [f"member {number}" for number in range(30)]
        await groups.stabilize(*names)
        await asyncio.sleep(9.85)
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        loop.passed_s += still_s
        codes = await asyncio.gather(*(heartbeat_read_late(groups, name) for name in names))
        assert set(codes) == {ErrorCode.none}
        assert state_of(groups) is State.STABLE

    run(story())


def test_a_member_that_stays_silent_goes_a_little_later_where_the_loop_stood_still() -> None:
    async def story() -> None:
        groups = CoordinatorFixture()
        await groups.stabilize("anna", "ben")
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        await asyncio.sleep(5)
        loop.passed_s += 100
        for _ in range(2):
            await asyncio.sleep(4)
            groups.heartbeat("anna")
        await asyncio.sleep(0.1)
        assert len(groups.group_size()) == 1

    run(story())


def test_a_group_of_members_with_too_much_metadata_admits_no_new_member() -> None:
    async def story() -> None:
        groups = CoordinatorFixture()
        large = (MemberProtocol("range", bytes(METADATA_BYTES_MAX)),)
        assert (await groups.join("anna", protocols=large)).code is ErrorCode.none
        assert (await groups.join("ben")).code is ErrorCode.group_max_size_reached
        assert (await groups.join("anna")).code is ErrorCode.none, "it may stay, and tell less"
        joining = asyncio.ensure_future(groups.join("ben"))
        await groups.until(lambda: len(groups.group_size()) == 2)
        await groups.join("anna")
        assert (await joining).code is ErrorCode.none

    run(story())


def test_ids_that_never_come_back_are_bounded() -> None:
    async def story() -> None:
        groups = CoordinatorFixture()
        newcomer = Join("", "consumer", (MemberProtocol("range", b""),), 10_000, 10_000)
        codes = [(await groups.coordinator.join(GROUP, newcomer)).code for _ in range(PENDING_MAX + 10)]
        assert codes.count(ErrorCode.member_id_required) == PENDING_MAX
        assert codes.count(ErrorCode.group_max_size_reached) == 10

    run(story())
