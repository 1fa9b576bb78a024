"""Runs of several seeds in several processes: the same runs in the same order as in one process."""

from collections.abc import Iterator

from cordwood.chaos.sim.seeds import run_seeds


def test_several_processes_run_the_same_as_one() -> None:
    one, two = (list(run_seeds(range(3, 8), 2.0, jobs)) for jobs in (1, 2))
    assert [seed for seed, _ in two] == [3, 4, 5, 6, 7]
    assert [totals.hashes for _, totals in two] == [totals.hashes for _, totals in one]
    assert [totals.actions for _, totals in two] == [totals.actions for _, totals in one]


def test_no_seed_is_begun_after_the_last_that_is_taken() -> None:
    begun: list[int] = []

    def seeds() -> Iterator[int]:
        for seed in range(100):
            begun.append(seed)
            yield seed

    runs = run_seeds(seeds(), 1.0, 2)
    next(runs)
    runs.close()
    assert len(begun) <= 5
