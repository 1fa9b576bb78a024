"""The checks of OffsetCommit, OffsetDelete and DeleteGroups."""

import struct

from group_scenario import GroupScenario
from kio.schema.errors import ErrorCode

from cordwood.cluster.groups.classic.rebalance import State
from cordwood.cluster.groups.exchange import MemberProtocol
from cordwood.cluster.groups.subscription import topics_of


def subscription(*topics: str, version: int = 3) -> bytes:
    names = b"".join(struct.pack(">h", len(topic)) + topic.encode() for topic in topics)
    return struct.pack(">hi", version, len(topics)) + names + b"whatever later versions add"


def subscribed_to(*topics: str) -> tuple[MemberProtocol, ...]:
    return (MemberProtocol("range", subscription(*topics)),)


def test_members_commit_in_their_generation(group: GroupScenario) -> None:
    group.stabilize("anna")
    assert group.may_commit("anna") is ErrorCode.none
    assert group.may_commit("anna", generation=0) is ErrorCode.illegal_generation
    assert group.may_commit("anna", generation=2) is ErrorCode.illegal_generation
    assert group.may_commit("anna", generation=-1) is ErrorCode.illegal_generation
    assert group.may_commit("nobody") is ErrorCode.unknown_member_id


def test_members_may_commit_what_they_have_read_before_they_join_again(group: GroupScenario) -> None:
    group.stabilize("anna")
    group.join("ben")
    assert group.state is State.PREPARING_REBALANCE
    assert group.may_commit("anna") is ErrorCode.none


def test_no_member_commits_while_the_leader_assigns(group: GroupScenario) -> None:
    group.stabilize("anna")
    group.join("ben")
    group.join("anna")
    assert group.state is State.COMPLETING_REBALANCE
    assert group.may_commit("ben") is ErrorCode.rebalance_in_progress


def test_one_without_a_group_commits_where_there_are_no_members(group: GroupScenario) -> None:
    def commits() -> ErrorCode:
        return group.group.check_commit("", None, -1, group.now_ms, ())

    assert commits() is ErrorCode.none
    group.stabilize("anna")
    assert commits() is ErrorCode.unknown_member_id
    group.leave("anna")
    assert commits() is ErrorCode.none
    assert group.may_commit("anna", generation=1) is ErrorCode.unknown_member_id


def test_only_an_empty_group_may_be_deleted(group: GroupScenario) -> None:
    assert group.group.check_delete() is ErrorCode.none
    group.stabilize("anna")
    assert group.group.check_delete() is ErrorCode.non_empty_group
    group.leave("anna")
    assert group.group.check_delete() is ErrorCode.none


def test_offsets_of_topics_that_are_read_may_not_be_deleted(group: GroupScenario) -> None:
    group.join("anna", protocols=subscribed_to("flights", "planes"))
    group.join("ben", protocols=subscribed_to("weather"))
    group.join("anna")
    assert group.group.check_offset_delete() is ErrorCode.none
    assert all(group.group.reads(topic) for topic in ("flights", "planes", "weather"))
    assert not group.group.reads("trains")
    group.leave("anna", "ben")
    assert not group.group.reads("flights")


def test_a_subscription_that_makes_no_sense_may_be_to_anything(group: GroupScenario) -> None:
    group.stabilize("anna")
    assert group.group.subscribed_topics is None
    assert group.group.reads("flights")


def test_of_members_that_are_no_consumers_nothing_is_known(group: GroupScenario) -> None:
    group.join("worker", protocol_type="connect")
    assert group.group.check_offset_delete() is ErrorCode.non_empty_group
    assert not group.group.reads("flights")


def test_subscriptions_survive_a_restart_of_the_broker(group: GroupScenario) -> None:
    group.stabilize("anna", protocols=subscribed_to("flights"))
    group.restart_broker(group.stored[-1].group)
    assert group.group.subscribed_topics == {"flights"}


def test_a_subscription_is_read_and_nothing_else_is() -> None:
    assert topics_of(subscription("flights", "planes", version=0)) == {"flights", "planes"}
    assert topics_of(subscription()) == frozenset()
    assert topics_of(b"") is None
    assert topics_of(subscription("flights")[:9]) is None
    assert topics_of(struct.pack(">hi", 0, 1 << 30)) is None
    assert topics_of(struct.pack(">hih", 0, 1, -5)) is None
    assert topics_of(struct.pack(">hih", 0, 1, 1) + b"\xff") is None
