"""Archives in the metadata: the leader alone changes them, and that of a deleted topic ends with its objects."""

from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode
from metadata_scenario import TOPIC, MetadataScenario

from cordwood.archive.manifest import NO_LIMIT, ArchivedSegment, PartitionArchive, Upload
from cordwood.cluster.metadata import snapshot
from cordwood.cluster.metadata.archive_commands import (
    BeginUpload,
    CommitUpload,
    ForgetArchived,
    GiveUpUploads,
    RemoveArchived,
)
from cordwood.cluster.metadata.command_codec import decode, encode
from cordwood.cluster.metadata.commands import DeleteTopic

ONE = UUID(int=11)
SEGMENT = ArchivedSegment(ONE, 0, 0, 10, 100, 1, 20, 2, 5, 0)
UPLOAD = Upload(ONE, 0, 10, 1000)


def commit(epoch: int = 0, *segments: ArchivedSegment, replaced: tuple[UUID, ...] = ()) -> CommitUpload:
    return CommitUpload(TOPIC, 0, epoch, segments or (SEGMENT,), replaced, 2000)


def begun() -> MetadataScenario:
    return MetadataScenario().create(1, 2).apply(BeginUpload(TOPIC, 0, 0, (UPLOAD,)))


def archive(scenario: MetadataScenario) -> PartitionArchive:
    return scenario.image.archives[TOPIC, 0]


def test_an_upload_is_announced_committed_removed_and_forgotten() -> None:
    scenario = begun()
    assert archive(scenario).uploads == (UPLOAD,)
    scenario.apply(commit())
    assert archive(scenario) == PartitionArchive((SEGMENT,), sequence=1)
    scenario.apply(RemoveArchived(TOPIC, 0, 0, 10, NO_LIMIT, 3000))
    assert [one.removed_ms for one in archive(scenario).removed] == [3000]
    scenario.apply(ForgetArchived(TOPIC, 0, (ONE,)))
    assert archive(scenario) == PartitionArchive(sequence=2, log_start=10)


@pytest.mark.parametrize("epoch", [-1, 1])
def test_another_leader_changes_nothing(epoch: int) -> None:
    scenario = begun().level(GiveUpUploads.LEVEL)
    for command in (
        BeginUpload(TOPIC, 0, epoch, (Upload(UUID(int=12), 0, 10, 0),)),
        commit(epoch),
        RemoveArchived(TOPIC, 0, epoch, 10, NO_LIMIT, 3000),
        GiveUpUploads(TOPIC, 0, epoch, (ONE,)),
    ):
        assert scenario.refusal(command) is ErrorCode.fenced_leader_epoch


def test_what_does_not_fit_is_refused() -> None:
    scenario = begun().apply(commit())
    assert scenario.refusal(commit()) is ErrorCode.invalid_request
    assert scenario.refusal(BeginUpload(TOPIC, 0, 0, (UPLOAD,))) is ErrorCode.invalid_request
    unknown = BeginUpload(UUID(int=99), 0, 0, ())
    assert scenario.refusal(unknown) is ErrorCode.unknown_topic_id


def test_a_late_commit_of_an_upload_that_was_given_up_is_refused() -> None:
    scenario = begun().apply(ForgetArchived(TOPIC, 0, (ONE,)))
    assert [one.id for one in archive(scenario).removed] == [ONE]
    assert scenario.refusal(commit()) is ErrorCode.invalid_request


def test_an_upload_that_two_leaders_give_up_is_not_forgotten_before_its_objects_are_deleted() -> None:
    scenario = begun().level(GiveUpUploads.LEVEL)
    scenario.apply(GiveUpUploads(TOPIC, 0, 0, (ONE,)), GiveUpUploads(TOPIC, 0, 0, (ONE,)))
    assert [one.id for one in archive(scenario).removed] == [ONE]
    assert archive(scenario).uploads == ()
    scenario.apply(ForgetArchived(TOPIC, 0, (ONE,)))
    assert archive(scenario) == PartitionArchive()


def test_the_archive_of_a_deleted_topic_ends_with_its_last_object() -> None:
    scenario = begun().apply(commit(), BeginUpload(TOPIC, 0, 0, (Upload(UUID(int=12), 10, 20, 0),)), DeleteTopic(TOPIC))
    assert archive(scenario).segments == (SEGMENT,)
    assert scenario.refusal(commit()) is ErrorCode.unknown_topic_id
    # A former leader gives up its upload late: the segment is kept, and the upload's objects are still to be deleted.
    scenario.apply(ForgetArchived(TOPIC, 0, (UUID(int=12),)))
    assert (len(archive(scenario).segments), len(archive(scenario).removed)) == (1, 1)
    scenario.apply(ForgetArchived(TOPIC, 0, (ONE, UUID(int=12))))
    assert scenario.image.archives == {}


def test_segments_of_a_topic_that_exists_are_not_forgotten() -> None:
    scenario = begun().apply(commit(), ForgetArchived(TOPIC, 0, (ONE,)))
    assert archive(scenario).segments == (SEGMENT,)


def test_a_topic_is_known_to_the_archive_before_its_first_upload() -> None:
    scenario = MetadataScenario().create(1, 2).apply(BeginUpload(TOPIC, 0, 0, ()), DeleteTopic(TOPIC))
    assert archive(scenario) == PartitionArchive()
    scenario.apply(ForgetArchived(TOPIC, 0, ()))
    assert scenario.image.archives == {}


def test_archives_are_in_snapshots() -> None:
    scenario = begun().apply(commit(), BeginUpload(TOPIC, 0, 0, (Upload(UUID(int=12), 10, 20, 0),)))
    scenario.apply(RemoveArchived(TOPIC, 0, 0, 10, NO_LIMIT, 3000))
    assert snapshot.decode(snapshot.encode(scenario.image)) == scenario.image


@pytest.mark.parametrize(
    "command",
    [
        BeginUpload(TOPIC, 0, 0, (UPLOAD,)),
        commit(3, SEGMENT, replaced=(UUID(int=5),)),
        RemoveArchived(TOPIC, 0, 0, 10, NO_LIMIT, 3000),
        ForgetArchived(TOPIC, 0, (ONE,)),
        GiveUpUploads(TOPIC, 0, 0, (ONE,)),
    ],
    ids=lambda command: type(command).__name__,
)
def test_a_command_is_read_as_it_was_written(command: BeginUpload) -> None:
    assert decode(encode(command)) == command
