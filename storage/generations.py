"""Generations of segments: the files that count where the manifest does not list them, or was lost.

A rewritten segment is complete before its files get their names, and covers whole segments of lower generations. So the
highest generation at a base offset counts, unless it is damaged and an older one still exists. Other files in its range
are left over from before it.
"""

from collections.abc import Sequence
from contextlib import closing
from itertools import groupby

from cordwood.storage.batch import check
from cordwood.storage.disk import Disk
from cordwood.storage.errors import CorruptBatch
from cordwood.storage.recovery import FileWindow, has_hole
from cordwood.storage.segment_files import SegmentFile, segment_path


def counting(disk: Disk, directory: str, files: Sequence[SegmentFile]) -> tuple[list[SegmentFile], list[SegmentFile]]:
    """Return which of the files are segments of the log, and which are left over. Blocks on the disk.

    `files` are in ascending order. Only rewritten segments beside older files are read. Raises OSError.
    """
    live: list[SegmentFile] = []
    left_over: list[SegmentFile] = []
    covered_end = -1
    for base, group in groupby(files, key=lambda file: file.base_offset):
        generations = list(group)
        if base < covered_end:
            left_over += generations
            continue
        chosen, end = generations[-1], -1
        if chosen.generation and any(
            file.generation < chosen.generation and file.base_offset >= base for file in files
        ):
            chosen, end = _complete(disk, directory, generations)
        live.append(chosen)
        left_over += [file for file in generations if file is not chosen]
        covered_end = end
    return live, left_over


def _complete(disk: Disk, directory: str, generations: Sequence[SegmentFile]) -> tuple[SegmentFile, int]:
    """Return the highest generation that is complete, and its end offset; -1 for the end if none is."""
    for file in reversed(generations):
        if file.generation and (end := _end_of(disk, segment_path(directory, *file))) is not None:
            return file, end
    return generations[0 if generations[0].generation == 0 else -1], -1


def _end_of(disk: Disk, path: str) -> int | None:
    """Return the offset after the last batch; None if another batch of the file is not whole."""
    with closing(disk.open(path)) as file:
        position, end, length = 0, -1, file.size()
        window = FileWindow(file, length)
        while position < length:
            try:
                header = check(*window.batch_at(position))
            except CorruptBatch:
                return end if has_hole(file, position) else None
            if header.base_offset < end:
                return None
            position, end = position + header.size, header.end
    return end
