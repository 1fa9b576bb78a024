"""Record-level validation of a produced batch in C: `record_walk.c`, which is there where it could be compiled."""

from cordwood.storage.disk import Bytes

def examine(buffer: Bytes, end: int, count: int, headers_max: int, /) -> tuple[bool, int] | None:
    """Check that `buffer` up to `end` is `count` records. Return whether each has a key, and the number of headers.

    None where there are more than `headers_max`. Raises ValueError, with the sentence of `contents.py`.
    """
