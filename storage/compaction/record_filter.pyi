"""Both passes of the log cleaner in C: `record_filter.c`, which is there where it could be compiled."""

from array import array
from mmap import mmap

from cordwood.storage.disk import Bytes

def put(table: mmap, data: Bytes, position: int, other_kinds: int, /) -> int:
    """Put the keys of the batches from `position` on into the table, up to one that has any of these attributes.

    A key that does not fit ends it, too. Return the position after the last batch. Raises ValueError.
    """

def get(table: mmap, key: bytes, /) -> int | None:
    """Return the key's last offset; None if the table does not have the key."""

def sift(
    table: mmap,
    data: Bytes,
    position: int,
    other_kinds: int,
    out: bytearray,
    rewritten: array[int],
    needed: array[int],
    end: int,
    now: int,
    horizon: int,
    /,
) -> tuple[int, int, int, int, int]:
    """Write what is left of the batches from `position` on to `out`, up to one that has any of these attributes.

    Return the position after the last batch, the number of bytes in `out` and of places in `rewritten`, which are those
    of batches that lack their checksum, and the numbers of records that were read and kept. Raises ValueError.
    """

def keyless(content: Bytes, end: int, count: int, found_max: int, /) -> list[int]:
    """Return the places of the first `found_max` of `count` records that have no key. Raises ValueError."""
