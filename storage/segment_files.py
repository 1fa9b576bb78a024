"""The files of a log's segments: their names, which there are, and whether one is all there."""

from contextlib import closing

from cordwood.storage.disk import Disk
from cordwood.storage.errors import DamagedLog, damage_of

BASE_DIGITS = 20
"""Of a base offset in a file's name: names of anything else are none of a segment's."""


def segment_path(directory: str, base_offset: int) -> str:
    return f"{directory}/{base_offset:0{BASE_DIGITS}d}.log"


def bases_in(disk: Disk, directory: str) -> list[int]:
    """The base offsets of the segment files in a directory, in order."""
    names = [name.removesuffix(".log") for name in disk.list_directory(directory) if name.endswith(".log")]
    return [int(name) for name in names if len(name) == BASE_DIGITS and name.isdigit()]


def loss_of(disk: Disk, path: str, size: int) -> DamagedLog | None:
    """What a sealed segment of `size` bytes has lost of its file; None where that is all there.

    What follows them is space that was allocated, and given back too late for a power cut.
    """
    try:
        file = disk.open(path)
    except FileNotFoundError:
        return DamagedLog(path, 0, "it is missing")
    except OSError as error:
        return damage_of(error, path, 0)
    with closing(file):
        length = file.size()
    return DamagedLog(path, length, f"it ends here, where {size} bytes were written") if length < size else None
