"""Static members of a consumer group come back to their partitions (KIP-345 in KIP-848)."""

import pytest
from consumer_group_scenario import SESSION_MS, ConsumerGroupScenario
from kio.schema.errors import ErrorCode


@pytest.fixture
def group() -> ConsumerGroupScenario:
    """A group of two static members, each with half of the partitions."""
    made = ConsumerGroupScenario()
    made.join("anna", instance_id="rack-a")
    made.join("ben", instance_id="rack-b")
    made.settle()
    return made


def test_a_static_member_that_comes_back_has_its_partitions(group: ConsumerGroupScenario) -> None:
    before, epoch = group.owns("anna"), group.consumers.group_epoch
    assert group.leave("anna", -2).member_epoch == -2
    group.settle("ben")
    assert group.counts()["ben"] == 3, "no other member gets them"
    group.clients["anna"].id = "id-anna-again"
    assert group.join("anna", instance_id="rack-a").code is ErrorCode.none
    assert group.owns("anna") == before
    assert group.consumers.group_epoch == epoch
    assert "id-anna" not in group.consumers.members.by_id


def test_a_static_member_that_leaves_keeps_nothing_that_it_had_to_revoke(group: ConsumerGroupScenario) -> None:
    group.join("carl")
    assert group.send("anna").assignment is not None  # type: ignore[union-attr]
    group.leave("anna", -2)
    group.settle("ben", "carl")
    assert group.counts() == {"anna": 0, "ben": 2, "carl": 2}, "the other two are kept for the one that may come back"


def test_a_static_member_that_stays_away_expires(group: ConsumerGroupScenario) -> None:
    group.leave("anna", -2)
    group.pass_time(SESSION_MS + 1, "ben")
    group.settle("ben")
    assert group.counts()["ben"] == 6


def test_a_static_member_may_leave_for_good(group: ConsumerGroupScenario) -> None:
    group.leave("anna", -1)
    group.settle("ben")
    assert group.counts()["ben"] == 6


def test_an_instance_id_in_use_is_not_released(group: ConsumerGroupScenario) -> None:
    group.clients["anna"].id = "another"
    assert group.join("anna", instance_id="rack-a").code is ErrorCode.unreleased_instance_id


def test_a_replaced_static_member_is_fenced(group: ConsumerGroupScenario) -> None:
    group.leave("anna", -2)
    group.clients["anna"].id = "id-anna-again"
    group.join("anna", instance_id="rack-a")
    old = {"member_id": "id-anna", "member_epoch": 2, "instance_id": "rack-a"}
    assert group.send("anna", **old).code is ErrorCode.fenced_instance_id  # type: ignore[union-attr]
    assert group.send("anna", **{**old, "member_epoch": -1}).code is ErrorCode.fenced_instance_id  # type: ignore[union-attr]


def test_an_unknown_instance_id_is_refused(group: ConsumerGroupScenario) -> None:
    for epoch in (1, -1, -2):
        reply = group.send("carl", member_epoch=epoch, instance_id="rack-c")
        assert reply is not None
        assert reply.code is ErrorCode.unknown_member_id


def test_a_static_member_comes_back_after_a_failover(group: ConsumerGroupScenario) -> None:
    before = group.owns("anna")
    group.leave("anna", -2)
    group.reload()
    group.clients["anna"].id = "id-anna-again"
    group.join("anna", instance_id="rack-a")
    assert group.owns("anna") == before


def test_a_static_member_that_comes_back_during_a_computation_has_what_was_computed_for_it(
    group: ConsumerGroupScenario,
) -> None:
    group.holds_computations = True
    group.change_topic("flights", 1000)
    group.send("ben")
    group.leave("anna", -2)
    group.clients["anna"].id = "id-anna-again"
    fields = {"rebalance_timeout_ms": 1000, "topics": frozenset({"flights"}), "owned": {}}
    group.send("anna", member_epoch=0, instance_id="rack-a", **fields)
    group.holds_computations = False
    group.finish_computations()
    group.clients["anna"].epoch = group.consumers.members.by_id["id-anna-again"].epoch
    group.settle()
    assert group.counts() == {"anna": 500, "ben": 500}


def test_a_static_member_that_comes_back_twice_during_a_computation_has_what_was_computed_for_it(
    group: ConsumerGroupScenario,
) -> None:
    group.holds_computations = True
    group.change_topic("flights", 1000)
    group.send("ben")
    end = group.run_computation()
    fields = {"rebalance_timeout_ms": 1000, "topics": frozenset({"flights"}), "owned": {}}
    for again in ("id-anna-2", "id-anna-3"):
        group.leave("anna", -2)
        group.clients["anna"].id = again
        group.send("anna", member_epoch=0, instance_id="rack-a", **fields)
        group.clients["anna"].epoch = group.consumers.members.by_id[again].epoch
    end()
    group.holds_computations = False
    group.finish_computations()
    assert group.consumers.targets.keys() == {"id-anna-3", "id-ben"}
    group.clients["anna"].epoch = group.consumers.members.by_id["id-anna-3"].epoch
    group.settle()
    assert group.counts() == {"anna": 500, "ben": 500}


def test_a_static_member_that_leaves_while_it_waits_for_its_assignment_is_away(group: ConsumerGroupScenario) -> None:
    group.holds_computations = True
    group.change_topic("flights", 1000)
    assert group.send("anna", topics=frozenset({"flights", "planes"})) is None
    group.leave("anna", -2)
    codes = [reply.code for reply in list(group.replies.values())[-2:]]  # type: ignore[union-attr]
    assert codes == [ErrorCode.unknown_member_id, ErrorCode.none]
    group.finish_computations()
    assert group.consumers.members.by_id["id-anna"].epoch == -2
