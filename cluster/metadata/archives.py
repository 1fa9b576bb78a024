"""Changes of the archive's manifests by metadata commands (`archive/manifest.py` has the rules). Pure."""

from collections.abc import Mapping
from dataclasses import replace
from typing import assert_never
from uuid import UUID

from kio.schema.errors import ErrorCode

from cordwood.archive.manifest import (
    ManifestConflict,
    PartitionArchive,
    forgotten,
    given_up,
    with_committed,
    with_replaced,
    with_upload,
    without,
)
from cordwood.cluster.metadata.archive_commands import (
    ArchiveCommand,
    BeginUpload,
    CommitUpload,
    ForgetArchived,
    GiveUpUploads,
    RemoveArchived,
)
from cordwood.cluster.metadata.image import CommandRefused, by_place
from cordwood.cluster.metadata.image_delta import ImageDelta
from cordwood.cluster.metadata.persistent_map import REMOVED

_NOTHING = PartitionArchive()


def after(delta: ImageDelta, command: ArchiveCommand) -> Mapping[tuple[UUID, int], PartitionArchive]:
    """Return all archives after the command. Raises CommandRefused."""
    before = by_place(delta.rest.archives)
    place = command.topic_id, command.partition
    if not isinstance(command, ForgetArchived):
        _check_leader(delta, command)
    try:
        archive = _changed(before.get(place, _NOTHING), command)
    except ManifestConflict as conflict:
        raise CommandRefused(ErrorCode.invalid_request, f"The archive does not allow this: {conflict}.") from None
    if isinstance(command, ForgetArchived) and delta.topic(command.topic_id) is None:
        # The archive of a deleted topic ends with its last object.
        archive = replace(archive, segments=tuple([one for one in archive.segments if one.id not in command.ids]))
        if not archive.has_objects:
            return before.updated({place: REMOVED})
    return before.updated({place: archive})


def _changed(archive: PartitionArchive, command: ArchiveCommand) -> PartitionArchive:
    match command:
        case BeginUpload():
            for upload in command.uploads:
                archive = with_upload(archive, upload)
            return archive
        case CommitUpload():
            if command.replaced:
                return with_replaced(archive, command.replaced, command.segments, command.now_ms)
            return with_committed(archive, command.segments)
        case RemoveArchived():
            return without(archive, command.below, command.above, command.now_ms)
        case ForgetArchived():
            return forgotten(archive, command.ids)
        case GiveUpUploads():
            return given_up(archive, command.ids)
        case _:
            assert_never(command)


def _check_leader(delta: ImageDelta, command: BeginUpload | CommitUpload | RemoveArchived | GiveUpUploads) -> None:
    """Refuse the command of a former leader."""
    partition = delta.partition(command.topic_id, command.partition)
    if partition is None:
        raise CommandRefused(ErrorCode.unknown_topic_id, f"No topic has the id {command.topic_id}.")
    if partition.leader_epoch != command.leader_epoch:
        raise CommandRefused(
            ErrorCode.fenced_leader_epoch,
            f"The leader epoch is {partition.leader_epoch}, and the command has {command.leader_epoch}.",
        )
