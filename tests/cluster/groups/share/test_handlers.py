"""The APIs of share groups by their messages: every error code, and what other APIs say of a share group."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from groups_fixture import FLIGHTS_ID, GROUP, GroupsFixture
from kio.schema.errors import ErrorCode
from share_states_in_memory import KeptState

from cordwood.cluster.kafka.handlers import (
    alter_share_group_offsets,
    delete_groups,
    delete_share_group_offsets,
    describe_groups,
    describe_share_group_offsets,
    heartbeat,
    list_groups,
    offset_fetch,
    share_group_describe,
    share_group_heartbeat,
)
from cordwood.cluster.metadata.commands import DeleteTopic
from cordwood.cluster.resources.turns import SLICE_STEPS

MEMBER = "cd8d0e8e-0a6c-4d0d-9a0c-7a4d1d2f3a4b"
NO_GROUP = ErrorCode.group_id_not_found


@pytest.fixture
def broker() -> Iterator[GroupsFixture]:
    fixture = GroupsFixture(group_share_max_size=2)
    yield fixture
    fixture.close()


def beat(broker: GroupsFixture, epoch: int, *topics: str, member: str = MEMBER, **fields: Any) -> Any:
    request = {
        "group_id": GROUP,
        "member_id": member,
        "member_epoch": epoch,
        "subscribed_topic_names": topics or None,
    }
    return broker.ask(share_group_heartbeat, 1, **{**request, **fields})


def join(broker: GroupsFixture, member: str = MEMBER) -> Any:
    answer = beat(broker, 0, "flights", member=member)
    assert answer.error_code is ErrorCode.none, answer
    return answer


def leave(broker: GroupsFixture, member: str = MEMBER) -> None:
    assert beat(broker, -1, member=member).error_code is ErrorCode.none


def described(broker: GroupsFixture, group: str = GROUP) -> Any:
    (answer,) = broker.ask(share_group_describe, 1, group_ids=(group,)).groups
    return answer


def alter(broker: GroupsFixture, offset: int, partition: int = 0, topic: str = "flights", group: str = GROUP) -> Any:
    row = {"topic_name": topic, "partitions": ({"partition_index": partition, "start_offset": offset},)}
    return broker.ask(alter_share_group_offsets, 0, group_id=group, topics=(row,))


def code_of(answer: Any) -> ErrorCode:
    """Return the code of the only partition or topic of an answer."""
    assert answer.error_code is ErrorCode.none
    row = answer.responses[0]
    code: ErrorCode = row.partitions[0].error_code if hasattr(row, "partitions") else row.error_code
    return code


def offsets(
    broker: GroupsFixture, *partitions: int, version: int = 1, group: str = GROUP, topic: str = "flights"
) -> Any:
    topics = ({"topic_name": topic, "partitions": partitions},) if partitions else None
    answer = broker.ask(describe_share_group_offsets, version, groups=({"group_id": group, "topics": topics},))
    return answer.groups[0]


def test_a_member_joins_reads_all_partitions_and_leaves(broker: GroupsFixture) -> None:
    answer = join(broker)
    assert (answer.member_id, answer.heartbeat_interval.total_seconds()) == (MEMBER, 5)
    (topic,) = answer.assignment.topic_partitions
    assert (topic.topic_id, topic.partitions) == (FLIGHTS_ID, (0, 1, 2))
    assert set(broker.share_states.kept) == {(GROUP, FLIGHTS_ID, index) for index in range(3)}
    assert beat(broker, answer.member_epoch).assignment is None
    left = beat(broker, -1)
    assert (left.error_code, left.member_epoch) == (ErrorCode.none, -1)
    assert described(broker).group_state == "Empty"


@pytest.mark.parametrize(
    "fields",
    [
        {"group_id": ""},
        {"member_id": ""},
        {"member_id": "x" * 37},
        {"member_epoch": -2},
        {"rack_id": ""},
        {"subscribed_topic_names": None},
        {"subscribed_topic_names": ()},
    ],
)
def test_an_invalid_heartbeat_is_refused(broker: GroupsFixture, fields: dict[str, Any]) -> None:
    answer = beat(broker, 0, "flights", **fields)
    assert answer.error_code is ErrorCode.invalid_request
    assert answer.error_message


def test_unknown_groups_and_members_are_refused(broker: GroupsFixture) -> None:
    assert beat(broker, 1).error_code is NO_GROUP
    assert beat(broker, -1).error_code is NO_GROUP
    join(broker)
    assert beat(broker, 1, member="other").error_code is ErrorCode.unknown_member_id
    assert beat(broker, -1, member="other").error_code is ErrorCode.unknown_member_id


def test_a_fenced_member_and_one_too_many_are_refused(broker: GroupsFixture) -> None:
    epoch = join(broker).member_epoch
    assert beat(broker, epoch + 1).error_code is ErrorCode.fenced_member_epoch
    join(broker, "second")
    assert beat(broker, 0, "flights", member="third").error_code is ErrorCode.group_max_size_reached


def test_a_group_is_described(broker: GroupsFixture) -> None:
    epoch = join(broker).member_epoch
    group = described(broker)
    assert (group.error_code, group.group_state, group.assignor_name) == (ErrorCode.none, "Stable", "simple")
    assert group.group_epoch == group.assignment_epoch == epoch
    (member,) = group.members
    assert (member.member_id, member.member_epoch, member.client_id) == (MEMBER, epoch, "test")
    assert member.subscribed_topic_names == ("flights",)
    (topic,) = member.assignment.topic_partitions
    assert (topic.topic_name, topic.partitions) == ("flights", (0, 1, 2))


def test_groups_of_other_kinds_are_no_share_groups(broker: GroupsFixture) -> None:
    broker.member()
    assert beat(broker, 0, "flights").error_code is NO_GROUP
    assert described(broker).error_code is NO_GROUP
    assert alter(broker, 1).error_code is NO_GROUP
    assert described(broker, "unknown").error_code is NO_GROUP
    assert described(broker, "").error_code is ErrorCode.invalid_group_id


def test_a_share_group_is_no_classic_group(broker: GroupsFixture) -> None:
    join(broker)
    assert broker.join().error_code is ErrorCode.inconsistent_group_protocol
    assert broker.commit(1) is NO_GROUP
    answer = broker.ask(heartbeat, 4, group_id=GROUP, member_id=MEMBER, generation_id=1)
    assert answer.error_code is ErrorCode.unknown_member_id
    (group,) = broker.ask(describe_groups, 6, groups=(GROUP,)).groups
    assert (group.error_code, group.group_state) == (NO_GROUP, "Dead")
    (group,) = broker.ask(describe_groups, 5, groups=(GROUP,)).groups
    assert (group.error_code, group.group_state) == (ErrorCode.none, "Dead")
    (group,) = broker.ask(offset_fetch, 9, groups=({"group_id": GROUP, "member_epoch": -1, "topics": None},)).groups
    assert group.error_code is NO_GROUP


def test_share_groups_are_listed_by_type_and_state(broker: GroupsFixture) -> None:
    join(broker)
    (group,) = broker.ask(list_groups, 5, types_filter=("Share",), states_filter=("stable",)).groups
    assert (group.group_id, group.protocol_type, group.group_state, group.group_type) == (
        GROUP,
        "share",
        "Stable",
        "share",
    )
    assert broker.ask(list_groups, 5, types_filter=("classic",)).groups == ()
    leave(broker)
    (group,) = broker.ask(list_groups, 5, states_filter=("Empty",)).groups
    assert group.group_id == GROUP


def test_offsets_are_described_with_their_lag(broker: GroupsFixture) -> None:
    join(broker)
    broker.share_states.put(GROUP, FLIGHTS_ID, 0, KeptState(1, 10, 3, 5))
    broker.end_offsets["flights", 0] = 100
    group = offsets(broker)
    (topic,) = group.topics
    assert (topic.topic_name, topic.topic_id) == ("flights", FLIGHTS_ID)
    rows = {row.partition_index: (row.start_offset, row.leader_epoch, row.lag) for row in topic.partitions}
    assert rows == {0: (10, 3, 85), 1: (-1, 0, -1), 2: (-1, 0, -1)}
    (row,) = offsets(broker, 0, version=0).topics[0].partitions
    assert row.start_offset == 10


def test_a_lag_whose_leader_does_not_answer_is_unknown(broker: GroupsFixture) -> None:
    broker.share_states.put(GROUP, FLIGHTS_ID, 0, KeptState(1, 10, 3, 5))
    (row,) = offsets(broker, 0).topics[0].partitions
    assert (row.start_offset, row.lag) == (10, -1)


def test_offsets_of_what_does_not_exist(broker: GroupsFixture) -> None:
    assert offsets(broker, group="unknown").error_code is NO_GROUP
    (row,) = offsets(broker, 7).topics[0].partitions
    assert (row.error_code, row.start_offset) == (ErrorCode.none, -1)
    (row,) = offsets(broker, 0, topic="trains").topics[0].partitions
    assert (row.error_code, row.start_offset) == (ErrorCode.none, -1)
    broker.share_states.code = ErrorCode.coordinator_not_available
    (row,) = offsets(broker, 0).topics[0].partitions
    assert row.error_code is ErrorCode.coordinator_not_available


def test_offsets_are_altered_in_a_new_epoch(broker: GroupsFixture) -> None:
    join(broker)
    leave(broker)
    before = broker.share_states.kept[GROUP, FLIGHTS_ID, 1].state_epoch
    assert code_of(alter(broker, 42, 1)) is ErrorCode.none
    state = broker.share_states.kept[GROUP, FLIGHTS_ID, 1]
    assert state.start_offset == 42
    assert state.state_epoch > before
    join(broker)
    assert broker.share_states.kept[GROUP, FLIGHTS_ID, 1].start_offset == 42


def test_a_group_may_be_created_by_its_offsets(broker: GroupsFixture) -> None:
    assert code_of(alter(broker, 7)) is ErrorCode.none
    # A leader that served the group before it had members is fenced: its state epoch is 0.
    assert broker.share_states.kept[GROUP, FLIGHTS_ID, 0] == KeptState(1, 7)
    assert described(broker).group_state == "Empty"
    broker.restart()
    assert [row.partition_index for row in offsets(broker).topics[0].partitions] == [0]


def test_offsets_that_cannot_be_altered(broker: GroupsFixture) -> None:
    assert code_of(alter(broker, 1, 7)) is ErrorCode.unknown_topic_or_partition
    assert code_of(alter(broker, 1, topic="trains")) is ErrorCode.unknown_topic_or_partition
    assert described(broker).error_code is NO_GROUP
    assert code_of(alter(broker, -1)) is ErrorCode.invalid_request
    broker.share_states.code = ErrorCode.fenced_state_epoch
    assert code_of(alter(broker, 1)) is ErrorCode.fenced_state_epoch
    broker.share_states.code = ErrorCode.none
    join(broker)
    assert alter(broker, 1).error_code is ErrorCode.non_empty_group


@pytest.mark.parametrize("iterations", range(0, 24, 2))
def test_a_topic_that_is_deleted_while_its_offsets_are_altered_stays_in_no_group(
    broker: GroupsFixture, iterations: int
) -> None:
    """The request has more partitions than a slice of the event loop has steps."""
    broker.follow_metadata()
    partitions = tuple({"partition_index": index, "start_offset": 5} for index in range(3 * SLICE_STEPS))
    rows = ({"topic_name": "flights", "partitions": partitions},)

    async def story() -> Any:
        asked = asyncio.ensure_future(broker.answer(alter_share_group_offsets, 0, group_id=GROUP, topics=rows))
        for _ in range(iterations):
            await asyncio.sleep(0)
        await broker.voter.propose(DeleteTopic(FLIGHTS_ID))
        answer = await asked
        # The coordinator deletes the states of the topic in the background.
        for _ in range(200):
            await asyncio.sleep(0)
        return answer

    codes = {row.error_code for row in broker.run(story()).responses[0].partitions}
    assert codes <= {ErrorCode.none, ErrorCode.unknown_topic_or_partition}
    shards = broker.services.groups._state_store.shards
    groups = [shard.groups[GROUP] for shard in shards if GROUP in shard.groups]
    assert [group.states.topic_ids() for group in groups if group.states.topic_ids()] == []


def test_offsets_of_topics_are_deleted(broker: GroupsFixture) -> None:
    def delete(topic: str = "flights") -> Any:
        return broker.ask(delete_share_group_offsets, 0, group_id=GROUP, topics=({"topic_name": topic},))

    assert delete().error_code is NO_GROUP
    join(broker)
    assert delete().error_code is ErrorCode.non_empty_group
    leave(broker)
    broker.share_states.code = ErrorCode.coordinator_not_available
    assert code_of(delete()) is ErrorCode.coordinator_not_available
    broker.share_states.code = ErrorCode.none
    assert code_of(delete()) is ErrorCode.none
    assert broker.share_states.kept == {}
    again = delete()
    assert code_of(again) is ErrorCode.none
    assert again.responses[0].error_message == "There is no offset information to delete."
    assert code_of(delete("trains")) is ErrorCode.unknown_topic_or_partition
    assert join(broker).assignment.topic_partitions[0].partitions == (0, 1, 2)


def test_a_group_is_deleted_with_its_share_states(broker: GroupsFixture) -> None:
    def delete() -> ErrorCode:
        code: ErrorCode = broker.ask(delete_groups, 2, groups_names=(GROUP,)).results[0].error_code
        return code

    join(broker)
    assert delete() is ErrorCode.non_empty_group
    leave(broker)
    broker.share_states.code = ErrorCode.coordinator_not_available
    assert delete() is ErrorCode.coordinator_not_available
    assert described(broker).group_state == "Empty"
    broker.share_states.code = ErrorCode.none
    assert delete() is ErrorCode.none
    assert broker.share_states.kept == {}
    broker.restart()
    assert described(broker).error_code is NO_GROUP
    broker.member()


def test_share_states_go_with_their_topic(broker: GroupsFixture) -> None:
    broker.follow_metadata()
    join(broker)
    leave(broker)
    broker.propose(DeleteTopic(FLIGHTS_ID))
    assert offsets(broker).topics == ()
    assert broker.share_states.kept == {}


def test_members_are_known_after_a_restart(broker: GroupsFixture) -> None:
    epoch = join(broker).member_epoch
    broker.restart()
    answer = beat(broker, epoch)
    if answer.error_code is ErrorCode.coordinator_load_in_progress:
        answer = beat(broker, epoch)
    assert (answer.error_code, answer.member_epoch) == (ErrorCode.none, epoch)
    assert [member.member_id for member in described(broker).members] == [MEMBER]
