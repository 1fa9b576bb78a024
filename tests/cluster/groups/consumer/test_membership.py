"""Members of a consumer group join, get partitions, revoke them for others, leave and expire (KIP-848)."""

import pytest
from consumer_group_scenario import HEARTBEAT_MS, REBALANCE_MS, SESSION_MS, ConsumerGroupScenario
from kio.schema.errors import ErrorCode

from cordwood.cluster.groups.consumer.state import RELEASED_AT_ONCE_MAX, WRITE_AGAIN_MS, ConsumerState

ALL = {("flights", index) for index in range(6)}
FLIGHTS = [("flights", 0)]


@pytest.fixture
def group() -> ConsumerGroupScenario:
    return ConsumerGroupScenario()


def test_the_first_member_gets_everything_with_its_first_reply(group: ConsumerGroupScenario) -> None:
    reply = group.join("anna")
    assert (reply.code, reply.member_id, reply.member_epoch) == (ErrorCode.none, "id-anna", 1)
    assert reply.heartbeat_interval_ms == HEARTBEAT_MS
    assert group.owns("anna") == ALL
    assert group.consumers.state is ConsumerState.STABLE


def test_a_partition_is_revoked_before_its_next_owner_gets_it(group: ConsumerGroupScenario) -> None:
    group.join("anna")
    reply = group.join("ben")
    assert reply.member_epoch == 2
    assert reply.assignment == {}
    assert group.consumers.state is ConsumerState.RECONCILING
    # The client has to revoke, and is still at it.
    sent = group.send("anna")
    assert sent is not None
    assert sent.assignment is not None
    assert sum(map(len, sent.assignment.values())) == 3
    assert sent.member_epoch == 1
    assert group.beat("ben").assignment in (None, {})
    # It has revoked, and advances.
    group.clients["anna"].owned = dict(sent.assignment)
    assert group.beat("anna", owned=dict(sent.assignment)).member_epoch == 2
    assert group.beat("ben").assignment is not None
    assert group.counts() == {"anna": 3, "ben": 3}
    assert group.owns("anna") | group.owns("ben") == ALL


def test_a_member_that_leaves_gives_its_partitions_to_the_others(group: ConsumerGroupScenario) -> None:
    group.join("anna")
    group.join("ben")
    group.settle()
    assert group.leave("anna").member_epoch == -1
    group.settle("ben")
    assert group.owns("ben") == ALL
    assert group.consumers.state is ConsumerState.STABLE


def test_the_last_member_leaves_an_empty_group(group: ConsumerGroupScenario) -> None:
    group.join("anna")
    group.leave("anna")
    assert group.consumers.state is ConsumerState.EMPTY
    assert group.group.next_deadline() is None
    assert group.consumers.check_delete() is ErrorCode.none


def test_the_assignment_is_sent_again_until_the_member_shows_it(group: ConsumerGroupScenario) -> None:
    group.join("anna")
    lost = group.send("anna")
    assert lost is not None
    assert lost.assignment is not None
    assert group.beat("anna").assignment is None, "the client has reported what it owns"


def test_an_assignment_is_not_sent_to_a_member_that_knows_it(group: ConsumerGroupScenario) -> None:
    group.join("anna")
    group.beat("anna")
    assert group.send("anna").assignment is None  # type: ignore[union-attr]


def test_an_assignment_is_sent_again_to_a_member_that_owns_something_else(group: ConsumerGroupScenario) -> None:
    assigned = group.join("anna").assignment
    group.beat("anna")
    assert group.beat("anna").assignment is None
    for _ in range(2):
        reply = group.send("anna", owned={})
        assert reply is not None
        assert reply.assignment == assigned


def test_a_full_request_gets_the_assignment_again(group: ConsumerGroupScenario) -> None:
    group.join("anna")
    group.beat("anna")
    owned = group.clients["anna"].owned
    reply = group.send("anna", rebalance_timeout_ms=REBALANCE_MS, topics=frozenset({"flights"}), owned=owned)
    assert reply is not None
    assert reply.assignment == owned
    assert group.consumers.group_epoch == 1


def test_a_lost_reply_to_a_join_is_repeated(group: ConsumerGroupScenario) -> None:
    group.join("anna")
    assert group.join("anna").member_epoch == 1
    assert group.consumers.group_epoch == 1


