"""SyncGroup: the leader's assignment is stored before any member receives its share."""

import pytest
from group_scenario import REBALANCE_MS, SESSION_MS, GroupScenario
from kio.schema.errors import ErrorCode

from cordwood.cluster.groups.classic.rebalance import State
from cordwood.cluster.groups.exchange import Purpose


@pytest.fixture
def pair(group: GroupScenario) -> GroupScenario:
    """Return a group in which Anna, the leader, and Ben have joined; there is no assignment yet."""
    group.stabilize("anna")
    group.join("ben")
    group.join("anna")
    assert group.state is State.COMPLETING_REBALANCE
    return group


def test_followers_wait_for_the_leader(pair: GroupScenario) -> None:
    ben = pair.sync("ben")
    assert ben.is_waiting
    anna = pair.sync("anna", {"anna": b"0, 1", "ben": b"2, 3"})
    assert (anna.synced.assignment, ben.synced.assignment) == (b"0, 1", b"2, 3")
    assert (ben.synced.protocol_type, ben.synced.protocol) == ("consumer", "range")
    assert pair.state is State.STABLE


def test_who_comes_late_gets_its_share_too(pair: GroupScenario) -> None:
    pair.sync("anna", {"anna": b"0, 1", "ben": b"2, 3"})
    assert pair.sync("ben").synced.assignment == b"2, 3"


def test_whom_the_leader_forgot_gets_nothing(pair: GroupScenario) -> None:
    pair.sync("anna", {"anna": b"all"})
    ben = pair.sync("ben")
    assert (ben.code, ben.synced.assignment) == (ErrorCode.none, b"")


def test_no_member_gets_an_assignment_that_is_not_on_disk(pair: GroupScenario) -> None:
    pair.disk_waits = True
    ben = pair.sync("ben")
    anna = pair.sync("anna", {"ben": b"2"})
    assert anna.is_waiting
    assert ben.is_waiting
    assert pair.state is State.COMPLETING_REBALANCE
    pair.disk_answers()
    assert anna.code is ben.code is ErrorCode.none


def test_what_is_written_down_is_the_whole_group(pair: GroupScenario) -> None:
    pair.sync("anna", {"anna": b"0", "ben": b"1"})
    store = pair.stored[-1]
    assert store.purpose is Purpose.ASSIGNED
    assert (store.group.generation, store.group.leader) == (2, pair.ids["anna"])
    assert [(member.member_id, member.assignment, member.subscription) for member in store.group.members] == [
        (pair.ids["anna"], b"0", b"about range"),
        (pair.ids["ben"], b"1", b"about range"),
    ]


def test_an_assignment_that_cannot_be_written_is_void(pair: GroupScenario) -> None:
    pair.disk_waits = True
    ben, anna = pair.sync("ben"), pair.sync("anna", {"ben": b"2"})
    pair.disk_answers(ErrorCode.coordinator_not_available)
    assert anna.code is ben.code is ErrorCode.coordinator_not_available
    assert pair.state is State.PREPARING_REBALANCE


def test_an_assignment_that_was_overtaken_by_a_rebalance_counts_for_nothing(pair: GroupScenario) -> None:
    pair.disk_waits = True
    anna = pair.sync("anna", {"ben": b"2"})
    pair.join("carl")
    assert anna.code is ErrorCode.rebalance_in_progress
    pair.disk_answers()
    assert pair.state is State.PREPARING_REBALANCE
    assert anna.answers == 1


def test_a_leader_that_asks_twice_assigns_once(pair: GroupScenario) -> None:
    pair.disk_waits = True
    first = pair.sync("anna", {"anna": b"first"})
    second = pair.sync("anna", {"anna": b"second"})
    assert first.code is ErrorCode.rebalance_in_progress
    pair.disk_answers()
    assert second.synced.assignment == b"first"


def test_a_leader_that_asks_twice_is_written_once(pair: GroupScenario) -> None:
    pair.disk_waits = True
    for share in (b"first", b"second"):
        pair.sync("anna", {"anna": share})
    assert [member.assignment for member in pair.stored[-1].group.members] == [b"first", b""]


