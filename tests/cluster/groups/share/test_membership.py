"""Members of a share group: joins, heartbeats, epochs, sessions, and the partitions that they get."""

import pytest
from kio.schema.errors import ErrorCode
from share_group_scenario import ShareGroupScenario

from cordwood.cluster.config.group_configs import GroupConfig, ShareConfig
from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.groups.exchange import Compute
from cordwood.cluster.groups.share.exchange import Initialize, ShareHeartbeat, check_heartbeat
from cordwood.cluster.groups.share.group import JOIN_WAIT_MS
from cordwood.cluster.groups.share.states import RETRY_MS


def test_the_first_member_gets_all_partitions_with_its_first_reply() -> None:
    group = ShareGroupScenario(flights=3)
    reply = group.join("a", "flights")
    assert reply.assignment is not None
    assert group.named(reply.assignment) == {"flights": [0, 1, 2]}
    assert (reply.member_id, reply.member_epoch, reply.heartbeat_interval_ms) == ("a", group.group.epoch, 5_000)
    assert group.group.state_name == "Stable"


def test_a_member_that_knows_its_assignment_gets_none() -> None:
    group = ShareGroupScenario(flights=3)
    group.join("a", "flights")
    assert group.beat("a") is None


def test_two_members_divide_the_partitions() -> None:
    group = ShareGroupScenario(flights=4)
    group.join("a", "flights")
    group.join("b", "flights")
    assigned = group.settle()
    assert sorted(assigned["a"]["flights"] + assigned["b"]["flights"]) == [0, 1, 2, 3]
    assert len(assigned["a"]["flights"]) == 2


def test_more_members_than_partitions_share_them() -> None:
    group = ShareGroupScenario(flights=2)
    for member in "abcde":
        group.join(member, "flights")
    assigned = group.settle()
    assert all(assigned[member] for member in "abcde")
    assert {index for partitions in assigned.values() for index in partitions["flights"]} == {0, 1}


def test_members_get_only_topics_that_they_subscribe_to() -> None:
    group = ShareGroupScenario(flights=2, trains=2)
    group.join("a", "flights")
    group.join("b", "trains")
    group.join("c", "flights", "trains")
    assigned = group.settle()
    assert list(assigned["a"]) == ["flights"]
    assert list(assigned["b"]) == ["trains"]


def test_a_member_that_leaves_makes_room() -> None:
    group = ShareGroupScenario(flights=4)
    group.join("a", "flights")
    group.join("b", "flights")
    group.settle()
    left = group.leave("b")
    assert (left.code, left.member_id, left.member_epoch) == (ErrorCode.none, "b", -1)
    assert group.beat("a") == {"flights": [0, 1, 2, 3]}
    group.leave("a")
    assert (group.group.state_name, group.group.member_count) == ("Empty", 0)
    assert group.group.assignment_epoch == group.group.epoch


def test_a_group_does_not_read_what_only_a_former_member_read() -> None:
    group = ShareGroupScenario(flights=1, trains=1)
    group.join("a", "flights", "trains")
    group.join("b", "flights")
    group.leave("a")
    assert (group.group.subscribed_topics, group.group.reads("trains")) == (frozenset({"flights"}), False)
    group.settle()
    epoch = group.group.epoch
    group.create("trains", 2)
    group.settle()
    assert group.group.epoch == epoch


def test_a_silent_member_is_removed() -> None:
    group = ShareGroupScenario(flights=4)
    group.join("a", "flights")
    group.join("b", "flights")
    group.pass_time(40_000)
    group.beat("a")
    group.pass_time(5_000)
    assert [member.id for member in group.group.members] == ["a"]
    assert group.heartbeat("b", 1).code is ErrorCode.unknown_member_id


def test_a_session_timeout_that_is_changed_holds_from_the_next_heartbeat_on() -> None:
    group = ShareGroupScenario(flights=1)
    group.join("a", "flights")
    group.config = GroupConfig(share=ShareConfig(session_timeout_ms=100_000, heartbeat_interval_ms=7_000))
    assert group.heartbeat("a", group.epoch_of("a")).heartbeat_interval_ms == 7_000
    group.pass_time(99_999)
    assert group.group.member_count == 1
    group.pass_time(1)
    assert group.group.member_count == 0


def test_the_previous_epoch_is_accepted_and_gets_the_assignment_again() -> None:
    group = ShareGroupScenario(flights=2)
    first = group.join("a", "flights").member_epoch
    group.join("b", "flights")
    assert group.beat("a") == {"flights": [0]}
    again = group.heartbeat("a", first)
    assert again.code is ErrorCode.none
    assert again.assignment is not None
    assert group.named(again.assignment) == {"flights": [0]}


@pytest.mark.parametrize("off", [1, -2])
def test_another_epoch_is_fenced(off: int) -> None:
    group = ShareGroupScenario(flights=2)
    group.join("a", "flights")
    for _ in range(3):
        group.join("b", "flights")
        group.beat("a")
        group.leave("b")
        group.beat("a")
    assert group.heartbeat("a", group.epoch_of("a") + off).code is ErrorCode.fenced_member_epoch


