"""FindCoordinator, JoinGroup, SyncGroup, Heartbeat, LeaveGroup and the group admin APIs, in every version."""

from collections.abc import Iterator

import pytest
from groups_fixture import GROUP, GroupsFixture
from kio.schema.errors import ErrorCode

from cordwood.cluster.coordination.topic import partition_of
from cordwood.cluster.kafka.authorized import NOT_ASKED
from cordwood.cluster.kafka.handlers import (
    delete_groups,
    describe_groups,
    find_coordinator,
    heartbeat,
    leave_group,
    list_groups,
)

NAMED_OFTEN = 3000


@pytest.fixture
def broker() -> Iterator[GroupsFixture]:
    fixture = GroupsFixture()
    yield fixture
    fixture.close()


@pytest.mark.parametrize("version", find_coordinator.KEY.versions)
def test_the_coordinator_is_where_the_groups_partition_is(broker: GroupsFixture, version: int) -> None:
    answer = broker.ask(find_coordinator, version, key=GROUP, coordinator_keys=(GROUP, "other"), key_type=0)
    if version >= 4:
        assert [coordinator.key for coordinator in answer.coordinators] == [GROUP, "other"]
        answer = answer.coordinators[0]
    assert (answer.error_code, answer.node_id, answer.host, answer.port) == (ErrorCode.none, 1, "host-1", 9092)


@pytest.mark.parametrize("version", range(1, 5))
@pytest.mark.parametrize("key_type", [2, 7])
def test_other_keys_have_no_coordinator(broker: GroupsFixture, version: int, key_type: int) -> None:
    answer = broker.ask(find_coordinator, version, key="tx", coordinator_keys=("tx",), key_type=key_type)
    answer = answer.coordinators[0] if version >= 4 else answer
    assert (answer.error_code, answer.node_id, answer.port) == (ErrorCode.invalid_request, -1, -1)


def test_a_coordinator_that_the_listener_does_not_reach_is_not_available() -> None:
    broker = GroupsFixture(brokers=1)
    answer = broker.run(broker.answer(find_coordinator, 4, listener="ELSEWHERE", key_type=0, coordinator_keys=("g",)))
    assert answer.coordinators[0].error_code is ErrorCode.coordinator_not_available
    broker.close()


@pytest.mark.parametrize("version", range(10))
def test_a_client_of_any_version_joins(broker: GroupsFixture, version: int) -> None:
    answer = broker.join(version)
    if version >= 4:
        assert (answer.error_code, answer.generation_id) == (ErrorCode.member_id_required, -1)
        answer = broker.join(version, member_id=answer.member_id)
    assert answer.error_code is ErrorCode.none
    assert (answer.generation_id, answer.protocol_name) == (1, "range")
    assert answer.leader == answer.member_id
    assert answer.member_id.startswith("test-")
    assert [(member.member_id, member.metadata) for member in answer.members] == [(answer.member_id, b"about range")]
    share = broker.sync(answer.member_id, version=min(version, 5))
    assert (share.error_code, share.assignment) == (ErrorCode.none, b"everything")


@pytest.mark.parametrize("version", range(10))
def test_a_client_of_any_version_is_refused(broker: GroupsFixture, version: int) -> None:
    answer = broker.join(version, member_id="made up")
    assert (answer.error_code, answer.member_id) == (ErrorCode.unknown_member_id, "made up")
    assert answer.protocol_name == (None if version >= 7 else "")
    assert broker.join(version, group_id="").error_code is ErrorCode.invalid_group_id


@pytest.mark.parametrize("version", range(5, 10))
def test_a_static_member_of_any_version_comes_back(broker: GroupsFixture, version: int) -> None:
    first = broker.join(version, group_instance_id="rack-1")
    broker.sync(first.member_id, group_instance_id="rack-1")
    back = broker.join(version, group_instance_id="rack-1")
    assert (back.error_code, back.generation_id) == (ErrorCode.none, 1)
    assert back.member_id.startswith("rack-1-")
    assert back.leader == (back.member_id if version >= 9 else first.member_id)
    assert getattr(back, "skip_assignment", False) == (version >= 9)
    ghost = broker.ask(
        heartbeat, 4, group_id=GROUP, generation_id=1, member_id=first.member_id, group_instance_id="rack-1"
    )
    assert ghost.error_code is ErrorCode.fenced_instance_id


