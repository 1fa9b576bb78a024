"""Lazy message arrays: items of a request or a response, created one by one during iteration."""

from collections.abc import Callable, Collection, Iterator
from typing import Generic, TypeVar, cast

_From = TypeVar("_From")
_To = TypeVar("_To")


class Rows(Generic[_From, _To]):
    """A lazily mapped collection. Each iteration creates the items again."""

    __slots__ = ("_make", "_values")

    def __init__(self, make: Callable[[_From], _To], values: Collection[_From]) -> None:
        self._make, self._values = make, values

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[_To]:
        return map(self._make, self._values)


def rows(make: Callable[[_From], _To], values: Collection[_From]) -> tuple[_To, ...]:
    """Return a lazy array for a message field. kio types such fields as tuples, but uses only `len` and iteration."""
    return cast("tuple[_To, ...]", Rows(make, values))


class _Generated(Generic[_To]):
    """A lazily generated collection. Each iteration generates the items again."""

    __slots__ = ("_count", "_generate")

    def __init__(self, generate: Callable[[], Iterator[_To]], count: int) -> None:
        self._generate, self._count = generate, count

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[_To]:
        return self._generate()


def generated(generate: Callable[[], Iterator[_To]], count: int) -> tuple[_To, ...]:
    """Return a lazy array of the `count` items of a generator, for items that need the position of the one before."""
    return cast("tuple[_To, ...]", _Generated(generate, count))
