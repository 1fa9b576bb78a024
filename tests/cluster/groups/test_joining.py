"""JoinGroup: admitted and refused members, and the members that a rebalance waits for."""

import pytest
from group_scenario import REBALANCE_MS, SESSION_MS, GroupScenario, protocols
from kio.schema.errors import ErrorCode

from cordwood.cluster.groups.classic.group import PENDING_MAX
from cordwood.cluster.groups.classic.rebalance import State
from cordwood.cluster.groups.exchange import NO_MEMBER, MemberProtocol


def test_a_newcomer_is_given_an_id_and_let_in_when_it_comes_back_with_it(group: GroupScenario) -> None:
    first = group.ask_to_join("anna")
    assert first.code is ErrorCode.member_id_required
    assert first.joined.member_id == group.ids["anna"]
    assert group.members == set()

    second = group.ask_to_join("anna")
    assert second.code is ErrorCode.none
    assert second.joined.member_id == group.ids["anna"]
    assert second.joined.generation == 1
    assert second.joined.leader == group.ids["anna"]
    assert (second.joined.protocol_type, second.joined.protocol) == ("consumer", "range")


def test_an_old_client_is_let_in_at_once(group: GroupScenario) -> None:
    joined = group.ask_to_join("anna", must_know_id=False)
    assert joined.code is ErrorCode.none
    assert group.members == {"anna"}


def test_the_leader_learns_of_everyone_and_the_others_only_of_themselves(group: GroupScenario) -> None:
    group.stabilize("anna")
    ben = group.join("ben")
    assert ben.is_waiting
    anna = group.join("anna")
    assert group.leader == "anna"
    assert [member.member_id for member in anna.joined.members] == [group.ids["anna"], group.ids["ben"]]
    assert anna.joined.members[1].metadata == b"about range"
    assert ben.joined.members == ()
    assert ben.joined.leader == group.ids["anna"]
    assert ben.joined.generation == anna.joined.generation == 2


def test_an_empty_group_waits_a_while_for_more_members_and_longer_while_they_keep_coming() -> None:
    group = GroupScenario(initial_rebalance_delay_ms=3_000)
    anna = group.join("anna")
    group.pass_time(2_000)
    ben = group.join("ben")
    group.pass_time(1_000)
    assert anna.is_waiting
    assert ben.is_waiting
    group.pass_time(3_000)
    assert anna.code is ben.code is ErrorCode.none
    assert group.generation == 1


def test_the_wait_for_more_members_ends_with_the_rebalance_timeout() -> None:
    group = GroupScenario(initial_rebalance_delay_ms=3_000)
    first = group.join("member 0", rebalance_timeout_ms=10_000)
    for number in range(1, 12):
        group.pass_time(999)
        group.join(f"member {number}", rebalance_timeout_ms=10_000)
    assert not first.is_waiting


def test_an_initial_wait_whose_only_member_leaves_ends_in_an_empty_group() -> None:
    group = GroupScenario(initial_rebalance_delay_ms=3_000)
    anna = group.join("anna")
    assert group.leave("anna") == [ErrorCode.none]
    assert anna.code is ErrorCode.unknown_member_id
    group.pass_time(3_000)
    assert group.state is State.EMPTY


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"protocol_type": ""}, ErrorCode.inconsistent_group_protocol),
        ({"protocols": ()}, ErrorCode.inconsistent_group_protocol),
        ({"member_id": "made up"}, ErrorCode.unknown_member_id),
        ({"member_id": "made up", "instance_id": "unheard of"}, ErrorCode.unknown_member_id),
    ],
)
def test_an_empty_group_does_not_take_everyone(
    group: GroupScenario, changes: dict[str, object], code: ErrorCode
) -> None:
    assert group.ask_to_join("anna", **changes).code is code
    assert group.state is State.EMPTY


@pytest.mark.parametrize("changes", [{"protocol_type": "connect"}, {"protocols": "sticky"}])
def test_a_group_has_one_protocol_type_and_a_protocol_that_all_know(
    group: GroupScenario, changes: dict[str, object]
) -> None:
    group.stabilize("anna", protocols="range roundrobin")
    refused = group.ask_to_join("ben", **changes)
    assert refused.code is ErrorCode.inconsistent_group_protocol
    assert refused.joined.member_id == NO_MEMBER
    assert group.state is State.STABLE


def test_the_protocol_with_most_votes_among_those_that_all_know_is_chosen(group: GroupScenario) -> None:
    group.stabilize("anna", protocols="sticky range")
    group.join("ben", protocols="range sticky new")
    group.join("carl", protocols="range sticky")
    anna = group.join("anna")
    assert anna.joined.protocol == "range"


def test_a_protocol_named_twice_counts_once(group: GroupScenario) -> None:
    twice = (MemberProtocol("range", b"1"), MemberProtocol("range", b"2"))
    group.stabilize("anna", protocols=twice)
    group.join("ben")
    assert group.join("anna").joined.protocol == "range"


def test_a_full_group_turns_newcomers_away() -> None:
    group = GroupScenario(size_max=2)
    group.stabilize("anna", "ben")
    refused = group.ask_to_join("carl")
    assert refused.code is ErrorCode.group_max_size_reached
    assert refused.joined.member_id == NO_MEMBER
    assert group.members == {"anna", "ben"}


