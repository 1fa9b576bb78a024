"""Conversion of the metadata of a cluster of one broker to that of a quorum of one voter, which may get more.

A single voter keeps two copies of plain commands, a voter one log of Raft entries. The conversion writes everything as
one snapshot, and removes the second copy last: a crash in between leaves the metadata of a single voter, which the next
start converts.
"""

import structlog

from cordwood.cluster.metadata.mirror import copy_of
from cordwood.cluster.metadata.quorum import QuorumOptions, SingleVoter
from cordwood.cluster.metadata.raft.messages import Standing
from cordwood.cluster.metadata.raft.storage import write_standing
from cordwood.storage.disk import Disk, sync_directory

_events = structlog.get_logger("quorum")


def convert(disk: Disk, directory: str, options: QuorumOptions) -> None:
    """Convert the metadata of a single voter, if there is any. Blocks. Raises as SingleVoter.open, and OSError."""
    copy = copy_of(directory)
    if not disk.exists(copy):
        return
    index = SingleVoter.open(disk, directory, options).end_in_snapshot()
    write_standing(disk, directory, Standing.MEMBER)
    disk.remove_tree(copy)
    sync_directory(disk, directory)
    _events.info("metadata.converted", index=index, what="from a cluster of one broker to a quorum of one voter")