def test_a_member_may_join_again_with_its_id() -> None:
    group = ShareGroupScenario(flights=2)
    group.join("a", "flights")
    epoch = group.group.epoch
    again = group.join("a", "flights")
    assert (again.member_epoch, group.group.epoch, group.group.member_count) == (epoch, epoch, 1)
    assert again.assignment is not None


def test_unknown_members_are_refused() -> None:
    group = ShareGroupScenario(flights=2)
    group.join("a", "flights")
    assert group.heartbeat("b", 1).code is ErrorCode.unknown_member_id
    assert group.leave("b").code is ErrorCode.unknown_member_id


def test_a_full_group_takes_no_more_members() -> None:
    group = ShareGroupScenario(size_max=2, flights=2)
    group.join("a", "flights")
    group.join("b", "flights")
    assert group.heartbeat("c", 0, "flights").code is ErrorCode.group_max_size_reached
    assert group.join("a", "flights").code is ErrorCode.none


def test_a_changed_subscription_changes_the_assignment() -> None:
    group = ShareGroupScenario(flights=1, trains=1)
    group.join("a", "flights")
    reply = group.heartbeat("a", group.epoch_of("a"), "trains")
    group.beat("a")
    assert reply.code is ErrorCode.none
    assert group.assigned() == {"a": {"trains": [0]}}


def test_new_topics_and_partitions_are_assigned() -> None:
    group = ShareGroupScenario()
    assert group.join("a", "flights").assignment == {}
    group.create("flights", 1)
    group.beat("a")
    assert group.settle() == {"a": {"flights": [0]}}
    group.create("flights", 3)
    group.beat("a")
    assert group.settle() == {"a": {"flights": [0, 1, 2]}}


def test_a_deleted_topic_is_taken_away_with_its_share_states() -> None:
    group = ShareGroupScenario(flights=2, trains=1)
    group.join("a", "flights", "trains")
    flights = group.topics["flights"].id
    group.delete("flights")
    assert [one.partitions for one in group.discarded] == [((flights, 0), (flights, 1))]
    assert group.beat("a") == {"trains": [0]}
    assert group.group.states.topic_ids() == {group.topics["trains"].id}


def test_a_partition_is_assigned_once_its_share_state_is_initialized() -> None:
    group = ShareGroupScenario(flights=1)
    group.join("a", "flights")
    group.create("flights", 2)
    group.holds = (Initialize,)
    group.beat("a")
    assert group.settle() == {"a": {"flights": [0]}}
    group.release()
    assert group.settle() == {"a": {"flights": [0, 1]}}


def test_a_join_waits_for_share_states_only_for_a_moment() -> None:
    group = ShareGroupScenario(flights=1)
    group.holds = (Initialize,)
    number = group.send("a", 0, "flights")
    group.pass_time(JOIN_WAIT_MS - 1)
    assert number not in group.replies
    group.pass_time(1)
    assert group.replies[number].assignment == {}
    group.release()
    assert group.beat("a") == {"flights": [0]}


def test_a_failed_initialization_is_tried_again() -> None:
    group = ShareGroupScenario(flights=1)
    group.holds = (Initialize,)
    number = group.send("a", 0, "flights")
    group.release(fails=True)
    assert group.replies[number].assignment == {}
    assert group.beat("a") is None
    group.pass_time(RETRY_MS)
    group.beat("a")
    assert group.settle() == {"a": {"flights": [0]}}


def test_a_large_assignment_is_computed_beside_heartbeats() -> None:
    group = ShareGroupScenario(flights=300)
    group.join("a", "flights")
    group.holds = (Compute,)
    number = group.send("b", 0, "flights")
    assert number not in group.replies
    assert group.beat("a") is None
    group.release()
    reply = group.replies[number]
    assert reply.assignment is not None
    assert len(group.named(reply.assignment)["flights"]) == 150


@pytest.mark.parametrize(
    "request_",
    [
        ShareHeartbeat("", 0, frozenset({"flights"})),
        ShareHeartbeat(" ", 1),
        ShareHeartbeat("a" * 37, 0, frozenset({"flights"})),
        ShareHeartbeat("a", 0, None),
        ShareHeartbeat("a", 0, frozenset()),
        ShareHeartbeat("a", -2),
        ShareHeartbeat("a", 1, rack_id=" "),
        ShareHeartbeat("a", 0, frozenset({"x" * 40_000})),
    ],
)
def test_a_request_that_no_group_accepts_is_invalid(request_: ShareHeartbeat) -> None:
    with pytest.raises(Refused) as refused:
        check_heartbeat("workers", request_)
    assert refused.value.code is ErrorCode.invalid_request


def test_a_group_needs_a_name() -> None:
    with pytest.raises(Refused):
        check_heartbeat(" ", ShareHeartbeat("a", 0, frozenset({"flights"})))