def test_the_previous_epoch_is_accepted_once_more(group: ConsumerGroupScenario) -> None:
    group.join("anna")
    group.beat("anna")
    group.join("ben")
    group.settle()
    assert group.clients["anna"].epoch == 2
    owned = group.clients["anna"].owned
    again = group.send("anna", member_epoch=1, owned=owned)
    assert again is not None
    assert (again.code, again.member_epoch) == (ErrorCode.none, 2)


@pytest.mark.parametrize("epoch", [3, 1])
def test_another_epoch_is_fenced(group: ConsumerGroupScenario, epoch: int) -> None:
    group.join("anna")
    group.join("ben")
    group.settle()
    reply = group.send("anna", member_epoch=epoch)
    assert reply is not None
    assert reply.code is ErrorCode.fenced_member_epoch
    assert "must abandon all its partitions" in (reply.message or "")


def test_the_previous_epoch_with_partitions_of_others_is_fenced(group: ConsumerGroupScenario) -> None:
    group.join("anna")
    before = group.clients["anna"].owned
    group.join("ben")
    group.settle()
    assert group.send("anna", member_epoch=1, owned=before).code is ErrorCode.fenced_member_epoch  # type: ignore[union-attr]


def test_an_unknown_member_is_refused(group: ConsumerGroupScenario) -> None:
    group.join("anna")
    reply = group.send("ben", member_epoch=1)
    assert reply is not None
    assert reply.code is ErrorCode.unknown_member_id


def test_a_silent_member_expires(group: ConsumerGroupScenario) -> None:
    group.join("anna")
    group.join("ben")
    group.settle()
    group.pass_time(SESSION_MS + HEARTBEAT_MS, "ben")
    group.settle("ben")
    assert group.owns("ben") == ALL
    assert group.beat("anna").code is ErrorCode.unknown_member_id


