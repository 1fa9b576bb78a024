"""Pools of processes that end with the process that made them, however it ends."""

import multiprocessing
import os
import threading
from concurrent.futures import ProcessPoolExecutor
from itertools import cycle, islice
from multiprocessing.queues import SimpleQueue

ORPHANED = 1
"""The exit code of a process whose parent has ended."""


def worker_pool(processes: int, nice: int = 0, *, is_pinned: bool = False) -> ProcessPoolExecutor:
    """Return a pool of new interpreters with a lower priority: `nice` as in nice(1).

    With `is_pinned` each process keeps to one CPU. Threads that take turns in a process then wake each other on that
    CPU: to wake another one that is busy, too, may take half of the time.
    """
    context = multiprocessing.get_context("spawn")
    cpus: SimpleQueue[int] | None = None
    if is_pinned and hasattr(os, "sched_setaffinity"):
        cpus = context.SimpleQueue()
        for cpu in islice(cycle(sorted(os.sched_getaffinity(0))), processes):
            cpus.put(cpu)
    return ProcessPoolExecutor(processes, context, begin_worker, (nice, cpus))


def begin_worker(nice: int = 0, cpus: "SimpleQueue[int] | None" = None) -> None:
    """Lower the priority of this process, and end it as soon as its parent has ended: the initializer of a pool.

    It keeps to the next of the CPUs, if there are any. A worker that waits for work does not notice the end of its
    parent: it has both ends of the pool's pipes.
    """
    os.nice(nice)
    if cpus is not None:
        os.sched_setaffinity(0, {cpus.get()})
    threading.Thread(target=_end_with_parent, name="parent-watch", daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(ORPHANED)
