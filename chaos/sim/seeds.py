"""Runs of several seeds: in their order, each in one of several processes."""

from collections import deque
from collections.abc import Generator, Iterable
from concurrent.futures import Future
from itertools import islice

from cordwood.chaos.sim.run import run_seed
from cordwood.chaos.sim.run_summary import RunTotals
from cordwood.chaos.worker_pool import worker_pool

AHEAD = 2
"""Seeds of each process that run or wait: the process has the next seed when it ends one."""


def run_seeds(seeds: Iterable[int], seconds: float, jobs: int) -> Generator[tuple[int, RunTotals], None, None]:
    """Yield each seed with the totals of its run, in the order of the seeds.

    After the last one that is taken no further seed is begun. Those that processes have, at most AHEAD each, are
    waited for.
    """
    if jobs == 1:
        for seed in seeds:
            yield seed, _totals(seed, seconds)
        return
    # A simulation runs its jobs in threads, one at a time.
    pool = worker_pool(jobs, is_pinned=True)
    left = iter(seeds)
    begun: deque[tuple[int, Future[RunTotals]]] = deque()
    try:
        while True:
            begun += [(seed, pool.submit(_totals, seed, seconds)) for seed in islice(left, AHEAD * jobs - len(begun))]
            if not begun:
                return
            seed, totals = begun.popleft()
            yield seed, totals.result()
    finally:
        pool.shutdown(cancel_futures=True)


def _totals(seed: int, seconds: float) -> RunTotals:
    return RunTotals.of(run_seed(seed, seconds))