def test_a_group_that_becomes_one_of_another_kind_refuses_all_that_wait(pair: GroupScenario) -> None:
    waiting = pair.sync("ben")
    pair.refuse_waiting(ErrorCode.rebalance_in_progress)
    assert (waiting.code, waiting.answers) == (ErrorCode.rebalance_in_progress, 1)
    joining = pair.join("carl")
    pair.refuse_waiting(ErrorCode.rebalance_in_progress)
    assert (joining.code, joining.answers) == (ErrorCode.rebalance_in_progress, 1)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"member_id": "nobody"}, ErrorCode.unknown_member_id),
        ({"instance_id": "unheard of"}, ErrorCode.unknown_member_id),
        ({"generation": 1}, ErrorCode.illegal_generation),
        ({"generation": 3}, ErrorCode.illegal_generation),
        ({"protocol_type": "connect"}, ErrorCode.inconsistent_group_protocol),
        ({"protocol": "sticky"}, ErrorCode.inconsistent_group_protocol),
    ],
)
def test_a_share_is_only_for_members_who_know_where_the_group_stands(
    pair: GroupScenario, changes: dict[str, object], code: ErrorCode
) -> None:
    assert pair.sync("ben", **changes).code is code
    assert pair.state is State.COMPLETING_REBALANCE


def test_there_are_no_shares_while_members_still_join(pair: GroupScenario) -> None:
    pair.share_out("anna", "ben")
    pair.join("carl")
    assert pair.sync("ben").code is ErrorCode.rebalance_in_progress


def test_there_are_no_shares_in_an_empty_group(group: GroupScenario) -> None:
    assert group.sync("nobody").code is ErrorCode.unknown_member_id


def test_a_leader_that_never_assigns_is_left_behind(pair: GroupScenario) -> None:
    ben = pair.sync("ben")
    pair.pass_time(REBALANCE_MS, "anna", "ben")
    assert ben.code is ErrorCode.rebalance_in_progress
    assert pair.members == {"ben"}
    assert pair.state is State.PREPARING_REBALANCE
    assert len(pair.join("ben").joined.members) == 1


def test_a_member_that_never_fetches_its_share_is_left_behind(pair: GroupScenario) -> None:
    pair.sync("anna", {"ben": b"1"})
    assert pair.state is State.STABLE
    pair.pass_time(REBALANCE_MS, "anna", "ben")
    assert pair.members == {"anna"}
    assert pair.heartbeat("anna") is ErrorCode.rebalance_in_progress


def test_who_waits_for_its_share_need_not_send_heartbeats(pair: GroupScenario) -> None:
    ben = pair.sync("ben")
    pair.pass_time(3 * SESSION_MS, "anna")
    assert ben.is_waiting
    assert pair.members == {"anna", "ben"}
    pair.sync("anna", {"ben": b"1"})
    pair.pass_time(SESSION_MS - 1, "anna")
    assert pair.members == {"anna", "ben"}
    pair.pass_time(1, "anna")
    assert pair.members == {"anna"}


@pytest.mark.parametrize("is_written_first", [True, False])
def test_an_assignment_of_an_earlier_generation_takes_no_part_in_the_next_one(
    pair: GroupScenario, is_written_first: bool
) -> None:
    pair.disk_waits = True
    pair.sync("anna", {"ben": b"old"})
    pair.join("carl")
    for name in ("ben", "anna"):
        pair.join(name)
    assert pair.state is State.COMPLETING_REBALANCE
    if is_written_first:
        pair.disk_answers()
    carl, _ = pair.sync("carl"), pair.sync(pair.leader, {"carl": b"new"})
    assert (carl.is_waiting, pair.state) == (True, State.COMPLETING_REBALANCE)
    pair.disk_answers()
    assert (carl.synced.assignment, pair.state) == (b"new", State.STABLE)


def test_a_rebalance_has_its_whole_time_whatever_the_sync_before_had_left(pair: GroupScenario) -> None:
    pair.pass_time(REBALANCE_MS // 2, "anna", "ben")
    carl = pair.join("carl")
    pair.pass_time(REBALANCE_MS - 1, "anna", "ben")
    assert (carl.is_waiting, pair.members) == (True, {"anna", "ben", "carl"})
    pair.pass_time(1, "anna", "ben")
    assert pair.members == {"carl"}


def test_a_member_that_neither_synced_nor_joined_again_is_not_missed_twice(pair: GroupScenario) -> None:
    pair.join("carl")
    pair.join("anna")
    pair.pass_time(REBALANCE_MS, "ben")
    assert pair.members == {"anna", "carl"}
    pair.share_out("anna", "carl")
    generation = pair.generation
    pair.pass_time(REBALANCE_MS, "anna", "carl")
    assert (pair.state, pair.generation) == (State.STABLE, generation)
