"""Histograms: cumulative bucket counts, count and sum."""

import random

from cordwood.replication.measures import GATHERED_MAX, SECONDS, Histogram


def test_a_number_counts_for_the_range_that_ends_at_it_or_above() -> None:
    histogram = Histogram((1, 10))
    for number in (0, 1, 2, 10, 11, 1000):
        histogram.add(number)
    assert list(histogram.cumulative()) == [(1, 2), (10, 4)]
    assert (histogram.count, histogram.sum) == (6, 1024)


def test_without_numbers_all_is_zero() -> None:
    histogram = Histogram((1, 10))
    assert list(histogram.cumulative()) == [(1, 0), (10, 0)]
    assert (histogram.count, histogram.sum) == (0, 0)


def test_many_numbers_are_counted_like_few() -> None:
    rng, histogram = random.Random(1), Histogram(SECONDS)
    numbers = [rng.choice((*SECONDS, rng.expovariate(10))) for _ in range(3 * GATHERED_MAX + 7)]
    for number in numbers:
        histogram.add(number)
    expected = [sum(number <= bound for number in numbers) for bound in SECONDS]
    assert list(histogram.cumulative()) == list(zip(SECONDS, expected, strict=True))
    assert histogram.count == len(numbers)
    assert round(histogram.sum, 6) == round(sum(numbers), 6)
