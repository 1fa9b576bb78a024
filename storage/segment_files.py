"""Segment files of a log: names, directory listing, and a check for missing or short files."""

from contextlib import closing

from cordwood.storage.disk import Disk
from cordwood.storage.errors import DamagedLog, damage_of

BASE_DIGITS = 20
"""Digits of a base offset in a file's name: other names are not names of segments."""


def segment_path(directory: str, base_offset: int) -> str:
    return f"{directory}/{base_offset:0{BASE_DIGITS}d}.log"


def bases_in(disk: Disk, directory: str) -> list[int]:
    """Return the base offsets of the segment files in a directory, in ascending order."""
    names = [name.removesuffix(".log") for name in disk.list_directory(directory) if name.endswith(".log")]
    return [int(name) for name in names if len(name) == BASE_DIGITS and name.isdigit()]


def loss_of(disk: Disk, path: str, size: int) -> DamagedLog | None:
    """Return the damage if a sealed segment's file is missing or shorter than `size` bytes; otherwise None.

    A longer file has preallocated space at its end that a power cut brought back. Raises OutOfResources, DiskFailed.
    """
    try:
        file = disk.open(path)
    except FileNotFoundError:
        return DamagedLog(path, 0, "the file is missing")
    except OSError as error:
        return damage_of(error, path, 0)
    with closing(file):
        length = file.size()
    return DamagedLog(path, length, f"the file ends here, but {size} bytes were written") if length < size else None
