"""Quarantine: a limited number of copies of damaged segments, kept for the operator."""

from cordwood.storage.disk import Disk, File, sync_directory

COPIES_MAX = 10
BYTES_MAX = 1 << 30
"""Size of all copies in one quarantine."""
ROOM_LEFT_BYTES = 1 << 30
"""Free disk space that copies never use."""
PIECE_BYTES = 1 << 20


def keep(disk: Disk, quarantine: str, name: str, paths: tuple[str, ...]) -> str | None:
    """Copy files to `quarantine/name-<number>`, and return that path; None if there is no room.

    The oldest copies are removed. Blocks on the disk. A piece of 1 MiB that the disk cannot read is zeros in the copy.
    """
    for changed in disk.make_directories(quarantine):
        sync_directory(disk, changed)
    known = sorted(disk.list_directory(quarantine), key=_number)
    sizes = {copy: _size_of(disk, f"{quarantine}/{copy}") for copy in known}
    size = sum(_length(disk, path) for path in paths)
    if size > BYTES_MAX or disk.free_bytes(quarantine) < size + ROOM_LEFT_BYTES:
        return None
    number = _number(known[-1]) + 1 if known else 1
    while known and (len(known) >= COPIES_MAX or sum(sizes[copy] for copy in known) + size > BYTES_MAX):
        disk.remove_tree(f"{quarantine}/{known.pop(0)}")
    place = f"{quarantine}/{name}-{number}"
    disk.make_directories(place)
    for path in paths:
        if disk.exists(path):
            _copy(disk, path, f"{place}/{path.rpartition('/')[2]}")
    return place


def _copy(disk: Disk, source: str, target: str) -> None:
    old, new = disk.open(source), disk.open(target, create=True)
    try:
        for position in range(0, old.size(), PIECE_BYTES):
            new.pwrite([_read(old, position)], position)
    finally:
        old.close()
        new.close()


def _read(file: File, position: int) -> bytes:
    try:
        return file.pread(PIECE_BYTES, position)
    except OSError:
        return bytes(min(PIECE_BYTES, file.size() - position))


def _size_of(disk: Disk, directory: str) -> int:
    return sum(_length(disk, f"{directory}/{name}") for name in disk.list_directory(directory))


def _length(disk: Disk, path: str) -> int:
    if not disk.exists(path):
        return 0
    file = disk.open(path)
    try:
        return file.size()
    finally:
        file.close()


def _number(copy: str) -> int:
    """Return a copy's number: copies are numbered in the order in which they were made."""
    number = copy.rpartition("-")[2]
    return int(number) if number.isdigit() else 0
