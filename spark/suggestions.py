"""Suggestions for mistyped names."""

from collections.abc import Iterable
from difflib import get_close_matches


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name most similar to `name`, case-insensitively; None if none is similar."""
    by_small_letters = {each.lower(): each for each in known}
    matches = get_close_matches(name.lower(), by_small_letters, n=1)
    return by_small_letters[matches[0]] if matches else None
