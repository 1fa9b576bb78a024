"""Offline verification of a data directory: segments, indexes, checkpoints, snapshots and journals."""

from collections.abc import Iterator

from cordwood.cluster.broker import identity
from cordwood.cluster.metadata import journal, mirror_repair
from cordwood.cluster.metadata.mirror import copy_of
from cordwood.cluster.metadata.raft import storage
from cordwood.replication.log_directory import MARKS_FILE, METADATA, TOPICS, names_in, place_of
from cordwood.replication.run_mark import RUN_FILE
from cordwood.storage.batch import BatchHeader
from cordwood.storage.compaction.verify import verify_compacted
from cordwood.storage.disk import Disk
from cordwood.storage.errors import DamagedLog
from cordwood.storage.flushed_offsets import FlushedOffset, FlushedOffsets
from cordwood.storage.verify import (
    CHECKPOINTS,
    dump_segment,
    verify_checkpoint,
    verify_partition,
    verify_segment,
)

LOG, INDEX, SNAPSHOT = ".log", ".index", ".snapshot"
WHOLE_FILES = frozenset((*CHECKPOINTS, identity.NAME, storage.STANDING, RUN_FILE))
"""Names of files in the framing of `storage/checkpoint.py`."""


def verify(disk: Disk, path: str, *, compacted: bool = False) -> Iterator[DamagedLog]:
    """Yield the damage in a file, a partition, or a whole data directory. Writes nothing. Raises OSError.

    With `compacted`, also yield records that the log cleaner should have removed.
    """
    names = _names(disk, path)
    if names is None:
        yield from _verify_file(disk, path)
    elif TOPICS in names or METADATA in names:
        yield from _verify_data_directory(disk, path, names, compacted=compacted)
    elif any(name.endswith(LOG) for name in names):
        yield from _verify_partition(disk, path, None, compacted=compacted)
    else:
        for name in names:
            yield from verify(disk, f"{path}/{name}", compacted=compacted)


def dump(disk: Disk, path: str) -> Iterator[tuple[str, int, BatchHeader]]:
    """Yield path, position and header of each batch of a segment or a directory. Raises DamagedLog, OSError."""
    names = _names(disk, path)
    if names is None:
        yield from dump_segment(disk, path)
        return
    for name in names:
        if name.endswith(LOG) or _names(disk, f"{path}/{name}") is not None:
            yield from dump(disk, f"{path}/{name}")


def _verify_partition(disk: Disk, path: str, mark: FlushedOffset | None, *, compacted: bool) -> Iterator[DamagedLog]:
    yield from verify_partition(disk, path, mark)
    if compacted:
        yield from verify_compacted(disk, path)


def _verify_data_directory(disk: Disk, path: str, names: list[str], *, compacted: bool) -> Iterator[DamagedLog]:
    marks: FlushedOffsets | None = None
    for name in names:
        if name == MARKS_FILE:
            marks = FlushedOffsets(disk.open(f"{path}/{name}"))
            yield from marks.damage
        elif name == METADATA:
            yield from _verify_metadata(disk, f"{path}/{name}")
        elif name != TOPICS:
            yield from _verify_file(disk, f"{path}/{name}")
    if TOPICS in names:
        for topic, partition in names_in(disk, f"{path}/{TOPICS}"):
            place = place_of(topic, partition)
            if place is not None:
                mark = None if marks is None else marks.get(*place)
                yield from _verify_partition(disk, f"{path}/{TOPICS}/{topic}/{partition}", mark, compacted=compacted)


def _verify_metadata(disk: Disk, path: str) -> Iterator[DamagedLog]:
    """Yield the damage of each metadata file, in both copies if there are two; without any, check them together."""
    found: list[DamagedLog] = []
    for directory in (path, copy_of(path)):
        for name in disk.list_directory(directory) if disk.exists(directory) else ():
            found += _verify_file(disk, f"{directory}/{name}")
    check = storage.verify if disk.exists(f"{path}/{storage.STANDING}") else mirror_repair.verify
    yield from found or check(disk, path)


def _verify_file(disk: Disk, path: str) -> Iterator[DamagedLog]:
    name = path.rpartition("/")[2]
    if name.endswith(LOG):
        yield from verify_segment(disk, path)
    elif name.endswith(INDEX):
        yield from verify_segment(disk, path.removesuffix(INDEX) + LOG)
    elif name in WHOLE_FILES or name.endswith(SNAPSHOT):
        yield from verify_checkpoint(disk, path)
    elif name == journal.NAME:
        file = disk.open(path)
        try:
            journal.check(path, file.pread(file.size(), 0))
        except DamagedLog as damage:
            yield damage
        finally:
            file.close()
    elif name == MARKS_FILE:
        yield from FlushedOffsets(disk.open(path)).damage


def _names(disk: Disk, path: str) -> list[str] | None:
    """Return the names in a directory; None for a file."""
    try:
        return disk.list_directory(path)
    except NotADirectoryError:
        return None
