"""What keeps the interpreter's own doings out of a simulated run, so that it repeats."""

import gc
import logging
from collections.abc import Iterator
from contextlib import contextmanager

import structlog


@contextmanager
def undisturbed() -> Iterator[None]:
    """No logs, and no garbage collector at a moment of its own choice."""
    configured, was_collecting = structlog.get_config(), gc.isenabled()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    gc.disable()
    try:
        yield
    finally:
        structlog.configure(**configured)
        if was_collecting:
            gc.enable()
