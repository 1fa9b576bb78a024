"""AlterReplicaLogDirs in every version: a replica may only be assigned to its present log directory."""

from errno import EIO
from uuid import UUID

import pytest
from admin_fixture import AdminFixture
from kio.schema.errors import ErrorCode

from cordwood.cluster.kafka.handlers import alter_replica_log_dirs
from cordwood.cluster.metadata.commands import BrokerId, CreateTopic
from cordwood.replication.log_directory import LogDirectory


@pytest.fixture
def directories(admin: AdminFixture) -> list[LogDirectory]:
    directories = admin.keep_replicas("/data-1", "/data-2")
    admin.propose(CreateTopic(UUID(int=1), "flights", ((BrokerId(1),),)))
    return directories


def move(admin: AdminFixture, path: str, version: int = 2, topic: str = "flights", index: int = 0) -> ErrorCode:
    wanted = {"path": path, "topics": ({"name": topic, "partitions": (index,)},)}
    (result,) = admin.ask(alter_replica_log_dirs, version, dirs=(wanted,)).results
    (row,) = result.partitions
    assert (result.topic_name, row.partition_index) == (topic, index)
    code: ErrorCode = row.error_code
    return code


@pytest.mark.parametrize("version", alter_replica_log_dirs.VERSIONS)
@pytest.mark.usefixtures("directories")
def test_every_version_accepts_where_a_replica_is_and_nothing_else(admin: AdminFixture, version: int) -> None:
    held = admin.services.replicas.led("flights", 0).directory.path
    other = {"/data-1": "/data-2", "/data-2": "/data-1"}[held]
    assert move(admin, held, version) is ErrorCode.none
    assert move(admin, held + "/", version) is ErrorCode.none
    assert move(admin, other, version) is ErrorCode.invalid_request
    assert move(admin, "/elsewhere", version) is ErrorCode.log_dir_not_found


@pytest.mark.usefixtures("directories")
def test_a_replica_that_is_not_here_is_not_available(admin: AdminFixture) -> None:
    assert move(admin, "/data-1", index=1) is ErrorCode.replica_not_available
    assert move(admin, "/data-1", topic="other") is ErrorCode.replica_not_available


def test_a_directory_that_is_offline_takes_nothing(admin: AdminFixture, directories: list[LogDirectory]) -> None:
    directories[0].fail(OSError(EIO, "input/output error"))
    assert move(admin, "/data-1") is ErrorCode.kafka_storage_error


@pytest.mark.usefixtures("directories")
def test_of_several_wishes_for_a_replica_the_last_counts(admin: AdminFixture) -> None:
    held = admin.services.replicas.led("flights", 0).directory.path
    topics = ({"name": "flights", "partitions": (0,)},)
    wishes = ({"path": "/elsewhere", "topics": topics}, {"path": held, "topics": topics})
    (result,) = admin.ask(alter_replica_log_dirs, 2, dirs=wishes).results
    assert [row.error_code for row in result.partitions] == [ErrorCode.none]
