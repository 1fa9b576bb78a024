"""Records of share groups: Kafka's formats, and groups restored from them."""

from uuid import UUID

import pytest
from share_group_scenario import ShareGroupScenario

from cordwood.cluster.coordination.fields import FieldReader
from cordwood.cluster.groups import target_assignment
from cordwood.cluster.groups.share import formats
from cordwood.cluster.groups.share.exchange import Initialize
from cordwood.cluster.groups.share.formats import (
    NamedPartitions,
    ShareCurrentAssignment,
    ShareEpoch,
    ShareRecordKey,
    ShareRecordType,
    StatePartitions,
)
from cordwood.cluster.groups.share.group import JOIN_WAIT_MS
from cordwood.cluster.groups.share.member import ShareMember
from cordwood.storage.errors import CorruptBatch
from cordwood.storage.steps import at_once

TOPIC = UUID(int=7)
MEMBER = ShareMember(
    "a", "rack", "client", "/127.0.0.1", frozenset({"flights", "trains"}), 5, 4, {TOPIC: frozenset({1})}
)


def test_keys_are_kafkas() -> None:
    keys = [(ShareRecordKey(kind, "m" if kind in formats.OF_MEMBERS else "")) for kind in ShareRecordType]
    assert [formats.encode_key("g", key).hex() for key in keys] == [
        "000a00016700016d",
        "000b000167",
        "000c000167",
        "000d00016700016d",
        "000e00016700016d",
        "000f000167",
    ]
    for key in keys:
        fields = FieldReader(formats.encode_key("g", key))
        assert formats.read_key(fields.int16(), fields) == ("g", key)


def test_values_are_kafkas() -> None:
    topic = TOPIC.hex
    assert formats.encode_epoch(ShareEpoch(3, 9)).hex() == "000000000003000000000000000900"
    assert target_assignment.encode_target_epoch(3).hex() == "00000000000300"
    assert at_once(
        target_assignment.encode_target(MEMBER.assigned)
    ).hex() == f"0000 02 {topic} 02 00000001 00 00".replace(" ", "")
    assert at_once(
        formats.encode_current(MEMBER)
    ).hex() == f"0000 00000005 00000004 00 02 {topic} 02 00000001 00 00".replace(" ", "")
    assert formats.encode_member(ShareMember("a", None, "c", "h", frozenset({"t"}))).hex() == "0000000263026802027400"
    states = StatePartitions({TOPIC: NamedPartitions("t", frozenset({0}))}, {}, {TOPIC: "t"})
    assert at_once(
        formats.encode_state_partitions(states)
    ).hex() == f"0000 02 {topic} 0274 02 00000000 00 01 02 {topic} 0274 00 00".replace(" ", "")


def test_values_are_read_as_they_were_written() -> None:
    assert formats.decode_epoch(formats.encode_epoch(ShareEpoch(3, -9))) == ShareEpoch(3, -9)
    assert target_assignment.decode_target_epoch(target_assignment.encode_target_epoch(3)) == 3
    assert (
        at_once(target_assignment.decode_target(at_once(target_assignment.encode_target(MEMBER.assigned))))
        == MEMBER.assigned
    )
    assert at_once(formats.decode_current(at_once(formats.encode_current(MEMBER)))) == ShareCurrentAssignment(
        5, 4, MEMBER.assigned
    )
    member = ShareMember("a", "rack", "client", "/127.0.0.1", MEMBER.topics)
    assert formats.decode_member("a", formats.encode_member(MEMBER)) == member
    named = {TOPIC: NamedPartitions("t", frozenset({0, 4}))}
    states = StatePartitions(named, {UUID(int=8): NamedPartitions("u", frozenset({1}))}, {UUID(int=9): "v"})
    assert at_once(formats.decode_state_partitions(at_once(formats.encode_state_partitions(states)))) == states


@pytest.mark.parametrize("cut", [3, 8, 20])
def test_a_torn_value_is_damage(cut: int) -> None:
    with pytest.raises(CorruptBatch):
        at_once(formats.decode_current(at_once(formats.encode_current(MEMBER))[:-cut]))


def test_a_restored_group_goes_on_as_before() -> None:
    group = ShareGroupScenario(flights=4, trains=1)
    group.join("a", "flights")
    group.join("b", "flights", "trains")
    before, epoch, assignment_epoch = group.settle(), group.group.epoch, group.group.assignment_epoch
    group.reload()
    assert (group.group.epoch, group.group.assignment_epoch, group.assigned()) == (epoch, assignment_epoch, before)
    assert group.beat("a") is None
    assert (group.group.epoch, group.settle()) == (epoch, before)
    group.pass_time(45_000)
    assert group.group.member_count == 0


def test_members_that_are_silent_after_a_failover_are_removed() -> None:
    group = ShareGroupScenario(flights=1)
    group.join("a", "flights")
    group.pass_time(40_000)
    group.reload()
    group.pass_time(44_999)
    assert group.group.member_count == 1
    group.pass_time(1)
    assert group.group.member_count == 0


def test_a_restored_group_follows_topics_that_changed_meanwhile() -> None:
    group = ShareGroupScenario(flights=1)
    group.join("a", "flights")
    group.create("flights", 2)
    group.reload()
    group.beat("a")
    assert group.settle() == {"a": {"flights": [0, 1]}}


def test_states_that_were_being_initialized_are_initialized_by_the_next_coordinator() -> None:
    group = ShareGroupScenario(flights=2)
    group.holds = (Initialize,)
    group.send("a", 0, "flights")
    group.pass_time(JOIN_WAIT_MS)
    group.holds = ()
    group.reload()
    group.beat("a")
    assert group.settle() == {"a": {"flights": [0, 1]}}


def test_a_member_that_left_has_no_records() -> None:
    group = ShareGroupScenario(flights=4)
    group.join("a", "flights")
    group.join("b", "flights")
    group.settle()
    assert set(group.group.record_keys()) == set(group.log)
    group.leave("b")
    assert not [key for key in group.log if key.endswith(b"\0\1b")]
    group.leave("a")
    assert sorted(key[1] for key in group.log) == [11, 12, 15]
    assert set(group.group.record_keys()) == set(group.log)


def test_records_that_could_not_be_written_are_written_with_the_next() -> None:
    group = ShareGroupScenario(flights=4)
    group.join("a", "flights")
    group.refuses_writes = True
    number = group.send("b", 0, "flights")
    assert number not in group.replies
    group.refuses_writes = False
    group.settle()
    before, assigned = group.group.epoch, group.assigned()
    group.reload()
    assert (group.group.epoch, group.assigned()) == (before, assigned)