def test_a_member_that_does_not_revoke_in_time_is_removed(group: ConsumerGroupScenario) -> None:
    group.join("anna")
    group.beat("anna")
    group.join("ben")
    held = group.clients["anna"].owned
    for _ in range(REBALANCE_MS // HEARTBEAT_MS + 2):
        if "id-anna" in group.consumers.members.by_id:
            # Its heartbeats go on, with all that it had.
            group.send("anna", owned=held)
        group.pass_time(HEARTBEAT_MS, "ben")
    assert "id-anna" not in group.consumers.members.by_id
    group.settle("ben")
    assert group.owns("ben") == ALL


def test_the_time_to_revoke_goes_on_after_a_failover(group: ConsumerGroupScenario) -> None:
    group.join("anna")
    group.beat("anna")
    group.join("ben")
    held = group.clients["anna"].owned
    group.send("anna", owned=held)
    group.reload()
    for _ in range(REBALANCE_MS // HEARTBEAT_MS + 2):
        if "id-anna" in group.consumers.members.by_id:
            group.send("anna", owned=held)
        group.pass_time(HEARTBEAT_MS, "ben")
    assert "id-anna" not in group.consumers.members.by_id


def test_a_member_that_revokes_in_time_stays(group: ConsumerGroupScenario) -> None:
    group.join("anna")
    group.join("ben")
    group.settle()
    group.pass_time(3 * REBALANCE_MS, "anna", "ben")
    assert group.counts() == {"anna": 3, "ben": 3}


def test_a_changed_subscription_moves_partitions() -> None:
    group = ConsumerGroupScenario({"flights": 2, "planes": 2})
    group.join("anna", "flights")
    group.beat("anna", topics=frozenset({"planes"}))
    group.settle()
    assert group.owns("anna") == {("planes", 0), ("planes", 1)}


def test_what_a_member_has_to_revoke_stays_its_own_while_it_unsubscribes_from_something_else() -> None:
    group = ConsumerGroupScenario({"flights": 4, "planes": 4})
    group.join("anna", "flights", "planes")
    group.beat("anna")
    group.join("ben", "flights")
    owned = dict(group.clients["anna"].owned)
    for change in ({}, {"topics": frozenset({"flights"})}):
        group.send("anna", owned=owned, **change)
        group.settle("ben")
        assert group.owns("ben") == set(), "the other member has revoked nothing yet"
    group.settle()
    assert group.counts() == {"anna": 2, "ben": 2}


def test_a_topic_that_does_not_exist_is_read_once_it_does(group: ConsumerGroupScenario) -> None:
    assert group.join("anna", "later").assignment == {}
    group.change_topic("later", 2)
    group.settle()
    assert group.owns("anna") == {("later", 0), ("later", 1)}


def test_new_partitions_are_assigned_and_deleted_topics_are_not(group: ConsumerGroupScenario) -> None:
    group.join("anna")
    group.join("ben")
    group.settle()
    epoch = group.consumers.group_epoch
    group.change_topic("flights", 8)
    group.settle()
    assert group.counts() == {"anna": 4, "ben": 4}
    assert group.consumers.group_epoch == epoch + 1
    group.change_topic("flights", 0)
    group.settle()
    assert group.counts() == {"anna": 0, "ben": 0}


def test_a_topic_without_subscribers_changes_nothing(group: ConsumerGroupScenario) -> None:
    group.join("anna")
    epoch = group.consumers.group_epoch
    group.change_topic("planes", 3)
    group.settle()
    assert group.consumers.group_epoch == epoch


def test_the_group_is_full() -> None:
    group = ConsumerGroupScenario(consumer_size_max=1)
    group.join("anna")
    assert group.join("ben").code is ErrorCode.group_max_size_reached
    assert group.beat("anna").code is ErrorCode.none


def test_a_failed_write_refuses_the_request_and_goes_with_the_next(group: ConsumerGroupScenario) -> None:
    group.join("anna")
    group.beat("anna")
    group.log_code = ErrorCode.coordinator_not_available
    assert group.join("ben").code is ErrorCode.coordinator_not_available
    group.log_code = ErrorCode.none
    assert group.join("ben").code is ErrorCode.none
    group.settle()
    before = group.counts()
    group.reload()
    group.settle()
    assert group.counts() == before == {"anna": 3, "ben": 3}


def test_a_failed_write_is_repeated_after_a_pause_and_without_a_request(group: ConsumerGroupScenario) -> None:
    group.join("anna")
    group.join("ben")
    group.settle()
    group.log_code = ErrorCode.not_enough_replicas
    assert group.leave("anna").code is ErrorCode.not_enough_replicas
    writes = group.failed_writes
    for _ in range(3):
        group.perform()
    assert group.failed_writes == writes
    group.pass_time(3 * WRITE_AGAIN_MS)
    assert writes < group.failed_writes <= writes + 3
    group.log_code = ErrorCode.none
    group.pass_time(WRITE_AGAIN_MS)
    group.reload()
    assert set(group.consumers.members.by_id) == {"id-ben"}


def test_only_the_members_that_changed_are_written(group: ConsumerGroupScenario) -> None:
    for number in range(6):
        group.join(f"m{number}")
    group.settle()
    group.beat("m1")
    assert group.types_written() == []
    group.beat("m1", topics=frozenset({"flights", "planes"}))
    # The member's metadata and the epochs; no partitions of others change.
    assert set(group.types_written()) == {3, 5, 6, 8}
    assert group.types_written().count(8) == 1


def test_a_restored_group_goes_on_as_before(group: ConsumerGroupScenario) -> None:
    group.join("anna")
    group.join("ben")
    group.beat("anna")
    epoch, state = group.consumers.group_epoch, group.consumers.state
    group.reload()
    assert (group.consumers.group_epoch, group.consumers.state) == (epoch, state)
    group.settle()
    assert group.counts() == {"anna": 3, "ben": 3}
    assert group.consumers.group_epoch == epoch


def test_restored_members_expire_too(group: ConsumerGroupScenario) -> None:
    group.join("anna")
    group.reload()
    group.pass_time(SESSION_MS + 1)
    assert group.consumers.state is ConsumerState.EMPTY


def test_requests_wait_for_a_large_assignment_and_share_it(group: ConsumerGroupScenario) -> None:
    group.holds_computations = True
    group.change_topic("flights", 1000)
    waiting = [
        group.send(f"m{n}", rebalance_timeout_ms=REBALANCE_MS, topics=frozenset({"flights"}), owned={}) for n in (0, 1)
    ]
    assert waiting == [None, None]
    group.holds_computations = False
    group.finish_computations()
    assert len(group.replies) == 2
    assert group.consumers.group_epoch == group.consumers.assignment_epoch == 2


def test_of_many_waiting_requests_some_are_answered_after_the_others(group: ConsumerGroupScenario) -> None:
    group.holds_computations = True
    group.change_topic("flights", 1000)
    fields = {"rebalance_timeout_ms": REBALANCE_MS, "topics": frozenset({"flights"}), "owned": {}}
    for number in range(RELEASED_AT_ONCE_MAX + 1):
        group.send(f"m{number}", **fields)
    group.holds_computations = False
    group.finish_computations()
    assert len(group.replies) == RELEASED_AT_ONCE_MAX
    assert group.consumers.next_deadline() == group.now_ms
    group.pass_time(1)
    assert len(group.replies) == RELEASED_AT_ONCE_MAX + 1


def test_a_member_that_leaves_while_its_assignment_is_computed_is_refused(group: ConsumerGroupScenario) -> None:
    group.holds_computations = True
    group.change_topic("flights", 1000)
    group.send("anna", rebalance_timeout_ms=REBALANCE_MS, topics=frozenset({"flights"}), owned={})
    group.leave("anna")
    codes = [reply.code for reply in group.replies.values()]  # type: ignore[union-attr]
    assert codes == [ErrorCode.unknown_member_id, ErrorCode.none]
    group.finish_computations()
    assert group.consumers.state is ConsumerState.EMPTY


def test_the_assignment_epoch_of_a_group_that_became_empty_does_not_go_back(group: ConsumerGroupScenario) -> None:
    group.holds_computations = True
    group.change_topic("flights", 1000)
    group.send("anna", rebalance_timeout_ms=REBALANCE_MS, topics=frozenset({"flights"}), owned={})
    end = group.run_computation()
    group.leave("anna")
    assert group.consumers.assignment_epoch == group.consumers.group_epoch
    end()
    assert group.consumers.assignment_epoch == group.consumers.group_epoch


def test_a_member_that_leaves_while_its_assignment_is_computed_leaves_no_records(group: ConsumerGroupScenario) -> None:
    group.change_topic("flights", 1000)
    group.join("anna")
    group.holds_computations = True
    group.send("ben", rebalance_timeout_ms=REBALANCE_MS, topics=frozenset({"flights"}), owned={})
    end = group.run_computation()
    group.leave("ben")
    end()
    group.finish_computations()
    assert not [key for key in group.log if b"id-ben" in key]
    assert group.consumers.targets.keys() == {"id-anna"}


def test_a_group_is_stable_once_all_members_have_the_new_assignment(group: ConsumerGroupScenario) -> None:
    group.join("anna")
    group.join("ben")
    group.settle()
    group.change_topic("flights", 8)
    for _ in range(3):
        group.beat("ben")
    assert group.consumers.state is ConsumerState.RECONCILING, "the other member does not know of it"
    group.settle()
    assert group.consumers.state is ConsumerState.STABLE


def test_commits_need_the_members_epoch(group: ConsumerGroupScenario) -> None:
    consumers = group.consumers
    assert consumers.check_commit("", None, -1, 0, FLIGHTS) is ErrorCode.none
    group.join("anna")
    assert consumers.check_commit("id-anna", None, 1, 0, FLIGHTS) is ErrorCode.none
    assert consumers.check_commit("id-anna", None, 0, 0, FLIGHTS) is ErrorCode.stale_member_epoch
    assert consumers.check_commit("id-anna", None, 1, 0, FLIGHTS, knows_epochs=False) is ErrorCode.unsupported_version
    assert consumers.check_commit("", None, -1, 0, FLIGHTS) is ErrorCode.unknown_member_id
    assert consumers.check_fetch("id-anna", 1) is ErrorCode.none
    assert consumers.check_fetch("id-anna", 2) is ErrorCode.stale_member_epoch
    assert consumers.check_fetch("id-anna", -1) is ErrorCode.stale_member_epoch
    assert consumers.check_fetch("id-ben", -1) is ErrorCode.unknown_member_id
    assert consumers.check_fetch(None, -1) is ErrorCode.none
    assert consumers.check_fetch("id-ben", 1) is ErrorCode.unknown_member_id
    assert consumers.check_fetch(None, -1) is ErrorCode.none
    assert consumers.check_transactional_commit("", None, -1, FLIGHTS) is ErrorCode.none
    assert consumers.check_transactional_commit("id-anna", None, 1, FLIGHTS) is ErrorCode.none
    assert consumers.check_transactional_commit("id-anna", None, 0, FLIGHTS) is ErrorCode.stale_member_epoch
    for epoch in (1, -1):
        assert consumers.check_transactional_commit("id-ben", None, epoch, FLIGHTS) is ErrorCode.unknown_member_id
    assert consumers.check_transactional_commit("id-anna", None, -1, FLIGHTS) is ErrorCode.stale_member_epoch
    assert consumers.check_delete() is ErrorCode.non_empty_group
    assert consumers.retained_from("flights", 7) is None
    assert consumers.retained_from("planes", 7) == 7
