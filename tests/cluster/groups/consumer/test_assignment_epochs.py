"""A member commits with an older epoch for partitions that it has had since then, and for no others (KIP-1251)."""

import pytest
from consumer_group_scenario import ConsumerGroupScenario
from kio.schema.errors import ErrorCode

from cordwood.cluster.groups.classic.group import ClassicGroup
from cordwood.cluster.groups.consumer.conversion import members_of_classic
from cordwood.cluster.groups.consumer.embedded import encode_assignment
from cordwood.cluster.groups.exchange import MemberProtocol, SavedGroup, SavedMember
from cordwood.cluster.groups.settings import GroupSettings
from cordwood.storage.steps import at_once

FLIGHT, TRAIN = ("flights", 0), ("trains", 0)
STALE = ErrorCode.stale_member_epoch


@pytest.fixture
def group() -> ConsumerGroupScenario:
    """Return a group whose member anna has had `flights` since epoch 1, and `trains` since epoch 2."""
    group = ConsumerGroupScenario({"flights": 1, "trains": 1})
    group.join("anna", "flights")
    group.beat("anna", topics=frozenset({"flights", "trains"}))
    group.settle()
    assert (group.clients["anna"].epoch, group.owns("anna")) == (2, {FLIGHT, TRAIN})
    return group


def commit(group: ConsumerGroupScenario, name: str, epoch: int, *places: tuple[str, int]) -> ErrorCode:
    """Return the code of a commit, which is the same in a transaction."""
    consumers, member_id = group.consumers, group.clients[name].id
    code = consumers.check_commit(member_id, None, epoch, group.now_ms, places)
    assert consumers.check_transactional_commit(member_id, None, epoch, places) is code
    return code


def test_an_older_epoch_counts_for_what_the_member_had_then(group: ConsumerGroupScenario) -> None:
    assert commit(group, "anna", 1, FLIGHT) is ErrorCode.none
    assert commit(group, "anna", 1, TRAIN) is STALE
    assert commit(group, "anna", 1, FLIGHT, TRAIN) is STALE, "a request is accepted as a whole"
    assert commit(group, "anna", 0, FLIGHT) is STALE
    assert commit(group, "anna", 2, FLIGHT, TRAIN) is ErrorCode.none


def test_neither_later_epochs_nor_unknown_partitions_count(group: ConsumerGroupScenario) -> None:
    assert commit(group, "anna", 3, FLIGHT) is STALE
    assert commit(group, "anna", 1, ("flights", 1)) is STALE
    assert commit(group, "anna", 1, ("ships", 0)) is STALE


def test_the_offsets_are_fetched_with_the_present_epoch_only(group: ConsumerGroupScenario) -> None:
    assert group.consumers.check_fetch("id-anna", 1) is STALE
    assert group.consumers.check_fetch("id-anna", 2) is ErrorCode.none


def test_partitions_that_are_revoked_count_until_they_are_given_up(group: ConsumerGroupScenario) -> None:
    group.send("anna", topics=frozenset({"trains"}))
    assert commit(group, "anna", 1, FLIGHT) is ErrorCode.none
    anna = group.clients["anna"]
    group.beat("anna", owned={group.ids["trains"]: frozenset({0})})
    group.settle()
    assert anna.epoch == 3
    assert commit(group, "anna", 1, FLIGHT) is STALE
    assert commit(group, "anna", 2, TRAIN) is ErrorCode.none


def test_a_partition_that_comes_back_counts_from_then_on() -> None:
    group = ConsumerGroupScenario({"flights": 2})
    group.join("anna")
    group.join("ben")
    group.settle()
    (lost,) = group.owns("ben")
    (kept,) = group.owns("anna")
    group.leave("ben")
    group.settle("anna")
    assert group.owns("anna") == {lost, kept}
    assert commit(group, "anna", 1, kept) is ErrorCode.none
    assert commit(group, "anna", 2, lost) is STALE, "ben had it in that epoch"
    assert commit(group, "anna", 3, lost) is ErrorCode.none


def test_another_coordinator_knows_the_epochs(group: ConsumerGroupScenario) -> None:
    group.reload()
    assert commit(group, "anna", 1, FLIGHT) is ErrorCode.none
    assert commit(group, "anna", 1, TRAIN) is STALE


def test_a_static_member_that_comes_back_has_all_from_the_beginning() -> None:
    group = ConsumerGroupScenario()
    group.join("anna", instance_id="desk")
    group.join("ben")
    group.settle()
    group.leave("anna", epoch=-2)
    before = group.consumers.members.by_id["id-anna"]
    assert {epoch for epochs in before.assignment_epochs.values() for epoch in epochs.values()} == {0}
    assert commit(group, "anna", 1, *before_places(group)) is STALE, "a member that has left commits nothing"
    group.clients["anna"].id = "id-anna-again"
    group.join("anna", instance_id="desk")
    assert commit(group, "anna", 1, *before_places(group)) is ErrorCode.none


def before_places(group: ConsumerGroupScenario) -> list[tuple[str, int]]:
    static = group.consumers.members.static("desk")
    assert static is not None
    return [("flights", index) for index in static.assigned[group.ids["flights"]]]


def test_partitions_of_a_classic_group_were_assigned_in_its_generation() -> None:
    group = ConsumerGroupScenario()
    metadata = b"\x00\x00\x00\x00\x00\x01\x00\x07flights\xff\xff\xff\xff"
    own = at_once(encode_assignment(0, {"flights": frozenset({0, 1})}))
    saved = SavedMember("c", None, "old", "/h", 20_000, 10_000, metadata, own)
    classic = at_once(ClassicGroup.restore("group", SavedGroup("consumer", 5, "range", "c", (saved,)), GroupSettings()))
    at_once(classic.keep_protocols([("c", (MemberProtocol("range", metadata),))], 0))
    (member,) = at_once(members_of_classic(classic, group.context.topics()))
    assert member.assignment_epochs == {group.ids["flights"]: {0: 5, 1: 5}}
