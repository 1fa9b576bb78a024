"""Work in steps: a generator that yields after each step, so that other work may run in between."""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from heapq import merge
from itertools import islice
from typing import Any, TypeVar

ITEMS_PER_RUN = 32
"""Items that one step of `in_order` sorts: as a request's first steps never wait, they are small too."""
ITEMS_PER_STEP = 8
"""Items with little work each, such as a topic of a subscription, that one step handles."""

_T = TypeVar("_T")
_Item = TypeVar("_Item")
Steps = Generator[None, None, _T]


def at_once(steps: Steps[_T]) -> _T:
    """Run all steps immediately and return their result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: _T = end.value
            return result


def run_step(steps: Steps[object]) -> bool:
    """Run the next step. Return whether it was the last one."""
    try:
        next(steps)
    except StopIteration:
        return True
    return False


def some(steps: Steps[_T], count: int) -> _T | None:
    """Run at most `count` steps. Return the result, or None if steps remain; `steps` can be resumed."""
    try:
        for _ in range(count):
            next(steps)
    except StopIteration as end:
        result: _T = end.value
        return result
    return None


def distinct(items: Iterable[_Item]) -> Steps[list[_Item]]:
    """Return the distinct items in order of first occurrence."""
    found: dict[_Item, None] = {}
    for item in items:
        found[item] = None
        yield
    return list(found)


def in_order(items: Iterable[_Item], key: Callable[[_Item], Any]) -> Steps[list[_Item]]:
    """Return the items sorted by `key`, in steps: a merge sort of runs of ITEMS_PER_RUN items."""
    rest = iter(items)
    runs = []
    while run := list(islice(rest, ITEMS_PER_RUN)):
        runs.append(sorted(run, key=key))
        yield
    return (yield from kept(merge(*runs, key=key)))


def portions(items: Iterable[_Item]) -> Iterator[list[_Item]]:
    """Yield the items in lists of at most ITEMS_PER_STEP, each for one step."""
    rest = iter(items)
    while portion := list(islice(rest, ITEMS_PER_STEP)):
        yield portion


def same_items(one: Mapping[_Item, object], other: Mapping[_Item, object]) -> Steps[bool]:
    """Return whether two mappings are equal, in steps."""
    if one is other:
        return True
    if len(one) != len(other):
        return False
    for portion in portions(one.items()):
        for key, value in portion:
            known = other.get(key)
            if known is not value and known != value:
                return False
        yield
    return True


def kept(items: Iterable[_Item]) -> Steps[list[_Item]]:
    """Return the items as a list, one step per item."""
    found = []
    for item in items:
        found.append(item)
        yield
    return found
