"""OffsetCommit, OffsetFetch and OffsetDelete, in every version."""

from collections.abc import Iterator
from uuid import UUID

import pytest
from groups_fixture import FLIGHTS_ID, GROUP, GroupsFixture
from kio.schema.errors import ErrorCode

from cordwood.cluster.coordination.topic import partition_of
from cordwood.cluster.kafka.handlers import offset_commit, offset_delete, offset_fetch
from cordwood.cluster.metadata.commands import BrokerId, CreateTopic, DeleteTopic


@pytest.fixture
def broker() -> Iterator[GroupsFixture]:
    fixture = GroupsFixture(offset_metadata_max_bytes=10)
    yield fixture
    fixture.close()


@pytest.mark.parametrize("version", offset_commit.KEY.versions)
def test_what_is_committed_in_any_version_is_found(broker: GroupsFixture, version: int) -> None:
    assert broker.commit(42, version) is ErrorCode.none
    (partition,) = broker.fetch(9, 0).topics[0].partitions
    assert (partition.committed_offset, partition.metadata, partition.error_code) == (42, "note", ErrorCode.none)
    assert partition.committed_leader_epoch == (3 if version >= 6 else -1)


@pytest.mark.parametrize("version", offset_fetch.KEY.versions)
def test_what_is_committed_is_found_in_any_version(broker: GroupsFixture, version: int) -> None:
    broker.commit(42, partition=1)
    answer = broker.fetch(version, 0, 1)
    nothing, committed = answer.topics[0].partitions
    assert (nothing.partition_index, nothing.committed_offset, nothing.metadata) == (0, -1, "")
    assert (committed.partition_index, committed.committed_offset, committed.metadata) == (1, 42, "note")
    assert nothing.error_code is committed.error_code is ErrorCode.none
    if version >= 5:
        assert committed.committed_leader_epoch == 3


@pytest.mark.parametrize("version", range(2, 11))
def test_all_that_a_group_has_committed_is_found(broker: GroupsFixture, version: int) -> None:
    broker.commit(42, partition=1)
    broker.commit(41, partition=0)
    answer = broker.fetch(version)
    assert answer.error_code is ErrorCode.none
    assert [
        (
            getattr(topic, "name", "flights"),
            [(partition.partition_index, partition.committed_offset) for partition in topic.partitions],
        )
        for topic in answer.topics
    ] == [("flights", [(0, 41), (1, 42)])]
    assert broker.fetch(version, group_id="nobody's").topics == ()


def test_topics_are_named_by_id_from_version_10_on(broker: GroupsFixture) -> None:
    assert broker.commit(42, 10) is ErrorCode.none
    assert broker.commit(42, 10, partition=3) is ErrorCode.unknown_topic_or_partition
    assert broker.commit(42, 10, topic_id=UUID(int=99)) is ErrorCode.unknown_topic_id
    assert broker.commit(42, 10, topic_id=None) is ErrorCode.unknown_topic_id
    assert broker.fetch(10).topics[0].topic_id == broker.fetch(10, 0).topics[0].topic_id == FLIGHTS_ID
    topics = tuple({"topic_id": topic_id, "partition_indexes": (0,)} for topic_id in (UUID(int=99), FLIGHTS_ID, None))
    (group,) = broker.ask(offset_fetch, 10, groups=({"group_id": GROUP, "topics": topics},)).groups
    assert [
        (topic.topic_id, partition.committed_offset, partition.error_code)
        for topic in group.topics
        for partition in topic.partitions
    ] == [
        (UUID(int=99), -1, ErrorCode.unknown_topic_id),
        (FLIGHTS_ID, 42, ErrorCode.none),
        (None, -1, ErrorCode.unknown_topic_id),
    ]


def test_offsets_of_a_deleted_topic_have_no_id_by_which_they_could_be_named(broker: GroupsFixture) -> None:
    broker.propose(CreateTopic(UUID(int=9), "trains", ((BrokerId(1),),)))
    assert broker.commit(41, topic="trains") is broker.commit(42) is ErrorCode.none
    # The offsets of the topic cannot be removed yet.
    broker.topic.refusal = ErrorCode.coordinator_not_available
    broker.propose(DeleteTopic(UUID(int=9)))
    assert [topic.name for topic in broker.fetch(9).topics] == ["flights", "trains"]
    assert [topic.topic_id for topic in broker.fetch(10).topics] == [FLIGHTS_ID]


def test_several_groups_are_asked_for_at_once(broker: GroupsFixture) -> None:
    broker.commit(42)
    groups = tuple({"group_id": group_id, "topics": None} for group_id in (GROUP, "other"))
    first, second = broker.ask(offset_fetch, 8, groups=groups).groups
    assert (first.group_id, len(first.topics)) == (GROUP, 1)
    assert (second.group_id, second.topics, second.error_code) == ("other", (), ErrorCode.none)


