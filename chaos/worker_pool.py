"""Pools of processes that end with the process that made them, however it ends."""

import multiprocessing
import os
import threading
from concurrent.futures import ProcessPoolExecutor

ORPHANED = 1
"""The exit code of a process whose parent has ended."""


def worker_pool(processes: int, nice: int = 0) -> ProcessPoolExecutor:
    """Return a pool of new interpreters with a lower priority: `nice` as in nice(1)."""
    return ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"), begin_worker, (nice,))


def begin_worker(nice: int = 0) -> None:
    """Lower the priority of this process, and end it as soon as its parent has ended: the initializer of a pool.

    A worker that waits for work does not notice: it has both ends of the pool's pipes.
    """
    os.nice(nice)
    threading.Thread(target=_end_with_parent, name="parent-watch", daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(ORPHANED)
