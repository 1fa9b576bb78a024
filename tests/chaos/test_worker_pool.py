"""Pools of processes that end with the process that made them."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from broker_fixture import wait_until

from cordwood.chaos.worker_pool import worker_pool

PROGRAM = """
import os, time
from cordwood.chaos.worker_pool import worker_pool
pool = worker_pool(2)
begun = [pool.submit(os.getpid) for _ in range(2)]
print(*{each.result() for each in begun}, flush=True)
for _ in range(2):
    pool.submit(time.sleep, 60)
time.sleep(60)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=lambda number: number.name)
def test_workers_end_with_the_process_that_made_them(number: int) -> None:
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        workers = [int(pid) for pid in parent.stdout.readline().split()]
        os.kill(parent.pid, number)
        parent.wait(10)
        wait_until(lambda: not any(map(is_running, workers)), 20, "the end of the workers")
    assert workers


def test_each_process_of_a_pinned_pool_keeps_to_the_next_cpu() -> None:
    cpus = sorted(os.sched_getaffinity(0))
    with worker_pool(len(cpus) + 1, is_pinned=True) as pool:
        workers: set[int] = set()
        while len(workers) <= len(cpus):
            busy = [pool.submit(time.sleep, 0.05) for _ in range(2 * len(cpus))]
            workers.update(each.result() for each in [pool.submit(os.getpid) for _ in busy])
        found = [cpu for worker in workers for cpu in os.sched_getaffinity(worker)]
    assert sorted(found) == sorted([*cpus, cpus[0]])
    assert sorted(os.sched_getaffinity(0)) == cpus


def is_running(pid: int) -> bool:
    """Return whether a process runs. A zombie does not count."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
