"""Segment files of a log: names, directory listing, and a check for missing or short files.

A name has the base offset and, from the first rewrite of the segment on, its generation: `BASE.log`, `BASE-1.log`. A
rewritten segment may cover several older ones. Between the offsets of a file with a generation are gaps.
"""

from collections.abc import Sequence
from contextlib import closing
from typing import NamedTuple

from cordwood.storage.disk import Disk
from cordwood.storage.errors import DamagedLog, damage_of

BASE_DIGITS = 20
"""Digits of a base offset in a file's name: other names are not names of segments."""


class SegmentFile(NamedTuple):
    """Base offset and generation of a segment, as the names of its files have them."""

    base_offset: int
    generation: int = 0


def segment_path(directory: str, base_offset: int, generation: int = 0) -> str:
    return f"{directory}/{base_offset:0{BASE_DIGITS}d}{f'-{generation}' if generation else ''}.log"


def segment_file(path: str) -> SegmentFile | None:
    """Return base offset and generation from the name of a segment or of a file beside it; None for another name."""
    base, dash, generation = path.rpartition("/")[2].partition(".")[0].partition("-")
    if len(base) != BASE_DIGITS or not base.isdigit() or (dash and not generation.isdigit()):
        return None
    return SegmentFile(int(base), int(generation or 0))


def files_in(disk: Disk, directory: str) -> list[SegmentFile]:
    """Return the segment files in a directory, by base offset and generation."""
    return files_of(disk.list_directory(directory))


def files_of(names: Sequence[str]) -> list[SegmentFile]:
    """Return the segment files among the names in a directory, by base offset and generation."""
    return sorted(file for name in names if name.endswith(".log") and (file := segment_file(name)) is not None)


def strays_of(names: Sequence[str]) -> list[str]:
    """Return the names of the files beside a rewritten segment that is not there: its swap was interrupted."""
    there = set(files_of(names))
    rewritten = [(name, file) for name in names if (file := segment_file(name)) is not None and file.generation]
    return [name for name, file in rewritten if file not in there]


def loss_of(disk: Disk, path: str, size: int, offsets: int) -> DamagedLog | None:
    """Return the damage if a sealed segment's file is missing or shorter than `size` bytes; otherwise None.

    A segment of 0 bytes with offsets has lost all its records. A longer file has preallocated space at its end that a
    power cut brought back. Raises OutOfResources, DiskFailed.
    """
    if offsets and not size:
        return DamagedLog(path, 0, f"{offsets} offsets have no records")
    try:
        file = disk.open(path)
    except FileNotFoundError:
        return DamagedLog(path, 0, "the file is missing")
    except OSError as error:
        return damage_of(error, path, 0)
    with closing(file):
        length = file.size()
    return DamagedLog(path, length, f"the file ends here, but {size} bytes were written") if length < size else None