def test_a_group_is_asked_for_all_its_offsets_once_however_often_it_is_named(broker: GroupsFixture) -> None:
    broker.commit(42)
    named = {"group_id": GROUP, "topics": ({"name": "flights", "partition_indexes": (0,)},)}
    groups = ({"group_id": GROUP, "topics": None}, named, {"group_id": "other", "topics": None})
    answer = broker.ask(offset_fetch, 8, groups=groups * 3).groups
    assert [(group.group_id, len(group.topics)) for group in answer] == [
        (GROUP, 1),
        (GROUP, 1),
        ("other", 0),
        *[(GROUP, 1)] * 2,
    ]
    assert len(answer) == 5


@pytest.mark.parametrize("version", offset_fetch.KEY.versions)
def test_an_error_stands_where_the_version_has_room_for_it(broker: GroupsFixture, version: int) -> None:
    broker.commit(42)
    broker.topic.damaged.add(partition_of(GROUP, 4))
    broker.restart()
    broker.until_loaded()
    answer = broker.fetch(version, 0, 1)
    if version >= 2:
        assert (answer.error_code, answer.topics) == (ErrorCode.coordinator_not_available, ())
    else:
        codes = {partition.error_code for partition in answer.topics[0].partitions}
        assert codes == {ErrorCode.coordinator_not_available}


@pytest.mark.parametrize("version", offset_commit.KEY.versions)
def test_a_member_commits_in_its_generation_only(broker: GroupsFixture, version: int) -> None:
    member_id = broker.member()

    def commit(member: str, generation: int, group_id: str = GROUP) -> ErrorCode:
        return broker.commit(5, version, member_id=member, generation_id_or_member_epoch=generation, group_id=group_id)

    assert commit(member_id, 1) is ErrorCode.none
    assert commit(member_id, 0) is ErrorCode.illegal_generation
    assert commit("nobody", 1) is ErrorCode.unknown_member_id
    assert commit("", -1) is ErrorCode.unknown_member_id
    unknown_group = ErrorCode.group_id_not_found if version >= 9 else ErrorCode.illegal_generation
    assert commit(member_id, 1, "other") is unknown_group


def test_metadata_may_be_missing_but_not_too_long(broker: GroupsFixture) -> None:
    assert broker.commit(5, metadata=None) is ErrorCode.none
    assert broker.fetch(9, 0).topics[0].partitions[0].metadata == ""
    assert broker.commit(5, metadata="x" * 10) is ErrorCode.none
    assert broker.commit(6, metadata="x" * 11) is ErrorCode.offset_metadata_too_large
    assert broker.commit(6, metadata="ü" * 6) is ErrorCode.offset_metadata_too_large
    assert broker.fetch(9, 0).topics[0].partitions[0].committed_offset == 5


def test_offsets_are_committed_only_for_partitions_that_exist(broker: GroupsFixture) -> None:
    assert broker.commit(5, partition=3) is ErrorCode.unknown_topic_or_partition
    assert broker.commit(5, partition=-1) is ErrorCode.unknown_topic_or_partition
    assert broker.commit(5, topic="trains") is ErrorCode.unknown_topic_or_partition
    assert broker.fetch(9).topics == ()


def test_each_partition_of_a_commit_has_its_own_code(broker: GroupsFixture) -> None:
    def partition(index: int, metadata: str) -> dict[str, object]:
        return {"partition_index": index, "committed_offset": 1, "committed_metadata": metadata}

    partitions = (partition(0, ""), partition(1, "much too long"), partition(7, ""))
    answer = broker.ask(offset_commit, 9, group_id=GROUP, generation_id_or_member_epoch=-1, topics=(
        {"name": "flights", "partitions": partitions},
    ))  # fmt: skip
    assert [row.error_code for row in answer.topics[0].partitions] == [
        ErrorCode.none,
        ErrorCode.offset_metadata_too_large,
        ErrorCode.unknown_topic_or_partition,
    ]


def delete(broker: GroupsFixture, *partitions: int, group_id: str = GROUP, topic: str = "flights") -> object:
    topics = ({"name": topic, "partitions": tuple({"partition_index": index} for index in partitions)},)
    answer = broker.ask(offset_delete, 0, group_id=group_id, topics=topics)
    if answer.error_code is not ErrorCode.none:
        assert answer.topics == ()
        return answer.error_code
    return [row.error_code for row in answer.topics[0].partitions]


def test_offsets_are_deleted(broker: GroupsFixture) -> None:
    broker.commit(5, partition=0)
    broker.commit(6, partition=1)
    assert delete(broker, 0, 2, 9) == [ErrorCode.none, ErrorCode.none, ErrorCode.unknown_topic_or_partition]
    assert delete(broker, 0, topic="trains") == [ErrorCode.unknown_topic_or_partition]
    assert [row.partition_index for row in broker.fetch(9).topics[0].partitions] == [1]
    assert delete(broker, 0, group_id="other") is ErrorCode.group_id_not_found


def test_offsets_in_use_are_not_deleted(broker: GroupsFixture) -> None:
    broker.member()
    assert delete(broker, 0) == [ErrorCode.group_subscribed_to_topic]


def test_offsets_of_members_of_another_kind_are_not_deleted(broker: GroupsFixture) -> None:
    broker.join(member_id=broker.join(protocol_type="connect").member_id, protocol_type="connect")
    assert delete(broker, 0) is ErrorCode.non_empty_group
