"""ListOffsets in every version: the special timestamps below zero, and the version that introduced each."""

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from admin_fixture import AdminFixture
from kio.schema.errors import ErrorCode

from cordwood.archive.manifest import ArchivedSegment, Upload
from cordwood.cluster.kafka.handlers import list_offsets
from cordwood.cluster.metadata.archive_commands import BeginUpload, CommitUpload
from cordwood.cluster.metadata.commands import BrokerId, CreateTopic
from cordwood.storage.records import Record, encode

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = range(-1, -7, -1)


@pytest.fixture
def admin(admin: AdminFixture) -> AdminFixture:
    admin.keep_replicas("/data")
    admin.propose(CreateTopic(UUID(int=1), "flights", ((BrokerId(1),),)))
    return admin


def look_up(admin: AdminFixture, version: int, timestamp: int, replica_id: int = -1) -> Any:
    wanted = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": timestamp}
    topics = ({"name": "flights", "partitions": (wanted,)},)
    (topic,) = admin.ask(list_offsets, version, replica_id=replica_id, topics=topics).topics
    (row,) = topic.partitions
    return row


@pytest.mark.parametrize("version", list_offsets.KEY.versions)
def test_every_version_knows_where_a_partition_starts_and_ends(admin: AdminFixture, version: int) -> None:
    for place in (EARLIEST, LATEST):
        row = look_up(admin, version, place)
        assert (row.error_code, row.offset, row.timestamp) == (ErrorCode.none, 0, -1)
    row = look_up(admin, version, 5)
    assert (row.error_code, row.offset, row.timestamp) == (ErrorCode.none, -1, -1)


@pytest.mark.parametrize(
    ("place", "since"),
    [
        (MAX_TIMESTAMP, 7),
        (EARLIEST_LOCAL, 8),
        (LATEST_TIERED, 9),
        (EARLIEST_PENDING_UPLOAD, 11),
        (-7, 99),
        (-(1 << 63), 99),
    ],
)
def test_a_place_is_known_from_a_version_on(admin: AdminFixture, place: int, since: int) -> None:
    for version in list_offsets.KEY.versions:
        code = ErrorCode.none if version >= since else ErrorCode.unsupported_version
        assert look_up(admin, version, place).error_code is code


@pytest.mark.parametrize("place", [LATEST_TIERED, EARLIEST_PENDING_UPLOAD])
def test_nothing_is_archived(admin: AdminFixture, place: int) -> None:
    row = look_up(admin, 11, place)
    assert (row.error_code, row.offset, row.timestamp, row.leader_epoch) == (ErrorCode.none, -1, -1, -1)


def test_only_a_debugger_gets_the_log_end_before_it_is_committed(admin: AdminFixture) -> None:
    batch = encode([Record(0, 0, None, b"a"), Record(1, 0, None, b"b")])

    async def append() -> None:
        admin.services.replicas.led("flights", 0).append(batch, 0)

    admin.runner.run(append())
    consumer, debugger = (look_up(admin, 11, LATEST, replica_id) for replica_id in (-1, list_offsets.DEBUGGER))
    assert (consumer.offset, debugger.offset) == (0, 2)
    assert look_up(admin, 11, EARLIEST, list_offsets.DEBUGGER).offset == 0


def test_the_last_archived_offset_and_the_first_that_is_not_archived(admin: AdminFixture) -> None:
    partition = admin.services.replicas.led("flights", 0)
    archived = replace(partition.log.config, is_archived=True)
    partition.configure(archived)
    assert look_up(admin, 11, LATEST_TIERED).offset == -1
    assert look_up(admin, 11, EARLIEST_PENDING_UPLOAD).offset == 0
    upload = Upload(UUID(int=2), 0, 7, 0)
    admin.propose(BeginUpload(UUID(int=1), 0, partition.leader_epoch, (upload,)))
    assert look_up(admin, 11, LATEST_TIERED).offset == -1
    segment = ArchivedSegment(upload.id, 0, 0, 7, 100, 0, 10, 0, 1, 3)
    admin.propose(CommitUpload(UUID(int=1), 0, partition.leader_epoch, (segment,), (), 0))
    row = look_up(admin, 11, LATEST_TIERED)
    assert (row.error_code, row.offset, row.timestamp, row.leader_epoch) == (ErrorCode.none, 6, -1, 3)
    assert look_up(admin, 11, EARLIEST_PENDING_UPLOAD).offset == 7
