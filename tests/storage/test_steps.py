"""Work in steps: lists that are sorted and made distinct a step at a time."""

from collections.abc import Iterator

import pytest

from cordwood.storage.steps import ITEMS_PER_RUN, at_once, distinct, in_order


@pytest.mark.parametrize("count", [0, 1, ITEMS_PER_RUN, 5 * ITEMS_PER_RUN + 3])
def test_items_are_sorted_in_steps_as_they_are_at_once(count: int) -> None:
    items = [(number * 7919) % 1009 for number in range(count)]
    assert at_once(in_order(items, key=lambda item: -item)) == sorted(items, reverse=True)


def test_items_that_come_again_are_left_out() -> None:
    def items() -> Iterator[str]:
        yield from "abcab"

    assert at_once(distinct(items())) == ["a", "b", "c"]