def test_an_instance_id_is_not_empty(broker: GroupsFixture) -> None:
    assert broker.join(group_instance_id="").error_code is ErrorCode.invalid_request


def test_from_version_5_on_a_sync_names_the_protocol(broker: GroupsFixture) -> None:
    member_id = broker.member()
    assert broker.sync(member_id, protocol_name=None).error_code is ErrorCode.inconsistent_group_protocol
    assert broker.sync(member_id, protocol_type="connect").error_code is ErrorCode.inconsistent_group_protocol
    assert broker.sync(member_id, version=4).error_code is ErrorCode.none
    assert broker.sync("nobody").error_code is ErrorCode.unknown_member_id
    assert broker.sync(member_id, generation=9).error_code is ErrorCode.illegal_generation
    assert broker.sync(member_id, group_id="").error_code is ErrorCode.invalid_group_id


@pytest.mark.parametrize("version", heartbeat.KEY.versions)
def test_a_heartbeat_of_any_version(broker: GroupsFixture, version: int) -> None:
    member_id = broker.member()

    def beat(**fields: object) -> ErrorCode:
        request = {"group_id": GROUP, "generation_id": 1, "member_id": member_id, **fields}
        code: ErrorCode = broker.ask(heartbeat, version, **request).error_code
        return code

    assert beat() is ErrorCode.none
    assert beat(member_id="nobody") is ErrorCode.unknown_member_id
    assert beat(generation_id=2) is ErrorCode.illegal_generation
    assert beat(group_id="other") is ErrorCode.unknown_member_id
    assert beat(group_id="") is ErrorCode.invalid_group_id


@pytest.mark.parametrize("version", leave_group.KEY.versions)
def test_a_member_of_any_version_leaves(broker: GroupsFixture, version: int) -> None:
    member_id = broker.member()

    def leave(who: str, group_id: str = GROUP) -> ErrorCode:
        answer = broker.ask(
            leave_group, version, group_id=group_id, member_id=who, members=({"member_id": who, "reason": "done"},)
        )
        if version < 3 or not answer.members:
            assert isinstance(answer.error_code, ErrorCode)
            return answer.error_code
        assert answer.error_code is ErrorCode.none
        (member,) = answer.members
        assert member.member_id == who
        assert isinstance(member.error_code, ErrorCode)
        return member.error_code

    assert leave("nobody") is ErrorCode.unknown_member_id
    assert leave(member_id, "other") is ErrorCode.unknown_member_id
    assert leave(member_id, "") is ErrorCode.invalid_group_id
    assert leave(member_id) is ErrorCode.none
    assert leave(member_id) is ErrorCode.unknown_member_id


@pytest.mark.parametrize("version", describe_groups.KEY.versions)
def test_a_group_is_described(broker: GroupsFixture, version: int) -> None:
    member_id = broker.member()
    request = {"groups": (GROUP, "nobody's"), "include_authorized_operations": True}
    described, unknown = broker.ask(describe_groups, version, **request).groups
    assert (described.error_code, described.group_state) == (ErrorCode.none, "Stable")
    assert (described.protocol_type, described.protocol_data) == ("consumer", "range")
    (member,) = described.members
    assert (member.member_id, member.client_id, member.client_host) == (member_id, "test", "/127.0.0.1")
    assert (member.member_metadata, member.member_assignment) == (b"about range", b"everything")
    if version >= 3:
        assert described.authorized_operations == 0b1101_0100_1000
        assert unknown.authorized_operations == (0b1101_0100_1000 if version < 6 else NOT_ASKED)
    assert (unknown.group_state, unknown.members) == ("Dead", ())
    assert unknown.error_code is (ErrorCode.group_id_not_found if version >= 6 else ErrorCode.none)


