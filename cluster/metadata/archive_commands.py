"""Commands of the archive's manifests: uploads that begin and end, and archived segments that go (docs/adr/0040)."""

from dataclasses import dataclass
from typing import ClassVar
from uuid import UUID

from cordwood.archive.manifest import ArchivedSegment, Upload


@dataclass(frozen=True, slots=True)
class BeginUpload:
    """Announce the upload of a partition's segments to the archive, before their first byte. Expects the leader."""

    KIND: ClassVar[int] = 22
    topic_id: UUID
    partition: int
    leader_epoch: int
    uploads: tuple[Upload, ...]


@dataclass(frozen=True, slots=True)
class CommitUpload:
    """Add uploaded segments to a partition's archive, in place of `replaced` ones if there are any.

    Expects the leader, and that the uploads were announced and fit the archive as it is.
    """

    KIND: ClassVar[int] = 23
    topic_id: UUID
    partition: int
    leader_epoch: int
    segments: tuple[ArchivedSegment, ...]
    replaced: tuple[UUID, ...]
    now_ms: int


@dataclass(frozen=True, slots=True)
class RemoveArchived:
    """Remove the archived segments that end at or below `below`, or above `above`. Expects the leader.

    Their objects are deleted later (`ForgetArchived`).
    """

    KIND: ClassVar[int] = 24
    topic_id: UUID
    partition: int
    leader_epoch: int
    below: int
    above: int
    now_ms: int


@dataclass(frozen=True, slots=True)
class ForgetArchived:
    """Forget removed segments, whose objects have been deleted, and abandon uploads, which the next command forgets.

    Of a deleted topic all segments may be forgotten. From level 3 on, `GiveUpUploads` abandons uploads: two leaders,
    one of them deposed, may abandon an upload together, and its objects would be forgotten without deletion.
    """

    KIND: ClassVar[int] = 25
    topic_id: UUID
    partition: int
    ids: tuple[UUID, ...]


@dataclass(frozen=True, slots=True)
class GiveUpUploads:
    """Abandon uploads that were announced long ago: their objects are deleted, then forgotten. Expects the leader."""

    KIND: ClassVar[int] = 34
    LEVEL: ClassVar[int] = 3
    topic_id: UUID
    partition: int
    leader_epoch: int
    ids: tuple[UUID, ...]


ArchiveCommand = BeginUpload | CommitUpload | RemoveArchived | ForgetArchived | GiveUpUploads
