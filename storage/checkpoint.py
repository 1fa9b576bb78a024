"""Checkpoint file, replaced atomically: after a crash it holds the old payload or the new one, never a mixture."""

from collections.abc import Sequence
from contextlib import closing
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from cordwood.storage.disk import Bytes, Disk, File
from cordwood.storage.errors import DamagedLog, read_failed

MAGIC = b"CWCP"
VERSION = 1
NEWEST_VERSION = 5
"""Newest version of a payload's layout. The module that writes a payload defines its layouts."""

STAGED = ".new"
"""The suffix of an unfinished file that is to replace the one without it."""

_HEADER = Struct("<4sHI")
"""Magic, version, length of the payload. A CRC-32C of these and the payload follows, then the payload."""
_CHECKSUM = Struct("<I")
_PAYLOAD_AT = _HEADER.size + _CHECKSUM.size


class Checkpoint(NamedTuple):
    """Content of a checkpoint file: the payload, and the version of the payload's layout."""

    version: int
    payload: bytes


def write(disk: Disk, path: str, payload: bytes, version: int = VERSION) -> None:
    """Replace the file at `path`.

    Durable on return. Blocks. Raises OSError: the file then has the old or the new payload.
    """
    header = _HEADER.pack(MAGIC, version, len(payload))
    checksum = _CHECKSUM.pack(crc32c(payload, crc32c(header)))
    replace_file(disk, path, (header, checksum, payload)).close()


def replace_file(disk: Disk, path: str, pieces: Sequence[Bytes]) -> File:
    """Replace or create the file at `path`, and return it, open. Durable on return. Blocks.

    Raises OSError: the file then has the old or the new content; the old one if resources are lacking, since nothing is
    opened after the rename.
    """
    with closing(disk.open_directory(_directory_of(path))) as directory:
        file = disk.open(path + STAGED, create=True)
        try:
            # An earlier attempt may have failed here and left a longer file.
            file.truncate(0)
            file.pwrite(pieces, 0)
            file.sync()
            disk.rename(path + STAGED, path)
            file.moved_to(path)
            directory.sync()
        except BaseException:
            file.close()
            raise
    return file


def read(disk: Disk, path: str) -> bytes | None:
    """Return the payload, or None if there is no such file. Raises as `load`."""
    loaded = load(disk, path)
    return None if loaded is None else loaded.payload


def load(disk: Disk, path: str) -> Checkpoint | None:
    """Return the content of the file, or None if there is no such file.

    Raises DamagedLog with the position of the first wrong byte, or if the disk cannot read the file; OutOfResources;
    DiskFailed.
    """
    try:
        with closing(disk.open(path)) as file:
            content = file.pread(file.size(), 0)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise read_failed(error, path, 0) from error
    return _checked(path, content)


def _checked(path: str, content: bytes) -> Checkpoint:
    if len(content) < _PAYLOAD_AT:
        raise DamagedLog(path, len(content), "the file ends within its header")
    magic, version, length = _HEADER.unpack_from(content)
    if magic != MAGIC:
        raise DamagedLog(path, 0, f"the file starts with {magic!r} instead of {MAGIC!r}")
    payload = content[_PAYLOAD_AT:]
    (expected,) = _CHECKSUM.unpack_from(content, _HEADER.size)
    if crc32c(payload, crc32c(content[: _HEADER.size])) != expected:
        if len(payload) < length:
            raise DamagedLog(
                path, len(content), f"{length} bytes of payload were written, but only {len(payload)} are left"
            )
        raise DamagedLog(path, _HEADER.size, "the checksum does not match the payload")
    if not VERSION <= version <= NEWEST_VERSION:
        raise DamagedLog(
            path, 4, f"version {version} is newer than this version of Cordwood, which supports {NEWEST_VERSION}"
        )
    if len(payload) != length:
        raise DamagedLog(path, _PAYLOAD_AT + length, f"{len(payload) - length} bytes follow the payload")
    return Checkpoint(version, payload)


def _directory_of(path: str) -> str:
    directory, separator, _ = path.rpartition("/")
    return directory or separator or "."
