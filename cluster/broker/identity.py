"""Identity file of a log directory: the broker and the cluster that it belongs to, and its directory id (KIP-858)."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from uuid import UUID

from cordwood.cluster.metadata import journal
from cordwood.cluster.metadata.commands import BrokerId
from cordwood.cluster.metadata.image import Image
from cordwood.cluster.metadata.mirror import COPY
from cordwood.replication.log_directory import LogDirectory
from cordwood.storage import checkpoint
from cordwood.storage.disk import Disk
from cordwood.storage.errors import DamagedLog

NAME = "identity"


class WrongDirectory(Exception):
    """A log directory of another broker or cluster: a sentence that says what to do."""


@dataclass(frozen=True, slots=True)
class DirectoryIdentity:
    """The owner of a log directory. `directory_id` never changes (KIP-858)."""

    cluster_id: str
    node_id: int
    directory_id: UUID


def refuse_to_found(disk: Disk, metadata: str, directories: Sequence[str]) -> None:
    """Raise WrongDirectory if the metadata is missing and a log directory was in use.

    A new cluster has no topics, so it would remove all logs in that directory.
    """
    if any(disk.exists(f"{place}/{journal.NAME}") for place in (metadata, f"{metadata}/{COPY}")):
        return
    for directory in directories:
        if disk.exists(f"{directory}/{NAME}"):
            raise WrongDirectory(
                f"{directory} has been used before, but the cluster's metadata is missing from {metadata}: restore"
                " the metadata, or give this broker an empty log.dirs."
            )


@dataclass(frozen=True, slots=True)
class Claim:
    """A log directory that is claimed: its id, and the damage of its identity file."""

    directory_id: UUID
    damage: DamagedLog | None = None


def cluster_of(disk: Disk, directories: Sequence[str]) -> str:
    """Return the id of the cluster that these directories were used in; "" if no identity file has one."""
    for directory in directories:
        try:
            payload = checkpoint.read(disk, f"{directory}/{NAME}")
        except DamagedLog:
            continue
        if payload is not None:
            return _identity(payload).cluster_id
    return ""


def claim(disk: Disk, directory: str, cluster_id: str, node_id: int, new_id: UUID) -> Claim:
    """Check that the directory is this broker's, or claim it at its first use. Raises WrongDirectory.

    A damaged file is written again: all its content is known from elsewhere. `new_id` is then the directory's former
    id, if the caller has it.
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
            f"{directory} belongs to broker {identity.node_id}, and this is broker {node_id}: correct node.id or"
            " log.dirs."
        )
    if identity.cluster_id != cluster_id:
        raise WrongDirectory(
            f"{directory} belongs to cluster {identity.cluster_id}, but the metadata to cluster {cluster_id}: if"
            " the metadata was lost, restore it; otherwise give this broker an empty log.dirs."
        )
    return Claim(identity.directory_id)


def claim_all(
    disk: Disk,
    directories: Sequence[LogDirectory],
    image: Image,
    node_id: int,
    new_id: Callable[[], UUID],
    damaged: Callable[[DamagedLog], None],
) -> tuple[str, ...]:
    """Claim the log directories for this broker and return their ids. Raises WrongDirectory.

    If one directory has logs and a damaged identity file, and the metadata misses exactly one id, the directory gets
    that id: under a new id it would count as lost.
    """
    for directory in directories:
        for damage in directory.flushed_offsets.damage:
            damaged(damage)
    known = image.brokers.get(BrokerId(node_id))
    nameless = [directory for directory in directories if is_damaged(disk, directory.path) and directory.found()]
    ids: dict[str, str] = {}
    for directory in sorted(directories, key=lambda directory: directory in nameless):
        missing = [] if known is None else [UUID(text) for text in known.log_dirs if text not in ids.values()]
        is_known = directory in nameless and len(nameless) == len(missing) == 1
        claimed = claim(disk, directory.path, image.cluster_id, node_id, missing[0] if is_known else new_id())
        if claimed.damage is not None:
            damaged(claimed.damage)
        ids[directory.path] = directory.id = str(claimed.directory_id)
    return tuple(ids[directory.path] for directory in directories)


async def scrub_identities(
    disk: Disk, directories: Sequence[LogDirectory], image: Image, node_id: int, ids: Sequence[str]
) -> list[DamagedLog]:
    """Verify the identity file of each directory, and write damaged ones again. Return the damage."""
    found = []
    for directory, text in zip(directories, ids, strict=True):
        claimed = await directory.run_blocking(claim, disk, directory.path, image.cluster_id, node_id, UUID(text))
        found.append(claimed.damage)
    return [damage for damage in found if damage is not None]


def is_damaged(disk: Disk, directory: str) -> bool:
    """Return True if the directory was in use and its identity file is damaged."""
    try:
        checkpoint.read(disk, f"{directory}/{NAME}")
    except DamagedLog:
        return True
    return False


def _identity(payload: bytes) -> DirectoryIdentity:
    content = json.loads(payload)
    return DirectoryIdentity(content["cluster.id"], content["node.id"], UUID(content["directory.id"]))
