"""Check of sparse index files against their segments: each row's checksum must match the bytes that it covers."""

from collections.abc import Iterator
from contextlib import closing

from crc32c import crc32c

from cordwood.chaos.sim.disk import SimulatedDisk
from cordwood.storage.index import load
from cordwood.storage.segment_files import segment_file


def unproven(disk: SimulatedDisk, directory: str) -> Iterator[str]:
    """Yield a sentence per index file in a log's directory with a row that its segment contradicts.

    The disk must not have lied. A block that a power cut tore fails its own checksum and yields no rows.
    """
    for path in disk.files():
        if not (path.startswith(f"{directory}/") and path.endswith(".index")):
            continue
        segment = path.removesuffix(".index") + ".log"
        content = disk.content(segment) if disk.exists(segment) else b""
        with closing(disk.open(path)) as file:
            name = segment_file(path)
            rows, _ = load(file, -1 if name is None else name.base_offset)
        for row in rows:
            if crc32c(content[row.position : row.end]) != row.crc:
                yield f"promise 4: {path} vouches for bytes {row.position} to {row.end}, which are not what it says"
                break
