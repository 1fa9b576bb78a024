"""Members that leave a group: by LeaveGroup, by an administrator, or by session timeout."""

from dataclasses import replace

from group_scenario import SESSION_MS, GroupScenario
from kio.schema.errors import ErrorCode

from cordwood.cluster.groups.classic.rebalance import State
from cordwood.cluster.groups.exchange import Leaver, Purpose


def test_a_heartbeat_returns_the_state_of_the_group(group: GroupScenario) -> None:
    assert group.heartbeat("anna") is ErrorCode.unknown_member_id
    group.stabilize("anna")
    assert group.heartbeat("anna") is ErrorCode.none
    assert group.heartbeat("anna", generation=0) is ErrorCode.illegal_generation
    assert group.heartbeat("nobody") is ErrorCode.unknown_member_id
    group.join("ben")
    assert group.heartbeat("anna") is ErrorCode.rebalance_in_progress
    group.join("anna")
    assert group.state is State.COMPLETING_REBALANCE
    assert group.heartbeat("anna") is ErrorCode.none


def test_heartbeats_keep_a_member(group: GroupScenario) -> None:
    group.stabilize("anna", "ben")
    group.pass_time(10 * SESSION_MS, "anna", "ben")
    assert group.members == {"anna", "ben"}
    assert group.state is State.STABLE


def test_a_member_that_is_not_heard_of_is_gone_after_its_session(group: GroupScenario) -> None:
    group.stabilize("anna", "ben")
    group.pass_time(SESSION_MS - 1, "anna")
    assert group.members == {"anna", "ben"}
    group.pass_time(1, "anna")
    assert group.members == {"anna"}
    assert group.heartbeat("anna") is ErrorCode.rebalance_in_progress
    assert group.heartbeat("ben") is ErrorCode.unknown_member_id


def test_commits_and_joins_are_signs_of_life_too(group: GroupScenario) -> None:
    group.stabilize("anna", "ben")
    for _ in range(3):
        group.pass_time(SESSION_MS - 1, "anna")
        assert group.may_commit("ben") is ErrorCode.none
        group.pass_time(SESSION_MS - 1, "anna")
        group.join("ben")
        group.pass_time(SESSION_MS - 1, "anna")
        group.sync("ben")
    assert group.members == {"anna", "ben"}


def test_a_member_that_joins_again_may_have_another_session_timeout(group: GroupScenario) -> None:
    group.stabilize("anna")
    group.join("anna", session_timeout_ms=3 * SESSION_MS)
    group.share_out("anna")
    group.pass_time(3 * SESSION_MS - 1)
    assert group.members == {"anna"}
    group.pass_time(1)
    assert group.members == set()


def test_a_departure_may_be_what_a_rebalance_waits_for(group: GroupScenario) -> None:
    group.stabilize("anna", "ben")
    anna = group.join("anna")
    assert anna.is_waiting
    group.pass_time(SESSION_MS)
    assert anna.code is ErrorCode.none
    assert group.members == {"anna"}


def test_several_that_fall_silent_at_once_cost_one_rebalance(group: GroupScenario) -> None:
    group.stabilize("anna", "ben", "carl", "dora")
    rebalances = len(group.reasons)
    group.pass_time(SESSION_MS, "anna")
    assert group.members == {"anna"}
    assert len(group.reasons) == rebalances + 1


def test_who_leaves_is_gone_at_once(group: GroupScenario) -> None:
    group.stabilize("anna", "ben")
    assert group.leave("ben", reason="the consumer was closed") == [ErrorCode.none]
    assert group.members == {"anna"}
    assert group.state is State.PREPARING_REBALANCE
    assert group.reasons[-1] == f"{group.ids['ben']} left: the consumer was closed"


def test_when_the_leader_leaves_the_next_one_leads(group: GroupScenario) -> None:
    group.stabilize("anna", "ben", "carl")
    group.leave("anna")
    assert group.leader == "ben"
    group.join("carl")
    assert len(group.join("ben").joined.members) == 2


def test_the_group_is_empty_when_the_last_one_left_and_that_is_written_down(group: GroupScenario) -> None:
    group.stabilize("anna")
    group.leave("anna")
    assert group.state is State.EMPTY
    store = group.stored[-1]
    assert store.purpose is Purpose.EMPTIED
    assert (store.group.generation, store.group.protocol_type, store.group.protocol) == (2, "consumer", None)
    assert (store.group.members, store.group.leader) == ((), None)


def test_an_empty_group_may_become_one_of_another_kind(group: GroupScenario) -> None:
    group.stabilize("anna").leave("anna")
    worker = group.join("worker", protocol_type="connect", protocols="compatible")
    assert (worker.code, worker.joined.protocol_type) == (ErrorCode.none, "connect")
    assert group.generation == 3


def test_a_member_that_waits_gets_an_error_when_it_is_removed(group: GroupScenario) -> None:
    group.stabilize("anna", "ben")
    waiting = group.join("anna")
    group.leave("anna")
    assert waiting.code is ErrorCode.unknown_member_id
    group.join("ben")
    group.join("carl")
    group.join("ben")
    syncing = group.sync("carl")
    group.leave("carl")
    assert syncing.code is ErrorCode.unknown_member_id


def test_a_promise_can_be_given_back_without_a_rebalance(group: GroupScenario) -> None:
    group.stabilize("anna")
    group.ask_to_join("ben")
    assert group.leave("ben") == [ErrorCode.none]
    assert group.state is State.STABLE
    assert group.ask_to_join("ben").code is ErrorCode.unknown_member_id


def test_a_promise_given_back_may_be_what_a_rebalance_waits_for(group: GroupScenario) -> None:
    group.stabilize("anna")
    group.ask_to_join("ben")
    anna = group.join("anna")
    assert anna.is_waiting
    group.leave("ben")
    assert anna.code is ErrorCode.none


def test_each_of_many_leavers_has_its_own_code(group: GroupScenario) -> None:
    group.stabilize("anna", "ben", instance_id=None)
    group.join("static", instance_id="rack-1")
    codes = group.remove(
        Leaver(group.ids["ben"]),
        Leaver("nobody"),
        Leaver(group.ids["anna"], "rack-1"),
        Leaver("", "rack-1"),
        Leaver("", "rack-2"),
        Leaver(""),
    )
    assert codes == [
        ErrorCode.none,
        ErrorCode.unknown_member_id,
        ErrorCode.fenced_instance_id,
        ErrorCode.none,
        ErrorCode.unknown_member_id,
        ErrorCode.unknown_member_id,
    ]
    assert group.members == {"anna"}


def test_after_a_restart_of_the_broker_members_carry_on(group: GroupScenario) -> None:
    group.stabilize("anna", "ben")
    generation = group.generation
    group.restart_broker(group.stored[-1].group)
    assert group.state is State.STABLE
    assert group.generation == generation
    assert group.leader == "anna"
    assert group.heartbeat("anna") is group.heartbeat("ben") is ErrorCode.none
    assert group.sync("ben").synced.assignment == b"ben"
    group.pass_time(SESSION_MS, "anna")
    assert group.members == {"anna"}


def test_members_of_a_record_without_a_rebalance_timeout_have_a_session_to_join_again(group: GroupScenario) -> None:
    """Kafka wrote such records up to version 0.10."""
    saved = group.stabilize("anna", "ben").stored[-1].group
    group.restart_broker(replace(saved, members=tuple(one._replace(rebalance_timeout_ms=-1) for one in saved.members)))
    group.leave("ben")
    group.pass_time(SESSION_MS - 1, "anna")
    assert group.members == {"anna"}
    group.pass_time(1, "anna")
    assert group.members == set()