def test_a_group_that_has_given_out_too_many_ids_keeps_its_promises(group: GroupScenario) -> None:
    group.stabilize("anna")
    for number in range(PENDING_MAX):
        group.group.members.give(f"id {number}", until_ms=group.now_ms + SESSION_MS)
    assert group.ask_to_join("ben").code is ErrorCode.group_max_size_reached
    assert group.ask_to_join("carl", member_id="id 7").is_waiting
    assert group.join("anna").is_waiting
    assert group.ask_to_join("ben").code is ErrorCode.member_id_required, "there is room for one more"


def test_a_group_loaded_over_its_size_loses_those_who_come_back_last() -> None:
    large = GroupScenario()
    large.stabilize("anna", "ben", "carl")
    group = GroupScenario(size_max=2)
    group.ids = large.ids
    group.restart_broker(large.stored[-1].group)
    assert group.state is State.PREPARING_REBALANCE
    anna, ben = group.join("anna"), group.join("ben")
    assert group.join("carl").code is ErrorCode.group_max_size_reached
    assert anna.code is ben.code is ErrorCode.none
    assert group.members == {"anna", "ben"}


def test_a_follower_that_asks_again_learns_where_things_stand(group: GroupScenario) -> None:
    group.stabilize("anna", "ben")
    generation = group.generation
    again = group.join("ben")
    assert (again.code, again.joined.generation) == (ErrorCode.none, generation)
    assert group.state is State.STABLE


def test_a_leader_that_asks_again_has_everyone_join_anew(group: GroupScenario) -> None:
    group.stabilize("anna", "ben")
    anna = group.join("anna", reason="new partitions")
    assert anna.is_waiting
    assert group.state is State.PREPARING_REBALANCE
    assert "new partitions" in group.reasons[-1]
    group.join("ben")
    assert anna.code is ErrorCode.none


def test_a_follower_with_something_new_to_say_has_everyone_join_anew(group: GroupScenario) -> None:
    group.stabilize("anna", "ben")
    ben = group.join("ben", protocols=(MemberProtocol("range", b"another topic"),))
    anna = group.join("anna")
    assert ben.code is ErrorCode.none
    assert anna.joined.members[1].metadata == b"another topic"


def test_while_the_leader_assigns_an_unchanged_member_gets_its_answer_again(group: GroupScenario) -> None:
    group.stabilize("anna")
    group.join("ben")
    group.join("anna")
    assert group.state is State.COMPLETING_REBALANCE
    assert len(group.join("anna").joined.members) == 2
    assert group.join("ben").joined.members == ()
    assert group.state is State.COMPLETING_REBALANCE


def test_while_the_leader_assigns_a_changed_member_starts_all_over(group: GroupScenario) -> None:
    group.stabilize("anna")
    group.join("ben")
    group.join("anna")
    share = group.sync("ben")
    ben = group.join("ben", protocols=(MemberProtocol("range", b"changed"),))
    assert share.code is ErrorCode.rebalance_in_progress
    assert ben.is_waiting
    assert group.state is State.PREPARING_REBALANCE


def test_of_two_requests_of_one_member_the_later_counts(group: GroupScenario) -> None:
    group.stabilize("anna")
    first = group.join("ben")
    second = group.join("ben")
    assert first.code is ErrorCode.rebalance_in_progress
    assert second.is_waiting
    group.join("anna")
    assert second.code is ErrorCode.none
    assert first.answers == second.answers == 1


def test_a_rebalance_waits_for_those_who_were_promised_a_place(group: GroupScenario) -> None:
    group.stabilize("anna")
    group.ask_to_join("ben")
    group.join("carl")
    anna = group.join("anna")
    assert anna.is_waiting
    ben = group.ask_to_join("ben")
    assert anna.code is ben.code is ErrorCode.none
    assert group.members == {"anna", "ben", "carl"}


def test_a_promise_is_kept_for_a_sessions_time(group: GroupScenario) -> None:
    group.stabilize("anna")
    group.ask_to_join("ben")
    group.join("carl")
    anna = group.join("anna")
    group.pass_time(SESSION_MS)
    assert anna.code is ErrorCode.none
    assert group.ask_to_join("ben").code is ErrorCode.unknown_member_id


def test_who_does_not_join_in_time_is_left_behind(group: GroupScenario) -> None:
    group.stabilize("anna", "ben")
    carl = group.join("carl")
    ben = group.join("ben")
    group.pass_time(REBALANCE_MS - 1, "anna")
    assert carl.is_waiting
    group.pass_time(1, "anna")
    assert group.members == {"ben", "carl"}
    assert group.leader == "ben"
    assert len(ben.joined.members) == 2
    assert group.heartbeat("anna") is ErrorCode.unknown_member_id


def test_the_longest_rebalance_timeout_of_all_members_counts(group: GroupScenario) -> None:
    group.stabilize("anna", rebalance_timeout_ms=90_000)
    ben = group.join("ben", rebalance_timeout_ms=5_000)
    group.pass_time(89_999, "anna")
    assert ben.is_waiting
    group.pass_time(1, "anna")
    assert ben.code is ErrorCode.none


def test_a_member_that_vanished_while_it_joined_is_gone_in_the_end(group: GroupScenario) -> None:
    group.stabilize("anna")
    group.join("ben", rebalance_timeout_ms=3_600_000)
    group.pass_time(300_000, "anna")
    assert group.members == {"anna"}


def test_the_order_of_preference_is_part_of_what_a_member_says(group: GroupScenario) -> None:
    group.stabilize("anna", "ben", protocols="range sticky")
    assert group.join("ben", protocols=tuple(reversed(protocols("range", "sticky")))).is_waiting
