"""Isolation of a simulated run from the interpreter: no log output, no automatic garbage collection."""

import gc
import logging
from collections.abc import Iterator
from contextlib import contextmanager

import structlog


@contextmanager
def undisturbed() -> Iterator[None]:
    """Disable logging and the garbage collector within the context.

    The collector leaves out what exists before the run, mostly modules: traversing those is a tenth of a run's time.
    """
    gc.collect()
    gc.freeze()
    configured, was_collecting = structlog.get_config(), gc.isenabled()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    gc.disable()
    try:
        yield
    finally:
        structlog.configure(**configured)
        if was_collecting:
            gc.enable()
