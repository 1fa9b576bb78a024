"""The APIs of consumer groups by frames: heartbeats, descriptions, offsets with member epochs, lists and deletions."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from groups_fixture import FLIGHTS_ID, GROUP, GroupsFixture
from kio.schema.errors import ErrorCode

from cordwood.cluster.coordination.topic import partition_of
from cordwood.cluster.groups.any_group import GroupKind
from cordwood.cluster.groups.formats import encode_group_key
from cordwood.cluster.kafka.handlers import (
    consumer_group_describe,
    consumer_group_heartbeat,
    delete_groups,
    describe_groups,
    list_groups,
    offset_delete,
    offset_fetch,
)

MINUTE = timedelta(minutes=1)


@pytest.fixture
def groups() -> Iterator[GroupsFixture]:
    made = GroupsFixture()
    yield made
    made.close()


def heartbeat(groups: GroupsFixture, epoch: int, version: int = 1, **fields: Any) -> Any:
    """Send a heartbeat, and as a join one with all that it needs."""
    joins = {"rebalance_timeout": MINUTE, "subscribed_topic_names": ("flights",), "topic_partitions": ()}
    request = {"group_id": GROUP, "member_id": "anna", "member_epoch": epoch, **(joins if epoch == 0 else {})}
    return groups.ask(consumer_group_heartbeat, version, **{**request, **fields})


def assigned(reply: Any) -> set[int]:
    return {index for topic in reply.assignment.topic_partitions for index in topic.partitions}


def test_a_member_joins_lives_and_leaves(groups: GroupsFixture) -> None:
    joined = heartbeat(groups, 0)
    assert (joined.error_code, joined.member_id, joined.member_epoch) == (ErrorCode.none, "anna", 1)
    assert joined.heartbeat_interval == timedelta(seconds=5)
    assert [topic.topic_id for topic in joined.assignment.topic_partitions] == [FLIGHTS_ID]
    assert assigned(joined) == {0, 1, 2}
    owned = {"topic_id": FLIGHTS_ID, "partitions": (0, 1, 2)}
    assert heartbeat(groups, 1, topic_partitions=(owned,)).assignment is None
    left = heartbeat(groups, -1)
    assert (left.error_code, left.member_epoch) == (ErrorCode.none, -1)


def test_version_0_gets_its_id_from_the_coordinator(groups: GroupsFixture) -> None:
    joined = heartbeat(groups, 0, 0, member_id="")
    assert joined.error_code is ErrorCode.none
    assert len(joined.member_id) == 36
    assert heartbeat(groups, 1, 0, member_id=joined.member_id).error_code is ErrorCode.none


@pytest.mark.parametrize(
    ("epoch", "fields", "code"),
    [
        (0, {"group_id": ""}, ErrorCode.invalid_request),
        (0, {"member_id": ""}, ErrorCode.invalid_request),
        (0, {"instance_id": " "}, ErrorCode.invalid_request),
        (0, {"rack_id": ""}, ErrorCode.invalid_request),
        (0, {"rebalance_timeout": timedelta(milliseconds=-1)}, ErrorCode.invalid_request),
        (0, {"topic_partitions": None}, ErrorCode.invalid_request),
        (0, {"topic_partitions": ({"topic_id": FLIGHTS_ID, "partitions": (0,)},)}, ErrorCode.invalid_request),
        (0, {"subscribed_topic_names": None}, ErrorCode.invalid_request),
        (-3, {}, ErrorCode.invalid_request),
        (-2, {}, ErrorCode.invalid_request),
        (1, {"member_id": ""}, ErrorCode.invalid_request),
        (0, {"server_assignor": "mine"}, ErrorCode.unsupported_assignor),
        (0, {"subscribed_topic_regex": "("}, ErrorCode.invalid_regular_expression),
        (1, {}, ErrorCode.group_id_not_found),
        (-1, {}, ErrorCode.group_id_not_found),
    ],
)
def test_bad_requests_are_refused(groups: GroupsFixture, epoch: int, fields: dict[str, Any], code: ErrorCode) -> None:
    reply = heartbeat(groups, epoch, **fields)
    assert reply.error_code is code
    assert reply.error_message


def test_stale_and_unknown_members_are_refused(groups: GroupsFixture) -> None:
    heartbeat(groups, 0)
    assert heartbeat(groups, 7).error_code is ErrorCode.fenced_member_epoch
    assert heartbeat(groups, 1, member_id="ben").error_code is ErrorCode.unknown_member_id
    heartbeat(groups, 0, member_id="carl", instance_id="i")
    assert heartbeat(groups, 0, member_id="dora", instance_id="i").error_code is ErrorCode.unreleased_instance_id
    assert heartbeat(groups, 2, member_id="dora", instance_id="i").error_code is ErrorCode.fenced_instance_id


def test_a_full_group_takes_no_more_members() -> None:
    groups = GroupsFixture(group_consumer_max_size=1)
    assert heartbeat(groups, 0).error_code is ErrorCode.none
    assert heartbeat(groups, 0, member_id="ben").error_code is ErrorCode.group_max_size_reached
    groups.close()


def test_the_consumer_protocol_can_be_turned_off() -> None:
    groups = GroupsFixture(group_coordinator_rebalance_protocols=("classic",))
    assert heartbeat(groups, 0).error_code is ErrorCode.unsupported_version
    groups.close()


def test_a_group_of_another_kind_is_not_taken_over() -> None:
    groups = GroupsFixture(group_consumer_migration_policy="disabled")
    groups.member()
    reply = heartbeat(groups, 0)
    assert reply.error_code is ErrorCode.group_id_not_found
    assert reply.error_message == "Group group is not a consumer group."
    groups.close()


@pytest.mark.parametrize("version", [0, 1])
def test_a_group_is_described(groups: GroupsFixture, version: int) -> None:
    heartbeat(groups, 0, rack_id="r")
    (found,) = groups.ask(consumer_group_describe, version, group_ids=(GROUP,)).groups
    assert (found.error_code, found.group_state, found.assignor_name) == (ErrorCode.none, "Stable", "uniform")
    assert (found.group_epoch, found.assignment_epoch) == (1, 1)
    (member,) = found.members
    assert (member.member_id, member.member_epoch, member.rack_id) == ("anna", 1, "r")
    assert member.subscribed_topic_names == ("flights",)
    (topic,) = member.assignment.topic_partitions
    assert (topic.topic_name, topic.topic_id, topic.partitions) == ("flights", FLIGHTS_ID, (0, 1, 2))
    assert member.target_assignment == member.assignment
    if version >= 1:
        assert member.member_type == 1


def test_what_is_no_consumer_group_is_not_found(groups: GroupsFixture) -> None:
    groups.member()
    classic, unknown = groups.ask(consumer_group_describe, 1, group_ids=(GROUP, "other")).groups
    assert classic.error_code is unknown.error_code is ErrorCode.group_id_not_found
    assert classic.error_message == "Group group is not a consumer group."
    assert unknown.error_message == "Group other not found."


def test_describe_groups_finds_classic_groups_only(groups: GroupsFixture) -> None:
    heartbeat(groups, 0)
    (found,) = groups.ask(describe_groups, 6, groups=(GROUP,)).groups
    assert (found.error_code, found.group_state) == (ErrorCode.group_id_not_found, "Dead")
    assert found.error_message == "Group group is not a classic group."


def test_groups_are_listed_by_type_and_state(groups: GroupsFixture) -> None:
    heartbeat(groups, 0)

    def found(**filters: Any) -> list[tuple[str, str, str]]:
        listed = groups.ask(list_groups, 5, **{"states_filter": (), "types_filter": (), **filters}).groups
        return [(row.group_id, row.group_type, row.group_state) for row in listed]

    assert found() == found(types_filter=("Consumer",)) == [(GROUP, "consumer", "Stable")]
    assert found(types_filter=("classic",)) == []
    assert found(states_filter=("stable",)) == [(GROUP, "consumer", "Stable")]
    assert found(states_filter=("Empty",)) == []


def test_offsets_are_committed_and_fetched_with_the_epoch(groups: GroupsFixture) -> None:
    heartbeat(groups, 0)
    as_anna = {"member_id": "anna", "generation_id_or_member_epoch": 1}
    assert groups.commit(5, 9, **as_anna) is ErrorCode.none
    assert groups.commit(5, 10, **as_anna) is ErrorCode.none
    assert groups.commit(5, 8, **as_anna) is ErrorCode.unsupported_version
    assert groups.commit(5, 9, **{**as_anna, "generation_id_or_member_epoch": 0}) is ErrorCode.stale_member_epoch
    assert groups.commit(5, 9, **{**as_anna, "member_id": "ben"}) is ErrorCode.unknown_member_id
    assert groups.commit(5, 9) is ErrorCode.unknown_member_id

    def fetched(**member: Any) -> ErrorCode:
        topics = ({"name": "flights", "partition_indexes": (0,)},)
        group = {"group_id": GROUP, "topics": topics, **member}
        code: ErrorCode = groups.ask(offset_fetch, 9, groups=(group,), require_stable=False).groups[0].error_code
        return code

    assert fetched(member_id="anna", member_epoch=1) is ErrorCode.none
    assert fetched() is ErrorCode.none
    assert fetched(member_id="anna", member_epoch=0) is ErrorCode.stale_member_epoch
    assert fetched(member_id="ben", member_epoch=1) is ErrorCode.unknown_member_id


def test_transactional_commits_check_the_epoch(groups: GroupsFixture) -> None:
    heartbeat(groups, 0)
    assert groups.commit_in_transaction(5, member_id="anna", generation_id=1) is ErrorCode.none
    assert groups.commit_in_transaction(5, member_id="anna", generation_id=2) is ErrorCode.illegal_generation
    assert groups.commit_in_transaction(5, member_id="ben", generation_id=1) is ErrorCode.unknown_member_id
    assert groups.commit_in_transaction(5) is ErrorCode.none


def test_a_group_is_deleted_with_all_its_records(groups: GroupsFixture) -> None:
    heartbeat(groups, 0, subscribed_topic_regex="flights.*")
    assert groups.ask(delete_groups, 2, groups_names=(GROUP,)).results[0].error_code is ErrorCode.non_empty_group
    topics = ({"name": "flights", "partitions": ({"partition_index": 0},)},)
    deleted = groups.ask(offset_delete, 0, group_id=GROUP, topics=topics)
    assert deleted.topics[0].partitions[0].error_code is ErrorCode.group_subscribed_to_topic
    heartbeat(groups, -1)
    assert groups.ask(delete_groups, 2, groups_names=(GROUP,)).results[0].error_code is ErrorCode.none
    groups.restart()
    groups.until_loaded()
    assert groups.services.groups.group(GROUP) is None


def test_a_restarted_coordinator_knows_its_members(groups: GroupsFixture) -> None:
    heartbeat(groups, 0)
    heartbeat(groups, 0, member_id="ben")
    groups.restart()
    groups.until_loaded()
    assert heartbeat(groups, 1).error_code is ErrorCode.none
    (found,) = groups.ask(consumer_group_describe, 1, group_ids=(GROUP,)).groups
    assert (found.group_state, found.group_epoch, len(found.members)) == ("Reconciling", 2, 2)


def upgrade(groups: GroupsFixture) -> str:
    """Have a member with the consumer protocol join a classic group with one member. Return the id of that one."""
    metadata = b"\x00\x01\x00\x00\x00\x01\x00\x07flights\xff\xff\xff\xff\x00\x00\x00\x00"
    protocols = ({"name": "range", "metadata": metadata},)
    member_id: str = groups.join(protocols=protocols).member_id
    groups.join(member_id=member_id, protocols=protocols)
    groups.sync(member_id, assignments=({"member_id": member_id, "assignment": b""},))
    assert heartbeat(groups, 0).member_epoch == 2
    return member_id


def kind_of(groups: GroupsFixture) -> GroupKind:
    group = groups.services.groups.group(GROUP)
    assert group is not None
    return group.kind


def committed(groups: GroupsFixture) -> int:
    """Return the committed offset of `flights`."""
    return groups.services.groups.offsets_of(GROUP)["flights", 0].offset


def test_an_upgrade_deletes_the_record_of_the_classic_group(groups: GroupsFixture) -> None:
    upgrade(groups)
    partition = partition_of(GROUP, groups.topic.partition_count)
    newest = {record.key: record.value for record in groups.topic.records(partition)}
    assert newest[encode_group_key(GROUP)] is None


def test_offsets_are_kept_by_conversions(groups: GroupsFixture) -> None:
    assert groups.commit(5, 9) is ErrorCode.none
    member_id = upgrade(groups)
    as_classic = {"member_id": member_id, "generation_id_or_member_epoch": 1}
    assert committed(groups) == 5
    assert groups.commit(6, 8, **as_classic) is ErrorCode.none, "in the generation of the classic group"
    heartbeat(groups, -1)
    assert kind_of(groups) is GroupKind.CLASSIC
    assert committed(groups) == 6
    assert groups.commit(7, 8, **as_classic) is ErrorCode.none, "before it has joined again"


def test_a_conversion_that_cannot_be_written_leaves_the_group_as_it_was(groups: GroupsFixture) -> None:
    upgrade(groups)
    groups.topic.refusal = ErrorCode.not_enough_replicas
    assert heartbeat(groups, -1).error_code is not ErrorCode.none
    assert kind_of(groups) is GroupKind.CONSUMER


def test_a_classic_group_is_upgraded_and_back(groups: GroupsFixture) -> None:
    upgrade(groups)
    (found,) = groups.ask(consumer_group_describe, 1, group_ids=(GROUP,)).groups
    assert {member.member_type for member in found.members} == {0, 1}
    groups.restart()
    groups.until_loaded()
    assert heartbeat(groups, -1).error_code is ErrorCode.none
    (found,) = groups.ask(describe_groups, 6, groups=(GROUP,)).groups
    assert (found.error_code, len(found.members)) == (ErrorCode.none, 1)
    groups.restart()
    groups.until_loaded()
    (listed,) = groups.ask(list_groups, 5, states_filter=(), types_filter=()).groups
    assert (listed.group_type, listed.group_state) == ("classic", "Stable")
