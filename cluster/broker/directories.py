"""The log directories of this broker and their directory ids (KIP-858)."""

from collections.abc import Callable, Sequence
from uuid import UUID

from cordwood.cluster.broker.identity import claim, is_damaged
from cordwood.cluster.metadata.commands import BrokerId
from cordwood.cluster.metadata.image import Image
from cordwood.replication.log_directory import LogDirectory
from cordwood.storage.disk import Disk
from cordwood.storage.errors import DamagedLog


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
        ids[directory.path] = str(claimed.directory_id)
    return tuple(ids[directory.path] for directory in directories)
