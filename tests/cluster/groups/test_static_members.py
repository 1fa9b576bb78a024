"""Static members: a restart with the same instance id causes no rebalance (KIP-345)."""

import pytest
from group_scenario import REBALANCE_MS, SESSION_MS, GroupScenario, protocols
from kio.schema.errors import ErrorCode

from cordwood.cluster.groups.classic.rebalance import State
from cordwood.cluster.groups.exchange import Purpose


@pytest.fixture
def racks(group: GroupScenario) -> GroupScenario:
    """Return a stable group of two static members, the first the leader."""
    group.join("one", instance_id="rack-1")
    group.join("two", instance_id="rack-2")
    group.join("one")
    group.share_out("one", "two")
    assert group.state is State.STABLE
    return group


def test_a_static_member_is_let_in_at_once(group: GroupScenario) -> None:
    joined = group.ask_to_join("one", instance_id="rack-1")
    assert joined.code is ErrorCode.none
    assert group.members == {"one"}


def test_one_that_comes_back_keeps_its_share_unnoticed(racks: GroupScenario) -> None:
    old_id, generation = racks.ids["two"], racks.generation
    back = racks.come_back("two")
    assert back.code is ErrorCode.none
    assert back.joined.member_id != old_id
    assert (back.joined.generation, racks.generation) == (generation, generation)
    assert racks.state is State.STABLE
    assert racks.sync("two").synced.assignment == b"two"
    assert racks.heartbeat("one") is ErrorCode.none


def test_the_new_id_is_written_before_it_is_returned(racks: GroupScenario) -> None:
    racks.disk_waits = True
    back = racks.come_back("two")
    assert back.is_waiting
    store = racks.stored[-1]
    assert store.purpose is Purpose.REPLACED
    assert [member.assignment for member in store.group.members] == [b"one", b"two"]
    racks.disk_answers()
    assert back.code is ErrorCode.none


def test_if_it_cannot_be_written_the_member_gets_an_error_and_asks_again(racks: GroupScenario) -> None:
    racks.disk_waits = True
    back = racks.come_back("two")
    racks.disk_answers(ErrorCode.coordinator_not_available)
    assert (back.code, back.joined.member_id) == (ErrorCode.coordinator_not_available, "")
    racks.disk_waits = False
    assert racks.come_back("two").code is ErrorCode.none


def test_a_rebalance_that_begins_meanwhile_answers_instead(racks: GroupScenario) -> None:
    racks.disk_waits = True
    back = racks.come_back("two")
    racks.join("three")
    racks.disk_answers()
    assert back.is_waiting
    racks.join("one")
    assert back.joined.generation == racks.generation
    assert back.answers == 1


def test_the_old_incarnation_is_fenced(racks: GroupScenario) -> None:
    old_id = racks.ids["two"]
    racks.come_back("two")
    racks.ids["ghost"] = old_id
    assert racks.heartbeat("ghost") is ErrorCode.unknown_member_id
    assert racks.group.heartbeat(old_id, "rack-2", racks.generation, racks.now_ms) is ErrorCode.fenced_instance_id
    assert racks.sync("two", member_id=old_id).code is ErrorCode.fenced_instance_id
    assert racks.ask_to_join("two", member_id=old_id).code is ErrorCode.fenced_instance_id
    assert racks.group.check_commit(old_id, "rack-2", 1, 0, ()) is ErrorCode.fenced_instance_id


def test_the_old_incarnation_that_waits_gets_an_error(racks: GroupScenario) -> None:
    racks.join("three")
    waiting = racks.join("two")
    assert waiting.is_waiting
    racks.come_back("two")
    assert waiting.code is ErrorCode.fenced_instance_id
    racks.join("one")
    share = racks.sync("two")
    racks.come_back("two")
    assert share.code is ErrorCode.fenced_instance_id


def test_a_leader_that_comes_back_skips_the_assignment(racks: GroupScenario) -> None:
    back = racks.come_back("one")
    assert back.joined.skip_assignment
    assert back.joined.leader == back.joined.member_id
    assert len(back.joined.members) == 2


def test_an_old_client_that_leads_does_not_learn_of_it(racks: GroupScenario) -> None:
    old_id = racks.ids["one"]
    back = racks.come_back("one", may_skip_assignment=False)
    assert not back.joined.skip_assignment
    assert (back.joined.leader, back.joined.members) == (old_id, ())
    assert racks.sync("one").synced.assignment == b"one"


def test_one_that_comes_back_with_another_favourite_protocol_starts_a_rebalance(group: GroupScenario) -> None:
    group.join("one", instance_id="rack-1", protocols="range sticky")
    group.share_out("one")
    back = group.come_back("one", protocols="sticky range")
    assert back.joined.protocol == "sticky"
    assert back.joined.generation == 2


def test_one_that_comes_back_while_the_leader_assigns_starts_a_rebalance(racks: GroupScenario) -> None:
    racks.join("three")
    racks.join("one")
    racks.join("two")
    assert racks.state is State.COMPLETING_REBALANCE
    back = racks.come_back("two")
    assert back.is_waiting
    assert racks.state is State.PREPARING_REBALANCE


def test_one_that_is_away_is_waited_for_as_long_as_its_session(racks: GroupScenario) -> None:
    three = racks.join("three")
    racks.join("one", session_timeout_ms=REBALANCE_MS * 2)
    racks.pass_time(SESSION_MS - 1)
    assert three.is_waiting
    racks.pass_time(1)
    assert three.code is ErrorCode.none
    assert racks.members == {"one", "three"}


def test_a_rebalance_that_runs_out_of_time_keeps_static_members(group: GroupScenario) -> None:
    group.join("one", instance_id="rack-1", session_timeout_ms=600_000)
    group.share_out("one")
    two = group.join("two")
    group.pass_time(REBALANCE_MS)
    assert two.code is ErrorCode.none
    assert group.members == {"one", "two"}
    assert group.leader == "two"


def test_a_rebalance_that_only_absent_static_members_are_left_in_waits_on(group: GroupScenario) -> None:
    group.join("one", instance_id="rack-1", session_timeout_ms=600_000)
    group.share_out("one")
    group.join("two")
    group.leave("two")
    group.pass_time(REBALANCE_MS)
    assert group.state is State.PREPARING_REBALANCE
    assert group.join("one").code is ErrorCode.none


def test_static_members_survive_a_restart_of_the_broker(racks: GroupScenario) -> None:
    racks.restart_broker(racks.stored[-1].group)
    back = racks.come_back("two", protocols=protocols("range"))
    assert back.code is ErrorCode.none
    assert racks.state is State.STABLE
    assert racks.sync("two").synced.assignment == b"two"


def test_one_that_comes_back_before_it_had_its_share_is_not_missed(group: GroupScenario) -> None:
    group.join("one", instance_id="rack-1")
    group.join("two", instance_id="rack-2")
    group.join("one")
    group.sync("one", {"one": b"one", "two": b"two"})
    group.come_back("two")
    group.pass_time(REBALANCE_MS, "one", "two")
    assert (group.state, group.members) == (State.STABLE, {"one", "two"})
