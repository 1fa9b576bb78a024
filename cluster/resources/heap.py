"""Free heap memory, returned to the system: glibc keeps the pages of requests that are done."""

import ctypes


def trim() -> None:
    """Return free pages of the heap to the system, in some milliseconds. Without glibc, do nothing.

    The call releases the interpreter's lock.
    """
    try:
        malloc_trim = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError):
        return
    malloc_trim(0)
