"""AlterPartitionReassignments and ListPartitionReassignments in every version: start, listing, end and cancellation."""

from collections.abc import Iterator
from uuid import UUID

import pytest
from admin_fixture import AdminFixture
from kio.schema.errors import ErrorCode

from cordwood.cluster.kafka.handlers import alter_partition_reassignments, list_partition_reassignments
from cordwood.cluster.metadata.commands import AlterPartitions, BrokerId, CreateTopic, IsrChange
from cordwood.cluster.metadata.image import PartitionImage

FLIGHTS = UUID(int=1)


@pytest.fixture
def admin() -> Iterator[AdminFixture]:
    """Yield three brokers, of which the first holds the partition."""
    fixture = AdminFixture(brokers=3)
    fixture.propose(CreateTopic(FLIGHTS, "flights", ((BrokerId(1),),)))
    yield fixture
    fixture.close()


def reassign(
    admin: AdminFixture,
    replicas: tuple[int, ...] | None,
    version: int = 1,
    topic: str = "flights",
    index: int = 0,
    may_resize: bool = True,
) -> ErrorCode:
    wanted = {"name": topic, "partitions": ({"partition_index": index, "replicas": replicas},)}
    response = admin.ask(
        alter_partition_reassignments, version, topics=(wanted,), allow_replication_factor_change=may_resize
    )
    assert response.error_code is ErrorCode.none
    ((row,),) = (result.partitions for result in response.responses)
    assert (row.partition_index, row.error_message is None) == (index, row.error_code is ErrorCode.none)
    code: ErrorCode = row.error_code
    return code


def partition(admin: AdminFixture) -> PartitionImage:
    return admin.image.topics_by_id[FLIGHTS].partitions[0]


def catch_up(admin: AdminFixture, *members: int) -> None:
    """Apply the leader's ISR proposal of these members."""
    now = partition(admin)
    known = tuple((BrokerId(member), admin.image.brokers[BrokerId(member)].epoch) for member in members)
    change = IsrChange(FLIGHTS, 0, now.leader_epoch, now.partition_epoch, known)
    admin.propose(AlterPartitions(now.leader, admin.image.brokers[now.leader].epoch, (change,)))


def moves(admin: AdminFixture, *names: str) -> list[tuple[str, int, tuple[int, ...], tuple[int, ...], tuple[int, ...]]]:
    wanted = tuple({"name": name, "partition_indexes": (-1, 0, 7)} for name in names) or None
    response = admin.ask(list_partition_reassignments, 0, topics=wanted)
    assert response.error_code is ErrorCode.none
    return [
        (topic.name, row.partition_index, row.replicas, row.adding_replicas, row.removing_replicas)
        for topic in response.topics
        for row in topic.partitions
    ]


@pytest.mark.parametrize("version", alter_partition_reassignments.KEY.versions)
def test_every_version_moves_a_partition(admin: AdminFixture, version: int) -> None:
    assert reassign(admin, (2, 3), version) is ErrorCode.none
    expected = [("flights", 0, (2, 3, 1), (2, 3), (1,))]
    assert moves(admin) == moves(admin, "flights") == moves(admin, "other", "flights") == expected
    catch_up(admin, 1, 2, 3)
    assert moves(admin) == []
    assert (partition(admin).replicas, partition(admin).leader) == ((2, 3), 2)


@pytest.mark.parametrize("version", alter_partition_reassignments.KEY.versions)
def test_every_version_takes_a_move_back(admin: AdminFixture, version: int) -> None:
    assert reassign(admin, None, version) is ErrorCode.no_reassignment_in_progress
    assert reassign(admin, (2,), version) is ErrorCode.none
    assert reassign(admin, None, version) is ErrorCode.none
    assert moves(admin) == []
    assert partition(admin).replicas == (1,)


def test_a_move_to_where_it_is_is_none(admin: AdminFixture) -> None:
    before = partition(admin)
    assert reassign(admin, (1,)) is ErrorCode.none
    assert partition(admin) is before


@pytest.mark.parametrize("replicas", [(), (9,), (1, 1), tuple(range(1, 20_000))])
def test_a_move_to_nowhere_is_refused(admin: AdminFixture, replicas: tuple[int, ...]) -> None:
    assert reassign(admin, replicas) is ErrorCode.invalid_replica_assignment


def test_more_replicas_have_to_be_allowed(admin: AdminFixture) -> None:
    assert reassign(admin, (1, 2), may_resize=False) is ErrorCode.invalid_replication_factor
    assert reassign(admin, (2,), may_resize=False) is ErrorCode.none
    assert reassign(admin, (3,), may_resize=False) is ErrorCode.none, "there are two now, but one in the end"


def test_what_does_not_exist_is_unknown(admin: AdminFixture) -> None:
    assert reassign(admin, (1,), topic="other") is ErrorCode.unknown_topic_or_partition
    assert reassign(admin, (1,), index=1) is ErrorCode.unknown_topic_or_partition
    assert reassign(admin, (1,), index=-1) is ErrorCode.unknown_topic_or_partition
