"""Index files, held against the segments that they are to prove: no row vouches for bytes that are not there."""

from collections.abc import Iterator
from contextlib import closing

from crc32c import crc32c

from cordwood.chaos.sim.disk import SimulatedDisk
from cordwood.storage.index import load


def unproven(disk: SimulatedDisk, directory: str) -> Iterator[str]:
    """Sentences about rows in a log's directory that their segment does not bear out. The disk must not have lied.

    Blocks that a power cut tore have a checksum of their own, and so no rows.
    """
    for path in disk.files():
        if not (path.startswith(f"{directory}/") and path.endswith(".index")):
            continue
        segment = path.removesuffix(".index") + ".log"
        content = disk.content(segment) if disk.exists(segment) else b""
        with closing(disk.open(path)) as file:
            rows, _ = load(file, int(path.rpartition("/")[2].removesuffix(".index")))
        for row in rows:
            if crc32c(content[row.position : row.end]) != row.crc:
                yield f"promise 4: {path} vouches for bytes {row.position} to {row.end}, which are not what it says"
                break
