"""AlterPartitionReassignments and ListPartitionReassignments in every version: partitions stay where they are."""

from collections.abc import Iterator
from uuid import UUID

import pytest
from admin_fixture import AdminFixture
from kio.schema.errors import ErrorCode

from cordwood.cluster.kafka.handlers import alter_partition_reassignments, list_partition_reassignments
from cordwood.cluster.metadata.commands import BrokerId, CreateTopic


@pytest.fixture
def admin() -> Iterator[AdminFixture]:
    fixture = AdminFixture(brokers=2)
    fixture.propose(CreateTopic(UUID(int=1), "flights", ((BrokerId(1),),)))
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


@pytest.mark.parametrize("version", alter_partition_reassignments.VERSIONS)
def test_every_version_accepts_the_brokers_that_have_it(admin: AdminFixture, version: int) -> None:
    assert reassign(admin, (1,), version) is ErrorCode.none
    assert reassign(admin, None, version) is ErrorCode.no_reassignment_in_progress


@pytest.mark.parametrize("replicas", [(), (9,), (1, 1), (2,), (1, 2)])
def test_other_brokers_are_refused(admin: AdminFixture, replicas: tuple[int, ...]) -> None:
    assert reassign(admin, replicas) is ErrorCode.invalid_replica_assignment


def test_more_replicas_have_to_be_allowed(admin: AdminFixture) -> None:
    assert reassign(admin, (1, 2), may_resize=False) is ErrorCode.invalid_replication_factor


def test_what_does_not_exist_is_unknown(admin: AdminFixture) -> None:
    assert reassign(admin, (1,), topic="other") is ErrorCode.unknown_topic_or_partition
    assert reassign(admin, (1,), index=1) is ErrorCode.unknown_topic_or_partition
    assert reassign(admin, (1,), index=-1) is ErrorCode.unknown_topic_or_partition


@pytest.mark.parametrize("version", list_partition_reassignments.VERSIONS)
def test_none_is_under_way(admin: AdminFixture, version: int) -> None:
    for topics in (None, ({"name": "flights", "partition_indexes": (0,)},)):
        response = admin.ask(list_partition_reassignments, version, topics=topics)
        assert (response.error_code, response.topics) == (ErrorCode.none, ())
