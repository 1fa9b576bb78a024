"""Items of a request or an answer that are made one by one as they are looked at, and never all at once."""

from collections.abc import Callable, Collection, Iterator
from typing import Generic, TypeVar, cast

_From = TypeVar("_From")
_To = TypeVar("_To")


class Rows(Generic[_From, _To]):
    """What a function makes of each of some values. Each look at it makes the items anew."""

    __slots__ = ("_make", "_values")

    def __init__(self, make: Callable[[_From], _To], values: Collection[_From]) -> None:
        self._make, self._values = make, values

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[_To]:
        return map(self._make, self._values)


def rows(make: Callable[[_From], _To], values: Collection[_From]) -> tuple[_To, ...]:
    """The items for a field of a message. kio types such fields as tuples; they are only counted and walked through."""
    return cast("tuple[_To, ...]", Rows(make, values))
