"""What a mistyped name was probably meant to be."""

from collections.abc import Iterable
from difflib import get_close_matches


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name most like `name`, whatever the case of its letters; None where none is like it."""
    by_small_letters = {each.lower(): each for each in known}
    matches = get_close_matches(name.lower(), by_small_letters, n=1)
    return by_small_letters[matches[0]] if matches else None
