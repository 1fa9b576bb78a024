"""Mark of a log directory that is restored from an archive: the file `restore`, from the first write on."""

import json
from collections.abc import Sequence
from typing import NamedTuple

from cordwood.cluster.broker.identity import WrongDirectory
from cordwood.storage import checkpoint
from cordwood.storage.disk import Disk
from cordwood.storage.errors import DamagedLog

NAME = "restore"


class RestoreMark(NamedTuple):
    """The restoration into the directory, and whether it has ended."""

    plan_id: str
    is_done: bool


def read(disk: Disk, directory: str) -> RestoreMark | None:
    """Return the mark; None if the directory was never restored. Blocks. A damaged mark counts as one that is not done.

    The brokers that start later do not need the mark of a restoration that has ended: removing it repairs the damage.
    """
    try:
        payload = checkpoint.read(disk, f"{directory}/{NAME}")
    except DamagedLog:
        return RestoreMark("", is_done=False)
    if payload is None:
        return None
    content = json.loads(payload)
    return RestoreMark(content["plan"], content["done"])


def write(disk: Disk, directory: str, mark: RestoreMark) -> None:
    """Replace the mark. Durable on return. Blocks. Raises OSError."""
    payload = json.dumps({"plan": mark.plan_id, "done": mark.is_done}).encode()
    checkpoint.write(disk, f"{directory}/{NAME}", payload)


def refuse_unrestored(disk: Disk, directories: Sequence[str]) -> None:
    """Raise WrongDirectory if a restoration of one of the directories has not ended."""
    for directory in directories:
        mark = read(disk, directory)
        if mark is not None and not mark.is_done:
            raise WrongDirectory(
                f"a restoration of {directory} has not ended: repeat `cordwood archive restore` with the same options,"
                " or empty the directory."
            )
