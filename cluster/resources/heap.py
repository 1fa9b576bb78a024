"""Free heap memory, returned to the system: glibc keeps the pages of requests that are done."""

import ctypes

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
"""mallopt's M_TRIM_THRESHOLD and M_MMAP_THRESHOLD. To set one of them ends glibc's adjustment of both."""
MAPPED_FROM_BYTES = 4 << 20
KEPT_BYTES = 64 << 20
"""Free bytes that the heap keeps between two calls of `trim`: pages that are returned at each free have to be faulted
in again for the next piece of a log."""


def keep_large_blocks_apart() -> None:
    """Have blocks of MAPPED_FROM_BYTES returned to the system as they are freed, and free pages of smaller blocks kept.

    Up to KEPT_BYTES are kept, until the next `trim`. Without glibc, do nothing.

    By default glibc raises its threshold for mmap up to 32 MiB as such blocks are freed, and then keeps them.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return
    mallopt(MMAP_THRESHOLD, MAPPED_FROM_BYTES)
    mallopt(TRIM_THRESHOLD, KEPT_BYTES)


def trim() -> None:
    """Return free pages of the heap to the system, in some milliseconds. Without glibc, do nothing.

    The call releases the interpreter's lock.
    """
    try:
        malloc_trim = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError):
        return
    malloc_trim(0)
