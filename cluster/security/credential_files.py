"""Files with certificates and keys, which other programs write: read whole, up to a limit."""

import os
from typing import NamedTuple

FILE_BYTES_MAX = 1 << 20


class Stamp(NamedTuple):
    """What changes when a file is written or replaced, also through a symbolic link."""

    inode: int
    size: int
    changed_ns: int


def read(path: str) -> bytes:
    """Return the bytes of a file. Blocks. Raises OSError."""
    with open(path, "rb") as file:
        data = file.read(FILE_BYTES_MAX + 1)
    if len(data) > FILE_BYTES_MAX:
        raise OSError(0, f"the file is larger than {FILE_BYTES_MAX} bytes", path)
    return data


def stamp(path: str) -> Stamp | None:
    """Return the file's stamp, or None if there is no such file. Blocks."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return Stamp(status.st_ino, status.st_size, status.st_mtime_ns)