def test_a_group_that_is_named_thousands_of_times_is_described_once(broker: GroupsFixture) -> None:
    broker.member()
    once, often = (broker.ask(describe_groups, 6, groups=(GROUP, "unknown") * count) for count in (1, NAMED_OFTEN))
    assert [group.group_id for group in often.groups] == [GROUP, "unknown"]
    # Equal messages have the same number of bytes.
    assert often == once


def test_a_group_between_two_generations_is_described_without_metadata(broker: GroupsFixture) -> None:
    broker.join(member_id=broker.join().member_id)
    (described,) = broker.ask(describe_groups, 6, groups=(GROUP,)).groups
    assert (described.group_state, described.protocol_data) == ("CompletingRebalance", "")
    assert described.members[0].member_metadata == b""


@pytest.mark.parametrize("version", list_groups.KEY.versions)
def test_groups_are_listed(broker: GroupsFixture, version: int) -> None:
    broker.member()
    broker.commit(5, group_id="reader")
    answer = broker.ask(list_groups, version)
    assert answer.error_code is ErrorCode.none
    groups = {group.group_id: group for group in answer.groups}
    assert {name: group.protocol_type for name, group in groups.items()} == {GROUP: "consumer", "reader": ""}
    if version >= 4:
        assert (groups[GROUP].group_state, groups["reader"].group_state) == ("Stable", "Empty")
    if version >= 5:
        assert groups[GROUP].group_type == "classic"


@pytest.mark.parametrize(
    ("filters", "listed"),
    [
        ({"states_filter": ("stable",)}, [GROUP]),
        ({"states_filter": ("Empty", "Dead")}, ["reader"]),
        ({"states_filter": ("Imagined",)}, []),
        ({"types_filter": ("Classic",)}, [GROUP, "reader"]),
        ({"types_filter": ("consumer",)}, []),
    ],
)
def test_groups_are_listed_by_state_and_type(
    broker: GroupsFixture, filters: dict[str, tuple[str, ...]], listed: list[str]
) -> None:
    broker.member()
    broker.commit(5, group_id="reader")
    assert sorted(group.group_id for group in broker.ask(list_groups, 5, **filters).groups) == listed


@pytest.mark.parametrize("version", delete_groups.KEY.versions)
def test_groups_are_deleted(broker: GroupsFixture, version: int) -> None:
    broker.member()
    broker.commit(5, group_id="reader")
    answer = broker.ask(delete_groups, version, groups_names=(GROUP, "reader", "nobody's", "reader"))
    assert {result.group_id: result.error_code for result in answer.results} == {
        GROUP: ErrorCode.non_empty_group,
        "reader": ErrorCode.none,
        "nobody's": ErrorCode.group_id_not_found,
    }


def test_while_groups_are_loaded_clients_have_to_wait(broker: GroupsFixture) -> None:
    member_id = broker.member()
    broker.topic.read_gate.clear()
    broker.restart()
    for code in (
        broker.ask(list_groups, 5).error_code,
        broker.join(member_id=member_id).error_code,
        broker.sync(member_id).error_code,
        broker.ask(describe_groups, 6, groups=(GROUP,)).groups[0].error_code,
        broker.ask(delete_groups, 2, groups_names=(GROUP,)).results[0].error_code,
        broker.ask(leave_group, 5, group_id=GROUP, members=({"member_id": member_id},)).error_code,
    ):
        assert code is ErrorCode.coordinator_load_in_progress
    beat = broker.ask(heartbeat, 4, group_id=GROUP, generation_id=1, member_id=member_id)
    assert beat.error_code is ErrorCode.none
    broker.topic.read_gate.set()
    broker.until_loaded()
    assert broker.sync(member_id).assignment == b"everything"


def test_groups_of_a_damaged_partition_are_not_available(broker: GroupsFixture) -> None:
    member_id = broker.member()
    broker.topic.damaged.add(partition_of(GROUP, 4))
    broker.restart()
    broker.until_loaded()
    assert broker.join(member_id=member_id).error_code is ErrorCode.coordinator_not_available
    (described,) = broker.ask(describe_groups, 6, groups=(GROUP,)).groups
    assert (described.error_code, described.group_state) == (ErrorCode.coordinator_not_available, "")
    assert "damaged" in described.error_message
