"""Whose log directory this is: the broker and the cluster it was first used by, and a lock while it is in use."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from cordwood.cluster.metadata import journal
from cordwood.cluster.metadata.mirror import COPY
from cordwood.storage import checkpoint
from cordwood.storage.disk import Disk
from cordwood.storage.errors import DamagedLog

NAME = "identity"


class WrongDirectory(Exception):
    """A log directory that belongs to another broker or cluster: a sentence that says what to do about it."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What a log directory remembers of its owner. `directory_id` never changes (KIP-858)."""

    cluster_id: str
    node_id: int
    directory_id: UUID


def refuse_to_found(disk: Disk, metadata: str, directories: Sequence[str]) -> None:
    """Raises WrongDirectory where there is no metadata, but a log directory that was in use: it would look abandoned.

    A new cluster knows no topics, so everything in there would be removed.
    """
    if any(disk.exists(f"{place}/{journal.NAME}") for place in (metadata, f"{metadata}/{COPY}")):
        return
    for directory in directories:
        if disk.exists(f"{directory}/{NAME}"):
            raise WrongDirectory(
                f"{directory} has been in use, but its cluster's metadata is missing from {metadata}:"
                " put it back, or give this broker an empty log.dirs."
            )


@dataclass(frozen=True, slots=True)
class Claim:
    """A log directory that is ours: its id, and what was wrong with the file that says so."""

    directory_id: UUID
    damage: DamagedLog | None = None


def cluster_of(disk: Disk, directories: Sequence[str]) -> str:
    """The id of the cluster that these directories were used in; "" where none of them says so."""
    for directory in directories:
        try:
            payload = checkpoint.read(disk, f"{directory}/{NAME}")
        except DamagedLog:
            continue
        if payload is not None:
            return _identity(payload).cluster_id
    return ""


def claim(disk: Disk, directory: str, cluster_id: str, node_id: int, new_id: UUID) -> Claim:
    """See that the directory is this broker's, or make it so at its first use. Raises WrongDirectory.

    A damaged file is written anew: all that is in it is known from elsewhere. `new_id` is then the id that the
    directory had, as far as the caller can tell.
    """
    path = f"{directory}/{NAME}"
    damage = payload = None
    try:
        payload = checkpoint.read(disk, path)
    except DamagedLog as damaged:
        damage = damaged
    if payload is None:
        content = {"cluster.id": cluster_id, "node.id": node_id, "directory.id": str(new_id)}
        checkpoint.write(disk, path, json.dumps(content).encode())
        return Claim(new_id, damage)
    identity = _identity(payload)
    if identity.node_id != node_id:
        raise WrongDirectory(
            f"{directory} belongs to broker {identity.node_id}, and this is broker {node_id}:"
            " set node.id or log.dirs so that they fit."
        )
    if identity.cluster_id != cluster_id:
        raise WrongDirectory(
            f"{directory} belongs to cluster {identity.cluster_id}, and the metadata is of cluster {cluster_id}:"
            " if the metadata was lost, put it back; otherwise give this broker an empty log.dirs."
        )
    return Claim(identity.directory_id)


def is_damaged(disk: Disk, directory: str) -> bool:
    """Whether the directory was in use, and can no longer say by whom."""
    try:
        checkpoint.read(disk, f"{directory}/{NAME}")
    except DamagedLog:
        return True
    return False


def _identity(payload: bytes) -> Identity:
    content = json.loads(payload)
    return Identity(content["cluster.id"], content["node.id"], UUID(content["directory.id"]))
